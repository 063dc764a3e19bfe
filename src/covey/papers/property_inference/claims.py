"""What Kim et al. say of property inference, and what we ask beside it, as contrasts of their tables' cells.

Partitions are what intervals are over: tasks and numbers of clients that share a partition are averaged first.
"""

from __future__ import annotations

from collections.abc import Callable

from covey.papers.cells import Contrast, Sheet, at, average
from covey.papers.verdict import Part, Range, Statement, above, within

SCORES = ("own upload subtracted", "own upload left in")
READINGS = ("whole test set", "clients' own data")  # of the main task; a cluster serves its own
MAIN_AUC = "main task's AUC"  # what the paper prints of it
HELPS = 0.05  # of AUC: a defence that takes less away does not help
MILD = {"undefended": above(0.7), "placebo": Range(0.35, 0.65), "DP-SGD σ=0.5": Range(0.35, 0.65)}
GAP = "CFL − FL"


def passive(sheet: Sheet) -> list[Statement]:
    """Tables 3 and 9, and every task with five clients."""
    rows = [row.removesuffix(f", {GAP}") for row in sheet.rows if row.endswith(f", {GAP}")]
    statements = []
    for score in SCORES:
        gap = average(at(f"{row}, {GAP}", score) for row in rows)
        statements.append(
            Statement(
                f"The passive attack is stronger on CFL than on FL, in the paper in 80 of 85 settings ({score}).",
                [Part("CFL − FL, mean of settings", gap, above())],
            )
        )
        falls = [
            Part(
                f"{task}, {method}, {few} − {many}",
                at(f"{few}, {method}", score) - at(f"{many}, {method}", score),
                above(),
            )
            for task in dict.fromkeys(row.split(",")[0] for row in rows)
            for few, many in [_ends([row for row in rows if row.startswith(f"{task},")])]
            for method in ("FL", "CFL")
            if few != many
        ]
        if falls:
            statements.append(Statement(f"The attack weakens as clients are added ({score}).", falls))
    return statements


def _ends(rows: list[str]) -> tuple[str, str]:
    """With the fewest clients and with the most."""
    by_number = sorted(rows, key=lambda row: int(row.split(", ")[1].split()[0]))
    return by_number[0], by_number[-1]


def table4(sheet: Sheet) -> list[Statement]:
    settings = _settings(sheet)

    def gain(text: str, column: str, over: str, score: str) -> Statement:
        parts = [at(f"{s}, {column}", score) - at(f"{s}, {over}", score) for s in settings]
        return Statement(text, [Part(f"{column} − {over}", average(parts), above())])

    scaled = [c for c in ("CFL γ=5", "CFL γ=10") if f"{settings[0]}, {c}" in sheet.rows]
    statements = []
    for score in SCORES:
        for column in scaled:
            text = f"Scaling up (γ = {column.split('=')[1]}) beats γ = 1 on CFL ({score})."
            statements.append(gain(text, column, "CFL γ=1", score))
        text = f"The active attack at γ = 1 beats the passive one on CFL ({score})."
        statements.append(gain(text, "CFL γ=1", "CFL", score))
    return statements


def _settings(sheet: Sheet) -> list[str]:
    """'C, 5 clients' of 'C, 5 clients, CFL γ=1'."""
    return list(dict.fromkeys(", ".join(row.split(", ")[:2]) for row in sheet.rows))


def regularised(attack: str) -> Callable[[Sheet], list[Statement]]:
    """Tables 5 and 6."""

    def statements(sheet: Sheet) -> list[Statement]:
        bare = [row.removesuffix(", none") for row in sheet.rows if row.endswith(", none")]
        defences = dict.fromkeys(row.split(", ")[-1] for row in sheet.rows if not row.endswith(", none"))
        return [
            Statement(
                f"{words} does not help against the {attack} attack (takes less than {HELPS:g} of its AUC; {score}).",
                [
                    Part(
                        "AUC with − without",
                        average(at(f"{b}, {words}", score) - at(f"{b}, none", score) for b in bare),
                        above(-HELPS),
                    )
                ],
            )
            for score in SCORES
            for words in defences
        ]

    return statements


def table7(sheet: Sheet) -> list[Statement]:
    noised = [row for row in sheet.rows if "σ=" in row and not row.endswith("σ=0")]
    sigmas = dict.fromkeys(row.split("σ=")[1] for row in noised)
    return [
        Statement(
            f"Under DP-SGD at both σ the attack guesses: AUC within .5 ± .05 (mean of settings; {score}).",
            [
                Part(
                    f"σ = {s}, AUC − .5",
                    average(at(row, score) for row in noised if row.endswith(s)) - 0.5,
                    within(0.05),
                )
                for s in sigmas
            ],
        )
        for score in SCORES
    ]


def table8(sheet: Sheet) -> list[Statement]:
    settings = _settings(sheet)

    def loss(method: str, sigma: str, on: str) -> Contrast:
        return average(at(f"{s}, {method} σ=0", on) - at(f"{s}, {method} σ={sigma}", on) for s in settings)

    return [
        Statement(
            f"At σ = {sigma} CFL loses less of its main task than FL, {on}.",
            [Part("FL's loss less CFL's", loss("FL", sigma, on) - loss("CFL", sigma, on), above())],
        )
        for on in (MAIN_AUC, *READINGS)
        for sigma in ("0.2", "0.5")
    ]


def maps(sheet: Sheet) -> list[Statement]:
    """A map of dots is looked at: that labels separate better on one is no figure."""
    return []


COSINES = ("cosine", "deviation")  # rows of Fig. 4


def fig4(sheet: Sheet) -> list[Statement]:
    rows = [row for row in sheet.rows if row.endswith(f", {COSINES[0]}")]
    gap = average(at(row, "CFL") - at(row, "FL") for row in rows)
    return [Statement("Consecutive updates are more alike on CFL than on FL.", [Part("CFL − FL", gap, above())])]


def mild(sheet: Sheet) -> list[Statement]:
    statements = []
    for row in sheet.rows:
        *_, method, kind = row.split(", ")
        for score in SCORES:
            text = f"{method}, {kind}: mean AUC {MILD[kind].words(1.0)} ({score})."
            statements.append(Statement(text, [Part("", at(row, score), MILD[kind])], whose="ours"))
    return statements


def acquisition(sheet: Sheet) -> list[Statement]:
    row = f"{sheet.settings['colluders']} colluders"
    ahead = at(row, "random") - at(row, "honest")
    return [
        Statement(
            "Enough colluding joiners obtain every cluster model of Sattler's CFL (over 99 %).",
            [Part("an agreed direction", at(row, "random"), above(0.99))],
            "The paper describes the attack and measures nothing.",
        ),
        Statement(
            "Colluding joiners obtain more cluster models than as many honest ones.",
            [Part("an agreed direction − honest", ahead, above())],
            whose="ours",
        ),
    ]
