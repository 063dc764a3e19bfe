"""MingledPie (NDSS 2025): Fig. 3, Tables II to IX and Figs. 4 to 8, each by `covey reproduce mingledpie --table NAME`."""

from __future__ import annotations

import itertools

import numpy as np

from covey.crypto import fmd
from covey.crypto.identity_math import guess_accuracy
from covey.papers.harness import Cell, Claim, Options, Reproduction, Table, cell, claim
from covey.randomness import generator

TITLE = "MingledPie: preference profiling in clustered federated learning (NDSS 2025)"


def fig3(options: Options) -> Reproduction:
    """Preference profiling by a uniform guess in the shown set, over k, p and T: drawn sets against the closed form."""
    draws = 400 if options.quick else 4000
    grid = dict.fromkeys(
        [
            *((k, p, 2) for k, p in itertools.product((5, 6, 8, 10), (0.5, 0.25, 0.125))),
            *((5, p, t) for p, t in itertools.product((0.5, 0.25), (1, 2, 3, 4))),
            *((k, 0.5, t) for k, t in itertools.product((5, 6, 8, 10), (2, 3, 4, 5))),
            (7, 0.3, 3),
        ]
    )
    cells: list[Cell] = []
    worst = 0.0
    for n, (k, p, t) in enumerate(grid):
        options.say(f"[{n + 1}/{len(grid)}] k={k} p={p} T={t}")
        scores = _drawn_scores(k, p, t, draws)
        expected = guess_accuracy(k, p, t)
        error = float(np.std(scores, ddof=1)) / draws**0.5
        worst = max(worst, abs(float(np.mean(scores)) - expected) / max(error, 1e-12) if error else 0.0)
        row = f"k={k} p={p} T={t}"
        printed = 0.306 if (k, p, t) == (5, 0.5, 2) else None
        cells += [cell(row, "uniform guess", [float(np.mean(scores))], printed)]
        cells += [cell(row, "closed form", [expected]), cell(row, "standard error", [error])]
        cells += [cell(row, "closed form, T false members", [guess_accuracy(k, p, t, "false")] if t < k else [])]
    return Reproduction(
        paper="mingledpie",
        table="fig3",
        title="Accuracy of guessing a client's cluster uniformly in its shown set",
        dataset="",
        settings={"draws per cell": draws, "group": "ristretto255", "reading of T": "set has at least T members"},
        cells=cells,
        claims=_claims_fig3(worst, len(grid)),
        notes=[
            "The paper prints one number of this figure: 30.6 % at k=5, p=0.5, T=2. Algorithm 1's text (the set has at "
            "least T members) gives 34.67 %, its Eq. 9 and Table II (T false members) give 29.09 %.",
        ],
    )


def _drawn_scores(k: int, p: float, t: int, draws: int) -> list[float]:
    """1/|CI| of sets as clients draw them: how often a uniform guess in each would be right."""
    random = generator("fig3", k, int(p * 1e6), t)
    keys = fmd.generate_keys(k, p, random.bytes)
    return [1.0 / len(fmd.draw_set(keys, i % k, t, draw=random.bytes)) for i in range(draws)]


def _claims_fig3(worst: float, cells: int) -> list[Claim]:
    by_rate = [guess_accuracy(5, p, 2) for p in (0.5, 0.25, 0.125)]
    by_threshold = [guess_accuracy(5, 0.5, t) for t in (1, 2, 3, 4)]
    by_clusters = [guess_accuracy(k, 0.5, 2) for k in (5, 6, 8, 10)]

    def listed(values: list[float]) -> str:
        return ", ".join(f"{100 * v:.1f} %" for v in values)

    return [
        claim(
            "Uniform guessing succeeds as often as E[1/|CI|] says.",
            worst < 4.0,
            f"Over {cells} settings the drawn sets are at most {worst:.1f} standard errors from the closed form.",
        ),
        claim(
            "A lower false positive rate slowly raises the attack's accuracy.",
            by_rate == sorted(by_rate),
            f"p = 0.5, 0.25, 0.125 at k=5, T=2: {listed(by_rate)}.",
        ),
        claim(
            "A higher threshold lowers it.",
            by_threshold == sorted(by_threshold, reverse=True),
            f"T = 1 to 4 at k=5, p=0.5: {listed(by_threshold)}.",
        ),
        claim(
            "More clusters lower it.",
            by_clusters == sorted(by_clusters, reverse=True),
            f"k = 5, 6, 8, 10 at p=0.5, T=2: {listed(by_clusters)}.",
        ),
    ]


TABLES = {"fig3": Table(fig3, ("",))}
