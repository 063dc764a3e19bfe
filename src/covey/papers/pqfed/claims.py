"""What PQFed's paper says of its tables and figures, as contrasts of their cells."""

from __future__ import annotations

import itertools
import math

from covey.papers.cells import Contrast, Sheet, at, average, independent
from covey.papers.pqfed.figures import RATES, column_of, noise_of
from covey.papers.pqfed.settings import GRID, UNDER, peak
from covey.papers.verdict import Part, Range, Statement, above, below, within

KEPT, EVERYBODY, BEST, AS_LONG = (
    "kept at the first drop",
    "16: everybody at once",
    "the paper's best of 6 to 16",
    "the same group, trained as long as all steps",
)
ALWAYS = 0.95  # share of selections that counts as always


def table2(sheet: Sheet) -> list[Statement]:
    # Clear of what the paper's 300 test images leave open (± 2.9 points); MNIST has no room for so much.
    least = 0.03 if sheet.dataset == "cifar10" else 0.0
    by = " by at least 3 points" if least else ""
    said = [
        (f"Similar clients help: 2 above 1{by}.", "2", "1", least),
        (f"Similar clients help more than dissimilar ones: 2 above 3{by}.", "2", "3", least),
        ("Dissimilar clients still help: 3 above 1.", "3", "1", 0.0),
        ("Dissimilar clients beside similar ones harm: 2 above 4.", "2", "4", 0.0),
        ("More of them harm more: 4 above 5.", "4", "5", 0.0),
    ]
    row = {r[0]: r for r in sheet.rows}
    return [
        _ahead(text, at(row[high], "accuracy"), at(row[low], "accuracy"), f"{high} − {low}", margin)
        for text, high, low, margin in said
        if high in row and low in row
    ]


def _ahead(text: str, high: Contrast, low: Contrast, name: str, margin: float = 0.0) -> Statement:
    return Statement(text, [Part(name, high - low, above(margin))])


def table4(sheet: Sheet) -> list[Statement]:
    """Whether accuracy rises from the first experiment to the paper's best, and falls to the last.

    Our own best of eleven would be picked by its luck: the paper's is fixed beforehand, so that intervals mean what they say.
    """
    row = {int(r.split(":")[0]): r for r in sheet.rows}
    statements = []
    for name in dict.fromkeys(c.column for c in sheet.cells):
        best = peak(sheet.dataset, name, list(row))
        for says, other in (("similar clients help", min(row)), ("too many dissimilar clients harm", max(row))):
            text = f"{name}: {says} ({best}, the paper's best, above {other})."
            statements.append(_ahead(text, at(row[best], name), at(row[other], name), f"{best} − {other}"))
    return statements


def table6(sheet: Sheet) -> list[Statement]:
    ifca, everyone = "IFCA, 4 models", "FedAvg, all clients"
    statements = []
    for strategy in ("strict", "lenient"):
        ours = at(f"PQFed, {strategy}", "accuracy")
        text = f"PQFed, {strategy}, is at least as good as IFCA (less 1 point)."
        statements.append(_ahead(text, ours, at(ifca, "accuracy"), "PQFed − IFCA", -0.01))
        text = f"Choosing pays: PQFed, {strategy}, above FedAvg with all clients."
        statements.append(_ahead(text, ours, at(everyone, "accuracy"), "PQFed − FedAvg"))
    spent = [
        Part(f"{column}, IFCA − PQFed, lenient", at(ifca, column) - at("PQFed, lenient", column), above())
        for column in ("MB in all", "passes over clients' data")
    ]
    return [*statements, Statement("PQFed needs less communication and computation than IFCA.", spent)]


def table7(sheet: Sheet) -> list[Statement]:
    statements = []
    for name in UNDER:
        if name not in GRID[sheet.dataset] or sheet.get((KEPT, name)) is None:
            continue
        best = peak(sheet.dataset, name, range(6, 17))
        rivals = {
            EVERYBODY: "training with everybody (experiment 16)",
            BEST: f"the paper's best group (experiment {best})",
        }
        rivals[AS_LONG] = "that group trained for as many rounds: it is not the length alone"
        for row, words in rivals.items():
            if sheet.get((row, name)):
                text = f"{name}: the model kept by the incremental strategy beats {words}."
                gap = Part("kept − other", at(KEPT, name) - at(row, name), above())
                statements.append(Statement(text, [gap], whose="ours" if row == AS_LONG else "paper"))
    return statements


def fig3(sheet: Sheet) -> list[Statement]:
    """Noise is drawn several times for one partition: partitions are what intervals are over."""
    partitions = int(sheet.settings["partitions"])

    def curve(sensitivity: str, epsilon: float) -> list[Contrast]:
        return [at(f"r = {r:.1f}", column_of("centroid", sensitivity, epsilon)) for r in RATES]

    def rises(values: list[Contrast], first: int) -> list[Part]:
        steps = itertools.pairwise(list(zip(RATES, values))[first:])
        return [Part(f"from r = {a:.1f} to {b:.1f}", y - x, above(), units=partitions) for (a, x), (b, y) in steps]

    bare, ten, flat = curve("data", math.inf), curve("data", 10.0), curve("public", 0.1)
    full = sheet.mean("r = 1.0", column_of("centroid", "data", math.inf))
    linear = [
        Part("distance(1) − 8 distance(.1)", bare[-1] - 8.0 * bare[1], above(), units=partitions),
        Part("12 distance(.1) − distance(1)", 12.0 * bare[1] - bare[-1], above(), units=partitions),
    ]
    return [
        Statement(
            "Without noise the distance grows with the dissimilarity, from each rate to the next.", rises(bare, 1)
        ),
        Statement("Without noise it grows linearly (distance(1) is 8 to 12 times distance(.1)).", linear),
        Statement("ε = 10 tracks it: the distance grows from each rate to the next.", rises(ten, 0)),
        Statement(
            "ε = 0.1 flattens the curve (Δ public; from r = 0 to 1 by less than a tenth of what it grows without noise).",
            [Part("distance(1) − distance(0)", flat[-1] - flat[0], within(0.1 * full), units=partitions)],
            "With Δ read from the client's data it does not: Δ itself tells clients apart.",
        ),
    ]


def fig5(sheet: Sheet) -> list[Statement]:
    partitions = int(sheet.settings["partitions"])

    def admits(strategy: str, most: float) -> list[Part]:
        column = f"{strategy}, {noise_of(10.0)}"
        rates = [f"r = {r:.1f}" for r in RATES if r <= most + 1e-9]
        return [Part(rate, at(rate, column), above(ALWAYS), units=partitions) for rate in rates]

    return [
        Statement(
            f"At ε = 10 the {strategy} threshold takes the clients up to r = {most} (in over {100 * ALWAYS:.0f} % of selections).",
            admits(strategy, most),
        )
        for strategy, most in (("strict", 0.3), ("lenient", 0.6))
    ]


def fig4(sheet: Sheet) -> list[Statement]:
    plain = "euclidean, 1,200 rows"
    scores = [c for c in dict.fromkeys(c.column for c in sheet.cells) if c.endswith(" 1,200 rows")]
    return [
        Statement(
            "At ε ≤ 1 the attack stays near chance (within 2 points of 5 %).",
            [Part(row, at(row, plain) - 0.05, within(0.02)) for row in ("ε = 0.1", "ε = 1")],
            "The paper's 7 to 8 % is what an interpolated quantile gives with some 40 controls: 2.95 of 41 pass.",
        ),
        Statement(
            "At ε = 10 the power is moderate, below 40 %, by the paper's score.",
            [Part(plain, at("ε = 10", plain), below(0.4))],
        ),
        Statement(
            "At ε = 10 the power is moderate, below 40 %, by every score.",
            [Part(score, at("ε = 10", score), below(0.4)) for score in scores],
            whose="ours",
        ),
        Statement(
            "At ε ≥ 100 membership is certain (over 99 %).", [Part("ε = 100", at("ε = 100", plain), above(0.99))]
        ),
    ]


def fig6(sheet: Sheet) -> list[Statement]:
    near: Range = within(0.05)
    parts = [
        Part(f"{row}, {column}", independent(at(row, column) - average(at(r, column) for r in sheet.rows)), near)
        for column in dict.fromkeys(c.column for c in sheet.cells)
        for row in sheet.rows
    ]
    return [Statement("The power is close to its average for every client (within 5 points).", parts)]
