"""FedCAPrivacy's Figs. 2, 3 and 5, and the worth of aligned memberships."""

from __future__ import annotations

from typing import Any

import numpy as np

from covey.papers.fedcaprivacy.settings import (
    OPEN_NOTE,
    READING_NOTE,
    READINGS,
    ROUNDS,
    clusterings,
    experiment,
    mean,
    noted,
    settings,
)
from covey.papers.harness import Cell, Claim, Options, Outcome, Reproduction, cell, claim

OURS = "fedcaprivacy"


def fig2(options: Options) -> Reproduction:
    """Clustering every 1, 10 and 50 rounds under Dir(.3)."""
    runs = {every: one(options, every=every) for every in (1, 10, 50)}
    cells = [c for every, outcomes in runs.items() for c in accuracies(f"every {every} rounds", outcomes)]
    claims = [
        claim(
            f"Clustering less often lowers the final accuracy ({word} test).",
            mean(runs[1], metric) > mean(runs[10], metric) > mean(runs[50], metric),
            ", ".join(f"every {e}: {mean(o, metric):.2%}" for e, o in runs.items()),
            partly=mean(runs[1], metric) > mean(runs[50], metric) + 0.002,
        )
        for word, metric in READINGS.items()
    ]
    return made("fig2", "Accuracy by clustering frequency", options, cells, claims)


def fig3(options: Options) -> Reproduction:
    """The decay factor α: clusterings, their expectation, and accuracy, under Dir(.3), 200 rounds."""
    runs = {alpha: one(options, rounds=200, alpha=alpha) for alpha in (0.0, 0.005, 0.01, 0.1)}
    rounds = max(runs[0.0][0].curve())
    cells: list[Cell] = []
    worst = 0.0
    for alpha, outcomes in runs.items():
        chances = np.array([1.0] + [1 / (1 + alpha * r) for r in range(2, rounds + 1)])
        counts = [float(clusterings(o)) for o in outcomes]
        error = float(np.sqrt((chances * (1 - chances)).sum() / len(counts)))
        worst = max(worst, abs(float(np.mean(counts)) - chances.sum()) / max(error, 1e-12) if error else 0.0)
        row = f"α = {alpha}"
        cells += [cell(row, "clusterings", counts, unit=""), cell(row, "expected", [float(chances.sum())], unit="")]
        cells.append(cell(row, "seconds of clustering", [o.seconds("cluster") * rounds for o in outcomes], unit="s"))
        cells += accuracies(row, outcomes)
    saved = {alpha: rounds / float(np.mean([clusterings(o) for o in runs[alpha]])) for alpha in (0.005, 0.01, 0.1)}
    claims = [
        claim(
            "The number of clusterings follows Σ 1/(1 + αr).",
            worst < 3.0,
            f"At most {worst:.1f} standard errors from it, over {rounds} rounds.",
        ),
        claim(
            "Decay cuts clustering 1.28 to 7.14 times, most for α = .1.",
            saved[0.1] > 0.8 * 7.14 and saved[0.005] < 2,
            ", ".join(f"α = {a}: {s:.2f} times" for a, s in saved.items())
            + f", in {rounds} rounds; the paper's 'α = 1 is every round' is a slip for α = 0",
            partly=saved[0.1] > 1.5,
        ),
    ]
    for word, metric in READINGS.items():
        cost = 100 * (mean(runs[0.0], metric) - mean(runs[0.1], metric))
        claims.append(
            claim(f"α = .1 costs about one point at most ({word} test).", cost < 1.5, f"It costs {cost:.2f} points.")
        )
    return made("fig3", "Decaying clustering frequency", options, cells, claims, rounds=rounds)


def fig5(options: Options) -> Reproduction:
    """2, 5, 10, 20 and 30 clusters under Dir(.3)."""
    counts = (2, 5, 10) if options.quick else (2, 5, 10, 20, 30)
    runs = {k: one(options, clusters=k) for k in counts}
    cells = [c for k, outcomes in runs.items() for c in accuracies(f"{k} clusters", outcomes)]
    claims = []
    for word, metric in READINGS.items():
        accuracy = {k: mean(o, metric) for k, o in runs.items()}
        best = max(accuracy, key=lambda k: accuracy[k])
        claims.append(
            claim(
                f"Accuracy rises, then falls with the number of clusters ({word} test).",
                best not in (counts[0], counts[-1]),
                ", ".join(f"{k}: {v:.2%}" for k, v in accuracy.items()) + f"; best at {best}",
            )
        )
    return made("fig5", "Accuracy by number of clusters", options, cells, claims)


def alignment(options: Options) -> Reproduction:
    """Old memberships that stay with their participants against those that a fresh shuffle scrambles, α = .1."""
    runs = {(b, how): one(options, b, alignment=how) for b in (0.3, 0.1) for how in ("kept", "scrambled")}
    cells = [c for (b, how), outcomes in runs.items() for c in accuracies(f"Dir({b}) {how}", outcomes)]
    claims = []
    for word, metric in READINGS.items():
        gains = {b: 100 * (mean(runs[b, "kept"], metric) - mean(runs[b, "scrambled"], metric)) for b in (0.3, 0.1)}
        claims.append(
            claim(
                f"Aligned memberships beat scrambled ones ({word} test; the paper says nothing of it).",
                min(gains.values()) > 0,
                ", ".join(f"Dir({b}): {g:+.2f} points" for b, g in gains.items()),
                partly=max(gains.values()) > 0,
            )
        )
    return made("alignment", "Stale memberships under a fresh shuffle", options, cells, claims)


def one(options: Options, beta: float = 0.3, rounds: int = ROUNDS, clusters: int = 5, **fields: Any) -> list[Outcome]:
    table = experiment(options, OURS, beta, rounds=rounds, **fields)
    return options.run({**table, "clusters": clusters}, options.count(3))


def accuracies(row: str, outcomes: list[Outcome]) -> list[Cell]:
    cells = [
        cell(row, f"final, {word}", [o.accuracy(metric=metric) for o in outcomes]) for word, metric in READINGS.items()
    ]
    return [*cells, cell(row, "eigengap", noted(outcomes, "eigengap"), unit="")]


def made(
    name: str,
    title: str,
    options: Options,
    cells: list[Cell],
    claims: list[Claim],
    notes: list[str] | None = None,
    **shown: Any,
) -> Reproduction:
    return Reproduction(
        paper=OURS,
        table=name,
        title=title,
        dataset=options.dataset,
        settings=settings(experiment(options, OURS, 0.3), **shown),
        cells=cells,
        claims=claims,
        notes=[*(notes or []), READING_NOTE, OPEN_NOTE],
    )
