"""What a metric is, and which ones a run records.

A metric of your own is a function `metric(outputs, targets, weights) -> float`, named by its path (`package.module:function`):

    outputs   [n, classes] or [n, labels] probabilities, or [n, outputs] numbers
    targets   [n] classes, [n, labels] of 0 and 1, or [n, outputs] numbers
    weights   [n] above 0, sum 1: how much each test sample counts for this client

It is asked once for each client whose model or distribution differs from the others'. What it cannot say is NaN. To say that less
is better, or that it is no share, give a `Metric` in place of the function.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.errors import CoveyError
from covey.metrics import METRICS
from covey.metrics.totals import CLASSES, LABELS, NUMBERS, Floats, Predictions, Totals, of_samples
from covey.names import path_of

TASKS = (CLASSES, LABELS, NUMBERS)
OfSamples = Callable[[NDArray[np.float32], NDArray[Any], Floats], float]


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    of_totals: Callable[[Totals], float] | None = None
    of_samples: OfSamples | None = None  # where totals do not say enough
    tasks: tuple[str, ...] = TASKS
    usual: tuple[str, ...] = ()  # tasks for which it is recorded unasked
    higher: bool = True  # is better
    share: bool = True  # a number from 0 to 1, shown as a percentage
    uneven: bool = False  # says what accuracy hides where classes are uneven: then shown beside it
    needs: str = ""  # package without which it knows nothing: a bare GPU machine may lack it

    def value(self, totals: Totals, said: Callable[[], tuple[Predictions, Floats]]) -> float:
        """Of one client; `said` gives predictions and weights, and is asked only where the totals do not do."""
        if self.of_totals is not None:
            return float(self.of_totals(totals))
        if self.of_samples is None or self.lacks:
            return math.nan
        predicted, weights = said()
        counted = np.flatnonzero(weights > 0)
        targets = predicted.targets.detach().cpu().numpy()[counted]
        outputs, shares = predicted.probabilities()[counted], weights[counted] / weights.sum()
        try:
            given = self.of_samples(outputs, targets, shares)
        except CoveyError:
            raise
        except Exception as e:  # somebody's own code
            raise CoveyError(f"metric '{self.name}' failed with {type(e).__name__}: {e}") from e
        return _number(given, self.name)

    @property
    def lacks(self) -> str:
        """Why it can say nothing on this machine; empty: it can."""
        absent = self.needs and importlib.util.find_spec(self.needs) is None
        return f"{self.needs} is not installed here" if absent else ""


def measure(metric: Metric, said: Predictions, weights: Floats) -> float:
    """A metric of samples with weights."""
    shares = weights / weights.sum()
    return metric.value(of_samples(said, shares), lambda: (said, shares))


def chosen(task: str, asked: Sequence[str]) -> tuple[Metric, ...]:
    """What a run records: the usual ones of its task, then those that were asked for."""
    usual = [metric for metric in _ours() if task in metric.usual]
    metrics = {metric.name: metric for metric in usual}
    for name in asked:
        metric = resolve(name)
        if task not in metric.tasks:
            fit = ", ".join(m.name for m in _ours() if task in m.tasks)
            raise CoveyError(
                f"evaluation.metrics has '{name}', which is for {' and '.join(metric.tasks)}, and this data's targets are "
                f"{task}: choose of {fit}"
            )
        if metrics.get(metric.name, metric) != metric:
            raise CoveyError(f"evaluation.metrics has two that are called '{metric.name}': rename one of them")
        metrics[metric.name] = metric
    return tuple(metrics.values())


def facts(asked: Sequence[str], name: str) -> dict[str, Any]:
    """What a result says of a metric beside its figures, so that nothing has to be imported to show them."""
    known = {metric.name: metric for metric in (*map(resolve, asked), *_ours())}
    metric = known[name]
    return {
        "title": metric.title,
        "higher": metric.higher,
        "as_share": metric.share,
        "beside": metric.uneven,
        "asked": name in {resolve(one).name for one in asked},
    }


@functools.lru_cache(maxsize=64)
def resolve(name: str) -> Metric:
    """The metric of a name, or of the path of a function or of a `Metric`."""
    thing = METRICS.resolve(name)
    if isinstance(thing, Metric):
        if (thing.of_totals is None) == (thing.of_samples is None):
            raise CoveyError(
                f"metric '{name}' needs one of `of_samples` and `of_totals`: give the function that computes it"
            )
        return thing
    if not callable(thing) or isinstance(thing, type):
        raise CoveyError(
            f"metric '{name}' is a {type(thing).__name__}: expected a function metric(outputs, targets, weights) -> float"
        )
    called = str(getattr(thing, "__name__", path_of(type(thing))))
    title = str(thing.__doc__ or called.replace("_", " ")).strip().splitlines()[0].rstrip(".")
    return Metric(called, title, of_samples=thing, share=False)


def _ours() -> list[Metric]:
    return [resolve(entry.path) for entry in METRICS.entries if METRICS.claims(entry.name)[0] is entry]


def _number(given: Any, name: str) -> float:
    try:
        value = float(given)
    except (TypeError, ValueError) as e:
        raise CoveyError(f"metric '{name}' gave a {type(given).__name__}: expected one number") from e
    return value if math.isfinite(value) else math.nan
