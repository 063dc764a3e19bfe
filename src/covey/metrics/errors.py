"""Metrics that are less the better: the loss of a task, and errors of predicted numbers."""

from __future__ import annotations

import numpy as np

from covey.metrics.metric import Metric
from covey.metrics.totals import CLASSES, LABELS, NUMBERS

LOSS = Metric(
    name="loss",
    title="Loss on test samples: cross-entropy, or the mean squared error of numbers",
    of_totals=lambda totals: totals.loss,
    usual=(CLASSES, LABELS, NUMBERS),
    higher=False,
    share=False,
)
RMSE = Metric(
    name="rmse",
    title="Root of the mean squared error",
    of_totals=lambda totals: float(np.sqrt(totals.squared).mean()),
    tasks=(NUMBERS,),
    usual=(NUMBERS,),
    higher=False,
    share=False,
)
MAE = Metric(
    name="mae",
    title="Mean absolute error",
    of_totals=lambda totals: float(totals.absolute.mean()),
    tasks=(NUMBERS,),
    usual=(NUMBERS,),
    higher=False,
    share=False,
)
