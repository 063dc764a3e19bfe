"""What MingledPie's paper says of its tables, as contrasts of their cells; margins were set before the runs."""

from __future__ import annotations

import itertools

from covey.crypto.identity_math import guess_accuracy
from covey.papers.cells import Contrast, Sheet, at
from covey.papers.verdict import Estimate, Part, Statement, above, below, within
from covey.statistics import Z

LIKE = {"Homogeneous": 0.003, "Heterogeneous": 0.01}  # accuracy that counts as staying with IFCA
FAR = 0.15  # … as far above, or as a collapse
SAME = 0.01  # … as restored, or as hardly changed
FROM = 20  # round from which curves are compared
RANDOM = ", random starts"  # rows without a sight of public samples by true cluster
GAP = f"MingledPie from IFCA, largest from round {FROM} on"
TRUE_SIZES = "unequal clusters 12, 12, 24, 36, 36"


def splits(sheet: Sheet) -> list[str]:
    """The columns of Table III that were asked for."""
    return [split for split in LIKE if not (sheet.quick and split == "Heterogeneous")]


def table3(sheet: Sheet) -> list[Statement]:
    return [s for split in splits(sheet) for s in _split(split)]


def _split(split: str) -> list[Statement]:
    like = LIKE[split]
    gap = at("MingledPie", split) - at("IFCA", split)
    blind = at(f"MingledPie{RANDOM}", split) - at(f"IFCA{RANDOM}", split)
    ahead = [
        Part(f"{ours} − {theirs}", at(ours, split) - at(theirs, split), above(FAR))
        for ours, theirs in itertools.product(("MingledPie", "IFCA"), ("FedProx", "FedAvg"))
    ]
    return [
        Statement(
            f"{split}: MingledPie ends with IFCA (within {100 * like:.1f} points).",
            [Part("MingledPie − IFCA", gap, within(like))],
        ),
        Statement(
            f"{split}: MingledPie stays with IFCA at every round from {FROM} on (within {100 * like:.1f} points).",
            [Part("largest gap", at(GAP, split), below(like), gap=True)],
        ),
        Statement(f"{split}: both stand far above one model for all (at least {100 * FAR:.0f} points).", ahead),
        Statement(
            f"{split}: MingledPie ends with IFCA where no start has seen public rows of its cluster (within "
            f"{100 * like:.1f} points).",
            [Part("MingledPie − IFCA", blind, within(like))],
            whose="ours",
        ),
    ]


def fig4(sheet: Sheet) -> list[Statement]:
    rounds = [row for row in sheet.rows if row.startswith("round ") and int(row.split()[1]) >= FROM]
    parts = [Part(row, at(row, "MingledPie") - at(row, "IFCA"), within(LIKE["Homogeneous"])) for row in rounds]
    text = f"MingledPie and IFCA converge alike (within 0.3 points at every shown round from {FROM} on)."
    return [Statement(text, parts)]


def fig9(sheet: Sheet) -> list[Statement]:
    """Of the last shown round; the averages over clusters are Fig. 4's."""
    last = max((row for row in sheet.rows if row.startswith("round ")), key=lambda row: int(row.split()[1]))
    clusters = sorted({c.column.split(", ")[1] for c in sheet.cells})
    parts = [Part(j, at(last, f"MingledPie, {j}") - at(last, f"IFCA, {j}"), within(SAME)) for j in clusters]
    return [
        Statement(f"In every cluster MingledPie ends with IFCA (within {100 * SAME:.0f} point).", parts, whose="ours")
    ]


def table5(sheet: Sheet) -> list[Statement]:
    clustering, mingled, ideal, counts = (
        at(row, "at the end") for row in ("① clustering", "① + ② mingled", "① + ② + ③ ideal matrix", "① + ② + ④ counts")
    )
    return [
        Statement(
            f"Mingling without rebuilding collapses (by {100 * FAR:.0f} points or more).",
            [Part("counts − mingled", counts - mingled, above(FAR))],
            "Mingled means are means over all clients with extra weight on a cluster's own. Where steps are not too long they "
            "learn, more slowly than a cluster's own mean.",
        ),
        Statement(
            f"Rebuilding with the ideal matrix collapses (by {100 * FAR:.0f} points or more).",
            [Part("counts − ideal", counts - ideal, above(FAR))],
        ),
        Statement(
            "Rebuilding with the true counts restores the accuracy of clustering without defence (within 1 point).",
            [Part("counts − clustering", counts - clustering, within(SAME))],
        ),
    ]


def table6(sheet: Sheet) -> list[Statement]:
    gap = at("average", "ResNet") - at("average", "CNN")
    return [Statement("ResNet-18 is more accurate than the CNN.", [Part("ResNet-18 − CNN", gap, above())])]


def table7(sheet: Sheet) -> list[Statement]:
    rows = [f"IID rate {rate}" for rate in ("0%", "20%", "40%", "60%")]
    ours = [at(row, "MingledPie") for row in rows]
    falls = [Part(f"{b} under {a}", x - y, above()) for (a, x), (b, y) in itertools.pairwise(zip(rows, ours))]
    gaps = [Part(row, at(row, "IFCA") - at(row, "MingledPie"), above(0.03)) for row in rows[1:]]
    return [
        Statement("Accuracy falls as the IID rate rises.", falls),
        Statement("MingledPie loses 4 to 6 points to IFCA at 20 % and more (here: 3 points or more).", gaps),
    ]


def table8(sheet: Sheet) -> list[Statement]:
    first, *rest = (f"IID rate {rate}" for rate in ("0%", "20%", "40%", "60%"))

    def falling(kind: str) -> list[Part]:
        known = {row: at(row, f"{kind} accuracy") for row in (first, *rest)}
        return [Part(f"{a} − {b}", known[a] - known[b], above()) for a, b in itertools.pairwise((first, *rest))]

    tested = {row: at(row, "test accuracy") - at(first, "test accuracy") for row in rest}
    return [
        Statement(
            f"Clients may join with whatever IID rate: test accuracy stays (within {100 * SAME:.0f} point of that at 0 %).",
            [Part(row, change, within(SAME)) for row, change in tested.items()],
        ),
        Statement("Training accuracy falls as the newcomers' IID rate rises.", falling("training")),
        Statement("Test accuracy falls as the newcomers' IID rate rises.", falling("test")),
    ]


def influence(words: str, better: bool, sheet: Sheet) -> list[Statement]:
    """Of Figs. 5 to 8."""
    says = "raises accuracy" if better else "hardly changes accuracy (by 1 point at most)"
    return [
        Statement(
            f"{split}: {words} {says}.",
            [Part("after − before", at(split, words) - at(split, "default"), above() if better else within(SAME))],
        )
        for split in splits(sheet)
    ]


def fig3(sheet: Sheet) -> list[Statement]:
    """Drawn sets against a closed form; what is said of the closed form alone has no interval."""
    draws = int(sheet.settings["draws per cell"])
    drawn = []
    for row in sheet.rows:
        off = sheet.mean(row, "uniform guess") - sheet.mean(row, "closed form")
        half = Z * sheet.mean(row, "standard error")
        drawn.append(Part(row, Estimate(off, half, half, draws), within(0.02)))

    def ordered(places: list[tuple[int, float, int]], falls: bool) -> list[Part]:
        values = [(f"k={k} p={p} T={t}", guess_accuracy(k, p, t)) for k, p, t in places]
        steps = [(f"{b} less {a}", y - x) for (a, x), (b, y) in itertools.pairwise(values)]
        return [Part(name, Estimate(step, 0.0, 0.0, 0), below() if falls else above()) for name, step in steps]

    return [
        Statement("Uniform guessing succeeds as often as E[1/|CI|] says (within 2 points).", drawn),
        Statement(
            "A lower false positive rate slowly raises the attack's accuracy.",
            ordered([(5, p, 2) for p in (0.5, 0.25, 0.125)], falls=False),
        ),
        Statement("A higher threshold lowers it.", ordered([(5, 0.5, t) for t in (1, 2, 3, 4)], falls=True)),
        Statement("More clusters lower it.", ordered([(k, 0.5, 2) for k in (5, 6, 8, 10)], falls=True)),
    ]


def table2(sheet: Sheet) -> list[Statement]:
    expected = guess_accuracy(5, 0.5, 2, "false")
    off = at("MingledPie", "epoch 5") - expected
    return [
        Statement(
            "IFCA's clients are profiled to 100 % by epoch 5 (above 99 %).",
            [Part("epoch 5", at("IFCA", "epoch 5"), above(0.99))],
        ),
        Statement(
            f"MingledPie's stay near 29 % (within 5 points of the closed form, {100 * expected:.2f} %).",
            [Part("epoch 5 − closed form", off, within(0.05))],
            "Sets are drawn from the seed: on all datasets whose clients are alike, this is one figure.",
        ),
    ]


def attackers(sheet: Sheet) -> list[Statement]:
    redrawn = [row for row in sheet.rows if row.startswith("sets redrawn")]
    kept = "remembered sets, intersection after 5"
    prior = at(TRUE_SIZES, "attack") - at(TRUE_SIZES, "uniform guess")
    gained = at(kept, "attack") - at(kept, "uniform guess")
    coalition = at("server and one client with the common key", "attack")
    return [
        Statement(
            "Uniform guessing is optimal (Theorem 2): weighting by cluster sizes gains 2 points at most.",
            [Part("weighted − uniform", prior, below(0.02))],
        ),
        Statement(
            "The guess succeeds with probability 1/T at most, also where sets are redrawn.",
            [Part(row.removeprefix("sets redrawn every round, "), at(row, "attack"), below(0.5)) for row in redrawn],
        ),
        Statement(
            "Remembered sets give the intersection nothing (1 point at most).",
            [Part("intersection − uniform", gained, within(SAME))],
            "By construction, where identities do not change: the same set is intersected with itself.",
            whose="ours",
        ),
        Statement(
            "Encrypted models resist A2 (within 5 points of chance, 20 %).",
            [Part("A2 − chance", at("A2 under CKKS", "attack") - 0.2, within(0.05))],
        ),
        Statement(
            "The scheme withstands a server that one client helps (below 50 %).",
            [Part("coalition", coalition, below(0.5))],
            "All clients hold the same key.",
            whose="ours",
        ),
    ]


def table4(sheet: Sheet) -> list[Statement]:
    return [
        Statement("A lower p lengthens identity generation.", _longer("identity", "p = 0.5", "p = 0.25", "p = 0.125")),
        Statement(
            "Aggregation grows with the number of clients.", _longer("aggregation", "N = 60", "p = 0.5", "N = 240")
        ),
    ]


def table9(sheet: Sheet) -> list[Statement]:
    return [
        Statement(
            "Encryption time follows the number of parameters.",
            _longer("encryption", "CNN", "FCNN", "ResNet-18"),
            "Our CNN has fewer parameters than the FCNN.",
        )
    ]


def _longer(column: str, *rows: str) -> list[Part]:
    """Each row's seconds above those of the row before."""
    steps: list[tuple[str, Contrast]] = [
        (f"{b} − {a}", at(b, column) - at(a, column)) for a, b in itertools.pairwise(rows)
    ]
    return [Part(name, step, above()) for name, step in steps]
