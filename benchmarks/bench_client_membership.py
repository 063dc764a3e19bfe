"""Membership of whole clients, with and without noise in the sums: the table of docs/attacks/client_membership.md.

    python benchmarks/bench_client_membership.py        # about three minutes of one core

Digits, 30 samples of each client, softmax regression, 6 rounds; 12 seeds, of the sealed noised sums 6. Shares of pairs told apart,
pooled over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.experiment.experiment import Experiment
from covey.rounds.loop import run
from covey.statistics import wilson

NAME = "client_membership"
TABLE: dict[str, Any] = {
    "dataset": "digits",
    "model": "softmax",
    "algorithm": {"name": "fedavg", "weighting": "clients"},
    "clients": 20,
    "clusters": 1,
    "partition": {"name": "label_sets", "samples": 30, "public": 0},
    "training": {"rounds": 6, "epochs": 5, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
}
IFCA: dict[str, Any] = {"algorithm": "ifca", "clusters": 2, "start": {"common": False, "pretrain_epochs": 0}}
COALITION = "server+" + "+".join(f"client:{i}" for i in range(10))  # t − 1: eleven of twenty open a sum


def noised(epsilon: float) -> dict[str, Any]:
    return {"defence": {"name": "client_dp", "epsilon": epsilon, "delta": 1e-3, "clip": 0.5}}


ROWS: Sequence[tuple[str, str, int, dict[str, Any]]] = (
    ("FedAvg, 5 clients", "client:0", 12, {"clients": 5}),
    ("FedAvg, 10 clients", "client:0", 12, {"clients": 10}),
    ("FedAvg, 20 clients", "client:0", 12, {}),
    ("FedAvg, 20 clients", "server", 12, {}),
    ("FedAvg, 20 clients, secagg", "client:0", 12, {"encryption": "secagg"}),
    ("IFCA, 20 clients", "client:0", 12, IFCA),
    ("FedAvg, ε = 8", "client:0", 12, noised(8.0)),
    ("FedAvg, ε = 1", "client:0", 12, noised(1.0)),
    ("FedAvg, ε = 0.01", "client:0", 12, noised(0.01)),
    ("IFCA, ε = 1", "client:0", 12, {**IFCA, **noised(1.0)}),
    ("IFCA, threshold, ε = 1", "server", 6, {**IFCA, **noised(1.0), "encryption": "threshold"}),
    ("IFCA, threshold, ε = 1", COALITION, 6, {**IFCA, **noised(1.0), "encryption": "threshold"}),
)


def share(values: Sequence[float], pairs: Sequence[int]) -> str:
    total = sum(pairs)
    mean = sum(value * n for value, n in zip(values, pairs)) / total
    low, high = wilson(mean, total)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def row(words: str, vantage: str, seeds: int, changes: dict[str, Any]) -> str:
    attack = {"name": NAME, "vantage": vantage}
    found = [
        run(Experiment.of({**TABLE, **changes, "attacks": [attack], "seed": seed}), quiet=True).attacks[NAME]
        for seed in range(seeds)
    ]
    pairs = [one["details"]["pairs"] for one in found]
    published = [one["variants"][0] for one in found]
    shares = [share([one["value"] for one in each], pairs) for each in (found, published)]
    control = share([next(iter(one["controls"].values())) for one in found], pairs)
    allowed = found[0]["details"]["allowed by the ledger"]
    place = vantage if vantage.count("+") < 2 else f"server and {vantage.count('+')} clients"
    return f"| {words} | {place} | {' | '.join(shares)} | {control} | {'–' if allowed is None else f'{allowed:.2f}'} |"


def main() -> None:
    print("| | vantage | pairs told apart | by the last model | a sum over strangers | the ledger allows |")
    print("| --- | --- | --- | --- | --- | --- |")
    for one in ROWS:
        print(row(*one), flush=True)


if __name__ == "__main__":
    main()
