"""What AFC-CFL's paper says of its tables, and what the controls say to it, as contrasts of their cells."""

from __future__ import annotations

from covey.papers.afc_cfl.rows import CONTROLS
from covey.papers.afc_cfl.settings import CLOSE, FRESH_ROWS, LOCAL, PRINTED, SETTINGS, SMALL_CLIP, rows_matched
from covey.papers.cells import Contrast, Sheet, at, average, independent
from covey.papers.verdict import Part, Statement, above, below, within

LOWER = 0.05  # of F1: less than that is not a defence
LEAK = "leak of the update"


def table1(sheet: Sheet) -> list[Statement]:
    return _undefended(sheet.rows, len(sheet.rows))


def _undefended(rows: list[str], settings: int = 1) -> list[Statement]:
    """`settings`: how many of the paper's these rows are of."""
    here = f" (here: in {settings} of {len(SETTINGS)})" if settings < len(SETTINGS) else ""
    return [
        Statement(
            f"The attack's F1 exceeds 0.9 in every setting{here}.",
            [Part(row, at(row, "F1"), above(0.9)) for row in rows],
        ),
        Statement(
            "Categories leak from the updates of the cluster models: reading them beats the best control, which never does.",
            [Part("F1 − best control, mean of settings", average(at(row, LEAK) for row in rows), above())],
            "Where it does not, what is inferred comes from the published cluster models, by filing auxiliary subsets by loss.",
        ),
    ]


def confirm(sheet: Sheet) -> list[Statement]:
    chosen, fresh = FRESH_ROWS
    gap = independent(at(fresh, "F1") - at(chosen, "F1"))
    repeats = Statement(
        f"The F1 on fresh seeds is that of the seeds that the attack's defaults were chosen on (within {CLOSE:g}).",
        [Part("fresh − chosen on", gap, within(CLOSE))],
        whose="ours",
    )
    return [repeats, *_undefended([fresh])]


def table2(sheet: Sheet) -> list[Statement]:
    bare = at("none", "F1")
    left = {"F1": "unaware of the noise", "noise-aware F1": "aware of the noise"} | {
        c: f"control: {c}" for c in CONTROLS
    }
    falls = [Part(words, bare - at("AFC-CFL", column), above(LOWER)) for column, words in left.items()]
    return [
        Statement(
            f"AFC-CFL lowers the attacker's F1 (by {LOWER:g} or more, whoever attacks, reading the update or not).",
            [part for part in falls if not _absent(sheet, part)],
        ),
        Statement(
            f"AFC-CFL lowers the F1 of an attacker who does not know of the noise (by {LOWER:g} or more).",
            falls[:1],
        ),
        Statement(
            f"At the same F1 (within {2 * CLOSE:g}), AFC-CFL is more accurate than common LDP (here: with a small fixed C).",
            [
                Part(
                    "accuracy, AFC-CFL − common LDP", at("AFC-CFL", "accuracy") - at("common LDP", "accuracy"), above()
                ),
                Part("F1, AFC-CFL − common LDP", at("AFC-CFL", "F1") - at("common LDP", "F1"), within(2 * CLOSE)),
            ],
            "The table `matched` says where this comes from.",
        ),
        Statement(
            "ADP lies between common LDP and AFC-CFL in accuracy.",
            [
                Part("ADP − common LDP", at("ADP", "accuracy") - at("common LDP", "accuracy"), above()),
                Part("AFC-CFL − ADP", at("AFC-CFL", "accuracy") - at("ADP", "accuracy"), above()),
            ],
        ),
        Statement(
            "ADP hides less than common LDP (a higher F1).",
            [Part("F1, ADP − common LDP", at("ADP", "F1") - at("common LDP", "F1"), above())],
        ),
        Statement(
            "AFC-CFL hides more than ADP (a lower F1).",
            [Part("F1, ADP − AFC-CFL", at("ADP", "F1") - at("AFC-CFL", "F1"), above())],
        ),
    ]


def _absent(sheet: Sheet, part: Part) -> bool:
    """A control that this table does not have at all; one that some runs are too old for stays, as not measured."""
    places = part.effect.terms if isinstance(part.effect, Contrast) else ()
    columns = {c.column for c in sheet.cells}
    return any(column not in columns for _, (_, column) in places)


def fig2(sheet: Sheet) -> list[Statement]:
    rounds = sheet.rows[len(sheet.rows) // 2 :]
    gap = average(at(row, "AFC-CFL") - at(row, "common LDP") for row in rounds)
    text = "AFC-CFL stays above common LDP in the second half (on average over its rounds)."
    return [Statement(text, [Part(f"{rounds[0]} to {rounds[-1]}", gap, above())])]


def tune(sheet: Sheet) -> list[Statement]:
    target, ours, theirs = (float(sheet.settings[name]) for name in ("target F1", "ε of AFC-CFL", "ε of common LDP"))
    afc, ldp = at(f"AFC-CFL, ε = {ours:g}", "F1"), at(f"common LDP, ε = {theirs:g}", "F1")
    return [
        Statement(
            f"A budget gives AFC-CFL the F1 of the paper's Table 2, {target:.3f} (within {CLOSE:g}).",
            [Part(f"ε = {ours:g}", afc - target, within(CLOSE))],
        ),
        Statement(
            f"A budget gives common LDP the F1 of AFC-CFL (within {CLOSE:g}).",
            [Part(f"ε = {theirs:g}", ldp - afc, within(CLOSE))],
        ),
    ]


def matched(sheet: Sheet) -> list[Statement]:
    budgets = dict.fromkeys(row.split(": ")[0] for row in sheet.rows)
    return [s for at_budget in budgets for s in _matched(f"{at_budget}: ")]


def _matched(budget: str) -> list[Statement]:
    even, same, decaying, small = rows_matched()[:4]
    ours = at(f"{budget}AFC-CFL", "accuracy")
    gaps = {row: ours - at(budget + row, "accuracy") for row in (even, same, decaying, small)}
    at_budget = f"At {budget}"
    return [
        Statement(
            f"{at_budget}noise by Fisher information costs less accuracy than equal noise everywhere, at the same clipping (by "
            f"{CLOSE:g} or more).",
            [Part("AFC-CFL − itself with its noise spread evenly", gaps[even], above(CLOSE))],
        ),
        Statement(
            f"{at_budget}with equal noise and clipping, common LDP and ADP are within {CLOSE:g} of AFC-CFL in accuracy.",
            [
                Part("AFC-CFL − common LDP", gaps[same], within(CLOSE)),
                Part("AFC-CFL − ADP, whose noise then decays", gaps[decaying], within(CLOSE)),
            ],
            whose="ours",
        ),
        Statement(
            f"{at_budget}the paper's gap is that between a clipping bound that fits and a small fixed one.",
            [
                Part(f"AFC-CFL − common LDP with C = {SMALL_CLIP:g}", gaps[small], above(CLOSE)),
                Part("AFC-CFL − common LDP with its own C", gaps[same], below(CLOSE)),
            ],
            whose="ours",
        ),
    ]


def choices(sheet: Sheet) -> list[Statement]:
    return [
        Statement(
            f"The update is worth reading, attacker's choice “{row}”.",
            [Part("F1 − best control", at(row, LEAK), above())],
            whose="ours",
        )
        for row in sheet.rows
    ]


def local_work(sheet: Sheet) -> list[Statement]:
    """One reading is that of all other tables; where another reaches the paper's accuracy, they are to be judged there."""
    printed = PRINTED.get(sheet.dataset)
    if printed is None:
        return []
    near = [
        Statement(
            f"With {row} in a round the undefended accuracy is the paper's, {printed[3]:.3f} (within 0.05).",
            [Part("ours − paper's", at(row, "accuracy") - printed[3], within(0.05))],
            whose="ours",
        )
        for row in LOCAL
    ]
    return [*near, *_undefended(list(LOCAL))]
