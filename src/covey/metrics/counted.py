"""Metrics of classes and labels that follow from counts; the formulas are scikit-learn's, and tested against it.

A class that a client has no test samples of counts in no mean over classes, except in F1 where it was predicted.
"""

from __future__ import annotations

import math

import numpy as np

from covey.metrics.metric import Metric
from covey.metrics.totals import CLASSES, LABELS, Floats, Totals


def ratio(part: Floats, whole: Floats) -> Floats:
    """Element by element; NaN where there is nothing."""
    return np.asarray(np.divide(part, whole, out=np.full(len(whole), math.nan), where=whole > 0))


def recalls(totals: Totals) -> Floats:
    """Share of each class's (label's) samples that is recognised; NaN of one without samples."""
    return ratio(totals.hit, totals.true)


def precisions(totals: Totals) -> Floats:
    return ratio(totals.hit, totals.predicted)


def f1s(totals: Totals) -> Floats:
    """2 tp / (2 tp + fp + fn); NaN of a class that is neither there nor predicted."""
    return ratio(2 * totals.hit, totals.true + totals.predicted)


def mean_of_known(values: Floats) -> float:
    known = [v for v in values.tolist() if v == v]
    return sum(known) / len(known) if known else math.nan


def balanced(totals: Totals) -> float:
    if totals.task == LABELS:  # of each label: the mean of its two recalls, then over labels
        rejected = 1 - totals.true - totals.predicted + totals.hit
        absent = ratio(rejected, np.where(totals.true < 1 - 1e-12, 1 - totals.true, 0.0))
        pairs = np.stack([recalls(totals), absent], axis=1)
        return mean_of_known(np.array([mean_of_known(pair) for pair in pairs]))
    return mean_of_known(recalls(totals))


def macro_f1(totals: Totals) -> float:
    values = f1s(totals)
    return float(np.nan_to_num(values).mean()) if totals.task == LABELS else mean_of_known(values)


ACCURACY = Metric(
    name="accuracy",
    title="Accuracy",
    of_totals=lambda totals: totals.right,
    tasks=(CLASSES, LABELS),
    usual=(CLASSES, LABELS),
)
BALANCED = Metric(
    name="balanced_accuracy",
    title="Balanced accuracy: mean over classes of the share recognised",
    of_totals=balanced,
    tasks=(CLASSES, LABELS),
    usual=(CLASSES, LABELS),
    uneven=True,
)
F1 = Metric(
    name="f1",
    title="F1, mean over classes",
    of_totals=macro_f1,
    tasks=(CLASSES, LABELS),
    usual=(LABELS,),
)
