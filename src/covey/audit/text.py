"""An audit on the terminal: the matrix in words, then each score beside what it must be compared with."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from covey.attacks.finding import NOT_MEASURED, NOTHING_SEEN, Finding
from covey.audit.canaries import shown
from covey.audit.canaries.verdict import LedgerTest
from covey.audit.matrix import UNKNOWN, Audit, Cell, rows_of, verdict_of
from covey.leaks import CLIENT, COALITION, EAVESDROPPER, SECOND, SERVER, SERVERS
from covey.report.format import counted, percent
from covey.report.labels import label, protection_label
from covey.report.text_table import text_table

WIDTH = 118
NOT_SHOWN = "not shown by this attack"
LETTERS = {SERVER: "S", SECOND: "S2", CLIENT: "C", COALITION: "S+C", EAVESDROPPER: "E", SERVERS: "S+S2"}
LEGEND = (
    "broken: a score of 0.95 or more. leaks: the whole interval above chance and every control, and more than luck among the "
    "scores of a cell. leak suspected: above them, but luck may be. not shown: these attacks found nothing, which proves nothing; "
    "open is a score that they do not exclude. Where they leave everything open, as with few clients, it is not measured. "
    "* : carried over from a party that sees less."
)

WHO = "The worst that any party learns, and who: " + ", ".join(f"{short} {name}" for name, short in LETTERS.items())


def lines(audits: Sequence[Audit]) -> list[str]:
    """One audit in full; several as a table of the worst that anyone learns."""
    return _one(audits[0]) if len(audits) == 1 else _many(audits)


def title(audit: Audit) -> str:
    shield = protection_label(audit.defence, audit.encryption)
    where = label("dataset", audit.dataset)
    return f"{label('algorithm', audit.algorithm)}{shield and f' with {shield}'} on {where}"


def seeds(audit: Audit) -> str:
    return f"seed {audit.seed}" if audit.seeds == 1 else f"seeds {audit.seed} to {audit.seed + audit.seeds - 1}"


def score(finding: Finding) -> str:
    """The score in one line, as it must be read."""
    beside = [] if finding.interval is None else ["{:.3f} to {:.3f}".format(*finding.interval)]
    references = [] if finding.chance is None else [("chance", finding.chance)]
    references += [] if finding.best_control is None else [finding.best_control]
    beside += [", ".join(f"{name} {value:.3f}" for name, value in references)] if references else []
    verdict = verdict_of(finding)
    return f"{finding.attack} {finding.value:.3f} ({'; '.join(beside)}): {NOT_SHOWN if verdict == NOTHING_SEEN else verdict}"


def _one(audit: Audit) -> list[str]:
    if audit.problem:
        return [f"{title(audit)}: {audit.problem}"]
    accuracy = "" if audit.accuracy is None else f"; accuracy {percent(audit.accuracy)}"
    head = f"{title(audit)}: {audit.clients} clients, {counted(audit.rounds, 'round')}, {seeds(audit)}{accuracy}"
    cells = [[_short(audit.cell(row, column)) for column in audit.parties] for row in audit.rows]
    said = [
        head,
        *(w for note in audit.notes for w in _wrapped(f"note: {note}")),
        "",
        *text_table([["", *audit.parties], *([row, *line] for row, line in zip(audit.rows, cells))]),
        "",
        *_wrapped(LEGEND),
    ]
    for row, question in audit.rows.items():
        scored = [c for c in audit.cells if c.row == row and c.tried and not c.carried]
        missing = [c for c in audit.cells if c.row == row and c.verdict in (NOT_MEASURED, UNKNOWN)]
        if scored or missing:
            said += ["", f"{row}: {question}"]
        for cell in scored:
            for finding in cell.tried:
                words = f"{cell.column}: {score(finding)}. {finding.metric}: {finding.means}. Used {finding.used.rstrip('.')}."
                said += _wrapped(f"{words} {finding.note}".rstrip(), "  ")
        for cell in missing:
            said += _wrapped(f"{cell.column}: {cell.verdict}: {cell.why}", "  ")
    return said + tested(audit.ledger)


def tested(tests: Sequence[LedgerTest]) -> list[str]:
    """The ledger's claims beside what canaries showed."""
    if not tests:
        return []
    return [
        "",
        "ledger: the ε that is claimed, and what canaries show",
        *(w for t in shown.lines(tests) for w in _wrapped(t, "  ")),
    ]


def _many(audits: Sequence[Audit]) -> list[str]:
    rows, body = _comparison(audits)
    refused = [w for a in audits if a.problem for w in _wrapped(f"{title(a)}: {a.problem}")]
    left = [row for row in rows_of(audits) if row not in rows]
    notes = [w for note in _notes(audits) for w in _wrapped(f"note: {note}")]
    out = [f"Left out, as it applies to none: {', '.join(left)}."] if left else []
    return [*text_table([["", "accuracy", *rows], *body]), "", *_wrapped(f"{WHO}. {LEGEND}"), *out, *notes, *refused]


def markdown(audits: Sequence[Audit], command: str) -> str:
    """The comparison for a page of the documentation: generated, never typed."""
    rows, body = _comparison(audits)
    head = ["", "accuracy", *rows]
    facts = dict.fromkeys(
        f"{a.dataset}, {a.clients} clients, {counted(a.clusters, 'cluster')}, {counted(a.rounds, 'round')}, {seeds(a)}"
        for a in [one for one in audits if not one.problem] or audits
    )
    scores = "[card.md](card.md) beside this page has the worst of each row, `audit.json` every score."
    parts = [
        f"# Audit: {'; '.join(facts)}",
        f"By `{'` and `'.join(command.splitlines())}`; do not edit. {scores}",
        "![the matrix as a picture](matrix.svg)",
        "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body)),
        f"{WHO}. {LEGEND}",
        *(f"{title(a)}: {a.problem}" for a in audits if a.problem),
        *_notes(audits),
    ]
    return "\n\n".join(part.replace("\u00a0", " ") for part in parts) + "\n"


def _comparison(audits: Sequence[Audit]) -> tuple[list[str], list[list[str]]]:
    """The rows of the matrix that mean something here, and a line per audit: its name, accuracy and worst of each."""
    rows = [row for row in rows_of(audits) if any(a.says(row) for a in audits if not a.problem)]
    body = []
    for audit in audits:
        accuracy = "–" if audit.accuracy is None else percent(audit.accuracy)
        worst = ["refused" if audit.problem else _worst(audit, row) for row in rows]
        body.append([f"{label('algorithm', audit.algorithm)}, {audit.protection}", accuracy, *worst])
    return rows, body


def _notes(audits: Sequence[Audit]) -> list[str]:
    return list(dict.fromkeys(note for audit in audits for note in audit.notes))


def _worst(audit: Audit, row: str) -> str:
    """The worst verdict with its score and whom it concerns, then milder ones: "broken 1.00 S+C; leaks S,E"."""
    said: list[str] = []
    for verdict, who in audit.leaks(row):
        letters = ",".join(LETTERS[column] for column in who)
        said.append(f"{verdict if said else _short(audit.worst(row))} {letters}")
    return "; ".join(said) or _short(audit.worst(row))


def _short(cell: Cell) -> str:
    value = f" {cell.tried[0].value:.2f}" if cell.tried else ""
    left = "" if cell.open_end is None else f" ({cell.open_end:.2f} open)"
    return f"{cell.said}{value}{left}{'*' if cell.carried else ''}"


def _wrapped(words: str, indent: str = "") -> list[str]:
    return textwrap.wrap(words.replace("\u00a0", " "), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
