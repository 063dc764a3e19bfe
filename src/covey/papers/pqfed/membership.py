"""PQFed's figures 4 and 6, which train nothing: the power of membership inference on noised features."""

from __future__ import annotations

import numpy as np

from covey.attacks.membership.scores import SCORES, simulated_power
from covey.clustering.features import principal_components
from covey.data.sources.load import load
from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction
from covey.papers.pqfed.figures import RATES, Clients, Features
from covey.randomness import generator

FIG4 = {0.1: 0.075, 1.0: 0.075, 10.0: 0.2, 100.0: 1.0, 1000.0: 1.0}  # "around 0.07 to 0.08", "approximately 0.2", "1.0"


def fig4(options: Options) -> Reproduction:
    """Power of membership inference on noised features at 5 % false positives, by ε: Euclidean and two stronger scores."""
    repeats = 4 if options.quick else 50
    options.alone()
    features, public = _population(options.dataset)
    cells: list[Cell] = []
    for score, rows in (*((score, 1200) for score in SCORES), ("euclidean", 2400), ("euclidean", 12_000)):
        for epsilon in FIG4:
            options.say(f"{score}, {rows} rows, ε = {epsilon:g}")
            powers = []
            for r in range(max(1, repeats * 1200 // rows)):
                rng = generator("fig4", score, rows, str(epsilon), r)
                powers.append(simulated_power(features, epsilon, rng, rows, score, public=public))
            printed = FIG4[epsilon] if (score, rows) == ("euclidean", 1200) else None
            column = f"{score.replace('_', ' ')}, {rows:,} rows"
            cells.append(cell(f"ε = {epsilon:g}", column, powers, printed, trials=rows // 2))
    return Reproduction(
        paper="pqfed",
        table="fig4",
        title="Membership power at 5 % false positives",
        dataset=options.dataset,
        settings={"repetitions": repeats, "sensitivity": "data", "components": 50},
        cells=cells,
        notes=[
            "Rows are cut in half as in the paper, so that 1,200 rows, a client's, are 600 noisy ones and 600 controls: the fewer "
            "there are, the stronger the attack.",
            "The likelihood ratio knows the crowd from the server's 500 public samples. Where almost no noise is left that "
            "estimate is too rough, and the plain distances do better.",
            "ε is per coordinate: a record of 50 coordinates spends 50 ε by basic composition.",
        ],
    )


def fig6(options: Options) -> Reproduction:
    """The same per client: twelve clients of different dissimilarity, each attacked among samples of its own kind."""
    repeats = 2 if options.quick else 20
    options.alone()
    clients = Clients(options.dataset, 0)
    cells: list[Cell] = []
    for number, own in enumerate(clients.features):
        options.say(f"client {number}")
        for epsilon in FIG4:
            powers = []
            for r in range(repeats):
                rng = generator("fig6", number, str(epsilon), r)
                powers.append(simulated_power(own, epsilon, rng, len(own)))
            name = "target" if number == 0 else f"r = {RATES[number - 1]:.1f}"
            cells.append(cell(name, f"ε = {epsilon:g}", powers, trials=len(own) // 2))
    return Reproduction(
        paper="pqfed",
        table="fig6",
        title="Membership power at 5 % false positives, client by client",
        dataset=options.dataset,
        settings={"repetitions": repeats, "rows of a client": len(clients.features[0])},
        cells=cells,
        notes=[
            "A client's rows are cut in half, reference and held out. Rows of one kind lie closer together than their range "
            "shrinks, so that noise in proportion to the range hides them better."
        ],
    )


def _population(dataset: str) -> tuple[Features, Features]:
    """Features of (all training samples but those that the server has, the 500 that it has)."""
    data = load(dataset)
    rng = generator("population", dataset)
    order = rng.permutation(len(data.x_train))
    public = data.x_train[np.sort(order[:500])]
    project = principal_components(public, 50, rng, 1 / 255)
    return project(data.x_train[np.sort(order[500:])]), project(public)
