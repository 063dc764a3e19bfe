"""Tests of the ledger for readers: lines for a terminal, a section for the audit's page."""

from __future__ import annotations

from collections.abc import Sequence

from covey.audit.canaries.verdict import REFUTED, LedgerTest, in_words
from covey.report.draw.layout import Section, rows_table
from covey.report.draw.markup import join, tag
from covey.report.labels import label

LEAD = (
    "The ledger says what ε is at most. Canaries, samples that are planted and guessed, show what it is at least, for the turns of "
    "one client as the experiment's own code plays them. Shown above claimed would be a fault; a small number shows nothing."
)


def refuted(tests: Sequence[LedgerTest]) -> str:
    """What must be said before anything else; "": nothing."""
    names = dict.fromkeys(label("defence", test.mechanism) for test in tests if test.verdict == REFUTED)
    if not names:
        return ""
    return f"The ε that the ledger claims for {' and '.join(names)} is refuted: do not rely on it."


def lines(tests: Sequence[LedgerTest]) -> list[str]:
    warning = refuted(tests)
    said = [f"{label('defence', test.mechanism)}, {test.method}: {in_words(test)}" for test in tests]
    return [*([f"!!! {warning}"] if warning else []), *said]


def section(tests: Sequence[LedgerTest]) -> Section | None:
    if not tests:
        return None
    rows = [
        [
            label("defence", test.mechanism),
            test.method,
            "none" if test.claimed is None else f"{test.claimed:.2f}",
            tag("b", f"≥ {test.shown:.2f}"),
            "–" if test.as_gaussian is None else f"≥ {test.as_gaussian:.2f}",
            f"{test.most:.2f}",
            tag("b", test.verdict.upper(), style="color:var(--bad)") if test.verdict == REFUTED else test.verdict,
        ]
        for test in tests
    ]
    head = ("Mechanism", "Test", "ε claimed", "ε shown", "if Gaussian", "most to show", "Verdict")
    words = [
        tag("p", tag("b", f"{label('defence', test.mechanism)}, {test.method}: "), in_words(test), class_="caveat")
        for test in tests
    ]
    return Section("ledger", "The ledger, tested", LEAD, join([rows_table(head, rows, "ledger"), *words]))
