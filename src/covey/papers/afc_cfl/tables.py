"""AFC-CFL (Gu et al., WASA 2025): Tables 1 and 2, Fig. 2, their tuning, and the comparison at equal noise and clipping.

covey reproduce afc_cfl --table table1 --dataset mnist      the attack, undefended
covey reproduce afc_cfl --table tune                        budgets for equal F1, as the paper tunes
covey reproduce afc_cfl --table table2                      defences at those budgets, baseline with a small fixed C
covey reproduce afc_cfl --table matched                     defences at equal noise and equal clipping
covey reproduce afc_cfl --table fig2                        accuracy by round, from table2's runs
covey reproduce afc_cfl --table confirm                     the attack on seeds that none of its defaults was chosen on
covey reproduce afc_cfl --table choices                     what the paper leaves open, one choice changed at a time
covey reproduce afc_cfl --table local_work                  one step or whole epochs in a round: which reaches the paper's accuracy
"""

from __future__ import annotations

from covey.papers.afc_cfl import claims
from covey.papers.afc_cfl.checks import choices, local_work, matched, tuning
from covey.papers.afc_cfl.rows import UNPRINTED, attacked, framed
from covey.papers.afc_cfl.settings import (
    DATA,
    FRESH_ROWS,
    NAMES,
    PRINTED,
    SEEDS,
    SETTINGS,
    SMALL_CLIP,
    Tuned,
    adp,
    afc,
    base,
    ldp,
    target,
    tune,
)
from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction, Table
from covey.papers.outcome import Outcome

TITLE = "AFC-CFL: adaptive privacy defence against category inference in clustered federated learning (WASA 2025)"
DATASETS = tuple(DATA)
TABLE1 = {  # dataset -> (clusters, clients) -> precision, recall, F1
    "mnist": {
        (2, 10): (0.985, 0.894, 0.937),
        (2, 15): (0.999, 0.886, 0.939),
        (2, 20): (0.992, 0.873, 0.929),
        (3, 15): (0.976, 0.867, 0.918),
        (3, 20): (0.989, 0.846, 0.912),
    },
    "cifar10": {
        (2, 10): (0.942, 0.982, 0.962),
        (2, 15): (0.984, 0.921, 0.951),
        (2, 20): (0.920, 0.964, 0.941),
        (3, 15): (0.946, 0.869, 0.906),
        (3, 20): (0.868, 0.963, 0.913),
    },
    "emnist_bymerge47": {
        (2, 10): (0.930, 0.979, 0.954),
        (2, 15): (0.965, 0.914, 0.939),
        (2, 20): (0.956, 0.957, 0.956),
        (3, 15): (0.883, 0.937, 0.909),
        (3, 20): (0.874, 0.939, 0.905),
    },
}
TABLE2 = {  # dataset -> method -> precision, recall, F1, accuracy
    "mnist": {
        "none": PRINTED["mnist"],
        "common LDP": (0.940, 0.669, 0.782, 0.708),
        "ADP": (0.923, 0.757, 0.832, 0.767),
        "AFC-CFL": (0.914, 0.669, 0.773, 0.790),
    },
    "cifar10": {
        "none": PRINTED["cifar10"],
        "common LDP": (0.814, 0.834, 0.824, 0.387),
        "ADP": (0.826, 0.895, 0.859, 0.486),
        "AFC-CFL": (0.795, 0.834, 0.814, 0.514),
    },
    "emnist_bymerge47": {
        "none": PRINTED["emnist_bymerge47"],
        "common LDP": (0.671, 0.816, 0.736, 0.548),
        "ADP": (0.678, 0.833, 0.748, 0.598),
        "AFC-CFL": (0.631, 0.821, 0.722, 0.712),
    },
}


def table1(options: Options) -> Reproduction:
    """The attack on undefended clusters: precision, recall, F1, beside controls that never read the update."""
    seeds = options.count(SEEDS)
    runs = {
        (k, n): options.run(base(options, clusters=k, clients=n), seeds)
        for k, n in (SETTINGS[:1] if options.quick else DATA[options.dataset].settings)
    }
    cells: list[Cell] = []
    for place, outcomes in runs.items():
        printed = TABLE1.get(options.dataset, {}).get(place)
        accuracy = TABLE2.get(options.dataset, {}).get("none", UNPRINTED)[3] if place == (2, 10) else None
        cells += attacked(f"P={place[0]}, N={place[1]}", outcomes, (*(printed or (None,) * 3), accuracy))
    title, run = f"Category inference on {NAMES[options.dataset]}", f"{len(runs)} of {len(SETTINGS)}"
    return framed(options, "table1", title, cells, seeds, {"settings of the paper run": run})


FRESH = 10  # the first of the seeds that nothing was chosen on


def confirm(options: Options) -> Reproduction:
    """The undefended attack on seeds that no choice was made on: the attack's defaults were explored on seeds 0 to 2."""
    seeds = options.count(5)
    known, fresh = options.run(base(options), options.count(SEEDS)), options.run(base(options), seeds, FRESH)
    printed = TABLE1.get(options.dataset, {}).get((2, 10), UNPRINTED[:3])
    accuracy = TABLE2.get(options.dataset, {}).get("none", UNPRINTED)[3]
    cells = attacked(FRESH_ROWS[0], known, (*printed, accuracy))
    cells += attacked(FRESH_ROWS[1], fresh, (*printed, accuracy))
    title = f"Category inference on fresh seeds, {NAMES[options.dataset]}"
    return framed(options, "confirm", title, cells, seeds, {"first fresh seed": FRESH})


def table2(options: Options) -> Reproduction:
    """Attack and accuracy without defence, with common LDP (small fixed C), ADP and AFC-CFL, at budgets tuned to equal F1."""
    seeds, tuned = options.count(SEEDS), tune(options, target(options.dataset))
    runs = _compared(options, tuned, seeds)
    printed = TABLE2.get(options.dataset, {})
    cells = [c for row, outcomes in runs.items() for c in attacked(row, outcomes, printed.get(row, UNPRINTED))]
    budgets = {"ε of AFC-CFL": tuned.afc, "ε of common LDP and ADP": tuned.ldp, "C of common LDP and ADP": SMALL_CLIP}
    title = f"Defences tuned to equal F1 on {NAMES[options.dataset]}"
    return framed(options, "table2", title, cells, seeds, budgets)


def _compared(options: Options, tuned: Tuned, seeds: int) -> dict[str, list[Outcome]]:
    defences = {
        "none": "none",
        "common LDP": ldp(tuned.ldp, SMALL_CLIP),
        "ADP": adp(tuned.ldp, SMALL_CLIP),  # "the same initial noise scale as common LDP"
        "AFC-CFL": afc(tuned.afc),
    }
    return {row: options.run(base(options, defence=defence), seeds) for row, defence in defences.items()}


def fig2(options: Options) -> Reproduction:
    """Accuracy by round without defence, with common LDP, ADP and AFC-CFL; shares table2's runs."""
    seeds, tuned = options.count(SEEDS), tune(options, target(options.dataset))
    runs = _compared(options, tuned, seeds)
    rounds = sorted(runs["none"][0].curve())
    cells = [cell(f"round {r}", m, [o.curve()[r] for o in outcomes]) for r in rounds for m, outcomes in runs.items()]
    budgets = {"ε of AFC-CFL": tuned.afc, "ε of common LDP and ADP": tuned.ldp, "C of common LDP and ADP": SMALL_CLIP}
    return framed(options, "fig2", f"Accuracy by round on {NAMES[options.dataset]}", cells, seeds, budgets)


TABLES = {
    "table1": Table(table1, DATASETS, claims.table1),
    "table2": Table(table2, DATASETS, claims.table2),
    "fig2": Table(fig2, DATASETS, claims.fig2),
    "tune": Table(tuning, DATASETS, claims.tune),
    "matched": Table(matched, DATASETS, claims.matched),
    "choices": Table(choices, DATASETS, claims.choices),
    "local_work": Table(local_work, DATASETS, claims.local_work),
    "confirm": Table(confirm, DATASETS, claims.confirm),
}
