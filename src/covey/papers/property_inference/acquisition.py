"""Appendix A of the property-inference paper: which share of the cluster models colluding joiners obtain."""

from __future__ import annotations

from typing import Any

from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction

FIRST, COLLUDERS, SAMPLES = 32, 32, 20  # as many joiners as reach every leaf of a tree five deep
FINER = (16, 25)  # more rows a client: more clusters, and no rows left for more joiners than these
JOINING = 10  # rounds before they come: by then the clients have come apart
SHOWN = (1, 2, 4, 6, 8, 12, 16, 24, 32)  # numbers of colluders
PARTITIONS = 400  # of fewer than 381, an attack that always succeeds is not told from one that does in 99 of 100


def experiment(probe: str, quick: bool, colluders: int = COLLUDERS, samples: int = SAMPLES) -> dict[str, Any]:
    """Sattler's CFL on label sets; thresholds at which the sets come apart in the first rounds."""
    rounds = 18 if quick else 30
    return {
        "dataset": "digits",
        "model": "softmax",
        "partition": {"name": "label_sets", "samples": samples, "public": 0},
        "algorithm": {"name": "sattler", "eps1": 1.0, "eps2": 1.0, "gamma": 0.3},
        "clients": FIRST + colluders,
        "clusters": 10,
        "training": {"rounds": rounds, "epochs": 1, "batch_size": 5, "lr": 0.3},
        "participation": {"initial": FIRST, "join": colluders, "join_every": JOINING},
        "evaluation": {"every": rounds},
        "attacks": [{"name": "acquisition", "first": FIRST, "colluders": colluders, "probe": probe}],
    }


def _first_with_all(shares: list[float]) -> int | None:
    """The number of colluders from which on every model was obtained; None: never."""
    return next((n + 1 for n, share in enumerate(shares) if share == 1.0), None)


def appendix(options: Options) -> Reproduction:
    """Global model acquisition against Sattler's CFL: share of models obtained, by number of colluders."""
    seeds = options.count(PARTITIONS, quick=2)
    cells: list[Cell] = []
    kinds = {probe: (probe, COLLUDERS, SAMPLES) for probe in ("random", "update", "honest")}
    kinds[f"random, {FINER[1]} rows a client"] = ("random", *FINER)
    for words, (probe, colluders, samples) in kinds.items():
        table = experiment(probe, options.quick, colluders, samples)
        findings = [o.attack("acquisition") for o in options.run(table, seeds)]
        shares = [f["details"]["share by colluders"] for f in findings]
        for n in SHOWN:
            if n <= colluders:
                cells.append(cell(f"{n} colluders", words, [share[n - 1] for share in shares]))
        cells.append(cell("models sent at the end", words, [f["details"]["sent at the end"] for f in findings]))
        cells.append(cell("cluster models", words, [f["details"]["cluster models"] for f in findings], unit=""))
        needed = [count for share in shares if (count := _first_with_all(share)) is not None]
        cells.append(cell("colluders that had all", words, needed, unit=""))
    return Reproduction(
        paper="property_inference",
        table="acquisition",
        title="Share of cluster models that colluding joiners obtain (Appendix A)",
        dataset="digits",
        settings={
            "clients": FIRST,
            "colluders": COLLUDERS,
            "rows a client": SAMPLES,
            "join after round": JOINING,
            "partitions": seeds,
        },
        cells=cells,
        notes=[
            "'Colluders that had all' is a mean over the partitions in which they obtained every model.",
            "The paper describes the attack and measures nothing. A probe that lands in a leaf looks like a client at odds "
            "with its cluster, so the server may split the colluder off: the models are obtained once, and 'models sent at "
            "the end' says how many the colluders still get.",
        ],
    )
