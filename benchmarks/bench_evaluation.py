"""What evaluation costs: 100 clients × 10 rounds of digits, CPU seconds of evaluation in one process, the least of five.

    python benchmarks/bench_evaluation.py

Runs on older versions too: before metrics were recorded (02bc333) it measured accuracy alone.
"""

from __future__ import annotations

from covey import Experiment, run


def seconds(algorithm: str) -> float:
    table = {"dataset": "digits", "clients": 100, "clusters": 5, "engine": {"workers": 1, "device": "cpu"}}
    training = {"rounds": 10, "epochs": 1, "batch_size": 10}
    experiment = Experiment.of(table, algorithm=algorithm, training=training)
    return min(run(experiment, quiet=True).seconds["evaluate"] for _ in range(5))


if __name__ == "__main__":
    for name in ("fedavg", "ifca", "local"):
        print(f"{name:8} {1000 * seconds(name):7.1f} ms")
