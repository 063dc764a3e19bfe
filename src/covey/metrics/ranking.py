"""Area under the ROC curve, one class (label) against the rest, by scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.metrics.counted import mean_of_known
from covey.metrics.metric import Metric
from covey.metrics.totals import CLASSES, LABELS, Floats


def auc(outputs: NDArray[np.float32], targets: NDArray[Any], weights: Floats) -> float:
    """Mean over the classes that have samples of theirs and of others; NaN where none has."""
    from sklearn.metrics import roc_auc_score  # half a second, for those who ask for it

    columns = targets if targets.ndim == 2 else targets[:, None] == np.arange(outputs.shape[1])
    areas = [
        float(roc_auc_score(column, scores, sample_weight=weights))
        for column, scores in zip(columns.T, outputs.T)
        if 0 < column.mean() < 1
    ]
    return mean_of_known(np.array(areas))


AUC = Metric(
    name="auc",
    title="Area under the ROC curve, mean over classes, each against the rest",
    of_samples=auc,
    tasks=(CLASSES, LABELS),
    needs="sklearn",
)
