"""A metric of your own: the share of test samples whose class is among the two that the model finds most probable.

cd examples && covey run ifca-digits --set "evaluation.metrics=['own_metric:top_two']"
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey import Experiment, run


def top_two(outputs: NDArray[np.float32], targets: NDArray[Any], weights: NDArray[np.float64]) -> float:
    """Share of samples whose class is among the two most probable."""
    best = np.argsort(outputs, axis=1)[:, -2:]
    return float(weights @ (best == targets[:, None]).any(axis=1))


if __name__ == "__main__":
    experiment = Experiment.of(
        dataset="digits",
        algorithm="ifca",
        clients=20,
        partition={"name": "label_sets", "public": 20},
        training={"rounds": 5, "batch_size": 10, "lr": 0.1},
        evaluation={"metrics": ["f1", top_two]},
    )
    print(run(experiment).metrics["top_two"])
