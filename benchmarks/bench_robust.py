"""What liars do to FedAvg by every rule of aggregation: PYTHONPATH=tests python benchmarks/bench_robust.py

20 clients on digits, 15 rounds of two epochs; the liars train like everyone and send the opposite of what they learnt, as long
as it is or ten times as long. Accuracy in percent, mean over all clients and seeds 0 to 2.
"""

from __future__ import annotations

from typing import Any

from covey import Experiment, run
from support.liars import Liars

RULES = ("mean", "median", "trimmed:0.2", "krum:0.2", "multikrum:0.2", "clipped")
LIARS = ((0, 1.0), (4, 1.0), (4, 10.0), (9, 10.0))  # how many, and how much they exaggerate
PARTITIONS: tuple[Any, ...] = ({"name": "iid"}, {"name": "dirichlet", "beta": 0.3})


def accuracy(partition: Any, aggregation: str, liars: int, scale: float, seed: int) -> float:
    experiment = Experiment.of(
        dataset="digits",
        clients=20,
        clusters=1,
        partition=partition,
        seed=seed,
        algorithm={"name": "fedavg", "weighting": "clients", "aggregation": aggregation},
        training={"rounds": 15, "epochs": 2, "lr": 0.1},
        evaluation={"every": 15},
        engine={"workers": 1},
    )
    result = run(experiment, attacks=[Liars(liars, scale)] if liars else [], quiet=True)
    return float(result.records[-1]["accuracy"]["client_mean"])


def main() -> None:
    print("partition", "rule", *(f"{n} liars ×{scale:g}" for n, scale in LIARS), sep=" | ")
    for partition in PARTITIONS:
        for rule in RULES:
            means = [sum(accuracy(partition, rule, *lies, seed) for seed in range(3)) / 3 for lies in LIARS]
            print(partition["name"], rule, *(f"{100 * mean:.1f}" for mean in means), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
