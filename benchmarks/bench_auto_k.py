"""How often each rule finds the number of clusters in first updates: 20 clients of digits, one epoch at rate .1.

    PYTHONPATH=src python benchmarks/bench_auto_k.py [--seeds 10]

A row for each partition and batch size; under iid and Dirichlet skew there are no clusters, and 1 is right.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from covey import Experiment, run

RULES = ("silhouette", "gap", "eigengap")
WHERE: dict[str, tuple[dict[str, Any], int]] = {  # -> partition, and how many clusters it has
    "label sets": ({"name": "label_sets"}, 5),
    "concept shift": ({"name": "concept_shift"}, 4),
    "turned images": ({"name": "feature_shift"}, 4),
    "unequal sizes": ({"name": "quantity_skew"}, 5),
    "iid": ({"name": "iid"}, 1),
    "Dirichlet, β = .5": ({"name": "dirichlet", "beta": 0.5}, 1),
    "Dirichlet, β = .1": ({"name": "dirichlet", "beta": 0.1}, 1),
}
BATCHES = (10, 20, 50)


def counts(partition: dict[str, Any], clusters: int, batch: int, seed: int) -> tuple[int, ...]:
    """What each rule says after the first round."""
    table: dict[str, Any] = {
        "dataset": "digits",
        "clients": 20,
        "clusters": 10,
        "algorithm": {"name": "auto_k", "under": "fedgroup"},
        "partition": partition,
        "start": {"common": False},
        "training": {"rounds": 2, "epochs": 1, "lr": 0.1, "batch_size": batch},
        "seed": seed,
    }
    known = {"true_clusters": clusters} if clusters > 1 else {}
    extra = run(Experiment.of(table | known), quiet=True).records[0]["extra"]
    return tuple(int(extra[f"counted_{rule}"]) for rule in RULES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    right: Counter[tuple[str, int]] = Counter()
    print(f"| clients' data, batch | {' | '.join(RULES)} |\n|{' --- |' * (len(RULES) + 1)}")
    for name, (partition, clusters) in WHERE.items():
        for batch in BATCHES:
            said = [counts(partition, clusters, batch, seed) for seed in range(seeds)]
            hits = [sum(one[place] == clusters for one in said) for place in range(len(RULES))]
            right.update({(rule, batch): hit for rule, hit in zip(RULES, hits) if clusters > 1})
            print(f"| {name} ({clusters}), {batch} | {' | '.join(f'{hit} of {seeds}' for hit in hits)} |", flush=True)
    for batch in BATCHES:
        shares = (f"{right[rule, batch]} of {4 * seeds}" for rule in RULES)
        print(f"| the four with clusters, {batch} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
