"""How good models are: test samples by group, a client's score, and the accuracies of a round.

No party of the protocol learns any of this. Test samples are cut into groups (what a client's distribution is a mixture of), every
model is tested once on each, and a client's accuracy is the mean over groups by its own distribution.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.algorithms.contract import Predictor
from covey.clustering.agreement import accuracy, adjusted_rand_index, normalised_mutual_information
from covey.learn.machine import Machine
from covey.learn.work import Job, Logits
from covey.measures import LEADS
from covey.messages import message
from covey.metrics.metric import Metric
from covey.metrics.spread import per_class, spread
from covey.metrics.totals import NUMBERS, Predictions, Totals, by_group, predictions


@message
@dataclass(frozen=True)
class Score:
    """A client's accuracy on its own distribution and on the whole test set, with the index of the model it uses.

    Of predicted numbers there is no accuracy: NaN stands there.
    """

    client: int
    own: float
    everywhere: float
    index: int  # -1: a model of its own
    fits: list[float]  # accuracy on its own distribution of every model that it could choose from
    metrics: dict[str, float] = field(default_factory=dict)  # on its own distribution; NaN: cannot be said
    totals: Tensor | None = None  # [s] float64, see `metrics.totals`; clients alike share one


KEPT = 32  # models (sets to choose from) whose test is remembered within a round


class Examiner:
    """Tests models on the samples of each group; no party of the protocol has these.

    `apart`: clients, in order, of whom the i-th is tested on group i and on nothing else.
    """

    def __init__(
        self,
        machine: Machine,
        rows: NDArray[np.int64],
        groups: NDArray[np.int64],
        count: int,
        metrics: Sequence[Metric] = (),
        apart: NDArray[np.int64] | None = None,
    ) -> None:
        self.apart = apart
        self._round = -1
        self._tested: dict[int, tuple[_Tested, Tensor]] = {}  # by the place of the models in memory, which stays theirs
        self.machine, self.metrics, self.task = machine, metrics, machine.network.task
        self.rows = torch.from_numpy(rows)
        self.labels = machine.samples.labels(self.rows.to(machine.device))
        self.groups = groups[rows]
        self.tested = np.bincount(self.groups, minlength=count).astype(np.float64)
        self._is_tested = self.tested > 0

    def scores(
        self, clients: Sequence[int], uses: Sequence[Predictor], distributions: NDArray[np.float64], round: int = -1
    ) -> list[Score]:
        """Of what each client predicts with. Models that many clients choose from are tested once a round."""
        if round != self._round or round < 0:
            self._round, self._tested = round, {}
        outputs: dict[int, Tensor] = {}
        scores = []
        for client, use in zip(clients, uses):
            at = use.models.data_ptr()  # clients hold views of one tensor
            known = self._tested.get(at) if use.index is not None else None
            tested = self._test(use, outputs) if known is None else known[0]
            if known is None and use.index is not None:
                if len(self._tested) == KEPT:
                    self._tested.clear()
                self._tested[at] = (tested, use.models)
            elif use.index is None and use.weights is None:
                outputs.clear()  # a model of the client's own: nobody else predicts with it
            groups, share = self._mixture(client, distributions)
            scores.append(self._score(client, use, tested, groups, share))
        return scores

    def _mixture(
        self, client: int, distributions: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64] | slice, NDArray[np.float64]]:
        """The groups that a client is tested on, and their shares: a million clients have a million groups, each one of them."""
        if self.apart is not None:
            return np.searchsorted(self.apart, [client]), np.ones(1)
        # Groups without test samples carry no weight: nothing is known about them.
        return slice(None), distributions[client] * self._is_tested

    def by_group(self, use: Predictor, outputs: dict[int, Tensor]) -> NDArray[np.float64]:
        """Accuracy per group, [m, groups], of each model to choose from, or [1, groups] of the mixture of all."""
        return self._test(use, outputs).accuracy

    def _test(self, use: Predictor, outputs: dict[int, Tensor]) -> _Tested:
        """Of each model to choose from, or of the mixture of all. `outputs` keeps those of models that many clients share."""
        at = use.models.data_ptr()
        if at not in outputs:
            (outputs[at],) = self.machine.compute([Job(self.rows, 0, Logits(use.models))])  # [m, n, outputs]
        raw = outputs[at]
        targets = self.labels.to(raw.device)
        if use.weights is not None:
            said = [predictions(self.task, raw, targets, use.weights.to(raw.device, raw.dtype))]
        else:
            said = [predictions(self.task, one[None], targets) for one in raw]
        totals = np.stack([by_group(one, self.groups, self.tested) for one in said])  # [m, groups, s]
        accuracy = np.full(totals.shape[:2], math.nan) if self.task == NUMBERS else totals[:, :, 1]
        return _Tested(said, totals, accuracy)

    def _score(
        self,
        client: int,
        use: Predictor,
        tested: _Tested,
        groups: NDArray[np.int64] | slice,
        share: NDArray[np.float64],
    ) -> Score:
        index = -1 if use.index is None else use.index
        at = (index, share.tobytes() if isinstance(groups, slice) else groups.tobytes())
        alike = tested.scored.get(at)  # thousands of clients may be: they differ in their numbers only
        if alike is None:
            fits = tested.accuracy[:, groups] @ share / max(share.sum(), 1e-12)  # [m]
            used = use.index or 0
            everywhere = float(tested.accuracy[used] @ self.tested / self.tested.sum())
            shares = share / max(share.sum(), 1e-12)
            metrics, totals = self._measured(tested, used, groups, shares) if self.metrics else ({}, None)
            alike = (float(fits[used]), everywhere, index, fits.tolist(), metrics, totals)
            tested.scored[at] = alike
        return Score(client, *alike)

    def _measured(
        self, tested: _Tested, used: int, groups: NDArray[np.int64] | slice, share: NDArray[np.float64]
    ) -> tuple[dict[str, float], Tensor | None]:
        """Metrics and totals of a model on a distribution: once for all clients that are alike."""
        at = (used, share.tobytes() if isinstance(groups, slice) else groups.tobytes())
        if at not in tested.known:
            totals = Totals(self.task, share @ tested.totals[used, groups])
            values = {
                m.name: m.value(totals, lambda: (tested.said[used], self._weights(groups, share))) for m in self.metrics
            }
            tested.known[at] = (values, torch.from_numpy(totals.vector))
        return tested.known[at]

    def _weights(self, groups: NDArray[np.int64] | slice, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of each sample."""
        whole = np.zeros(len(self.tested))
        whole[groups] = share
        return np.asarray((whole / np.maximum(self.tested, 1))[self.groups])


@dataclass(frozen=True)
class _Tested:
    """What is known of models to choose from, or of one mixture."""

    said: list[Predictions]
    totals: NDArray[np.float64]  # [m, groups, s]
    accuracy: NDArray[np.float64]  # [m, groups]
    known: dict[tuple[int, bytes], tuple[dict[str, float], Tensor]] = field(default_factory=dict)
    scored: dict[tuple[int, bytes], tuple[Any, ...]] = field(default_factory=dict)  # a score but for its client


# ---------------------------------------------------------------- of a round


@dataclass
class RoundScores:
    """The scores of a round as they come in. Totals are added up, so that memory grows by a few numbers per client."""

    truth: NDArray[np.int64] | None  # the true cluster of every client; None: clusters are those of equal choice
    scores: list[Score] = field(default_factory=list)
    totals: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # by cluster

    def add(self, score: Score) -> None:
        if score.totals is not None:
            cluster = self.cluster(score)
            self.totals[cluster] = self.totals.get(cluster, 0.0) + score.totals.cpu().numpy()
            score = Score(score.client, score.own, score.everywhere, score.index, score.fits, score.metrics)
        self.scores.append(score)

    def cluster(self, score: Score) -> int:
        return score.index if self.truth is None else int(self.truth[score.client])


def accuracies(round: RoundScores, intended: bool, target: Any = None) -> dict[str, Any]:
    """A round's accuracies, as a record has them.

    Args:
        intended: model j was begun for cluster j.
        target: the client that the partition is about, where it has one.
    """
    scores = round.scores
    own = np.array([s.own for s in scores])
    served = [s.client for s in scores]
    per_cluster = cluster_accuracies(scores, np.array([round.cluster(s) for s in scores]), intended)
    record = _record(
        float(own.mean()), per_cluster or [float(own.mean())], float(np.mean([s.everywhere for s in scores]))
    )
    if target in served:
        record["target"] = float(own[served.index(target)])
    # Where clusters are only those of equal choice, their unweighted mean is nobody's: one client alone would count as a cluster.
    return record if round.truth is not None else record | {LEADS: "client_mean"}


def measured(
    metrics: Sequence[Metric], task: str, listed: Sequence[int], round: RoundScores, full: bool
) -> dict[str, Any]:
    """A round's record of every metric over clients and of every class. `full`: with all clients that are `listed`."""
    clusters = {s.client: round.cluster(s) for s in round.scores}
    record: dict[str, Any] = {
        "metrics": {
            m.name: spread(m, {s.client: s.metrics[m.name] for s in round.scores}, clusters, listed, full)
            for m in metrics
        }
    }
    if round.totals:
        parts = [round.totals[c] for c in sorted(round.totals) if c >= 0]
        whole = np.sum(list(round.totals.values()), axis=0)
        record["classes"] = per_class(task, [one / len(round.scores) for one in (whole, *parts)], full)
    return record


def reported_accuracies(reported: Sequence[float]) -> dict[str, Any]:
    """Of what silos chose to report, in the same form; nothing is known of clusters or of common test samples."""
    mean = sum(reported) / len(reported)
    return _record(mean, [mean], mean)


def reported_metrics(
    metrics: Sequence[Metric], clients: int, reported: Mapping[int, Mapping[str, float]]
) -> dict[str, Any]:
    """Of what silos chose to report, client -> metric -> value, in the form of `measured`."""
    every = {m: {i: values[m.name] for i, values in reported.items() if m.name in values} for m in metrics}
    return {m.name: spread(m, values, {}, range(clients), full=True) for m, values in every.items() if values}


def _record(client_mean: float, per_cluster: list[float], everywhere: float) -> dict[str, Any]:
    return {
        "client_mean": client_mean,
        "per_cluster": per_cluster,
        "average_cluster": float(np.mean(per_cluster)),
        "global": everywhere,
    }


def cluster_accuracies(scores: Sequence[Score], groups: NDArray[np.int64], intended: bool) -> list[float]:
    """Accuracy of each cluster's model on the test distribution of that cluster, averaged over its clients.

    The model of cluster c is model c where the models were begun for their clusters (`intended`), else the one that most of
    the cluster's clients choose. Where clients predict with models of their own, it is the mean of theirs.
    """
    per_cluster = []
    for c in np.unique(groups[groups >= 0]):
        members = [s for s, g in zip(scores, groups) if g == c]
        votes = np.bincount([s.index for s in members if s.index >= 0], minlength=1)
        if min(s.index for s in members) < 0 or len({len(s.fits) for s in members}) > 1:
            per_cluster.append(float(np.mean([s.own for s in members])))
            continue
        models = len(members[0].fits)
        model = int(c) if intended and int(c) < models and models > 1 else int(votes.argmax())
        per_cluster.append(float(np.mean([s.fits[model] for s in members])))
    return per_cluster


def clustering_scores(clusters: list[int] | None, truth: NDArray[np.int64] | None) -> dict[str, float] | None:
    """Agreement of the clients' clusters with the true ones, over clients that have one."""
    if clusters is None or truth is None:
        return None
    chosen = np.array(clusters)
    known = chosen >= 0
    if not known.any():
        return None
    found, right = chosen[known], truth[known]
    scores = {"ari": adjusted_rand_index(found, right), "nmi": normalised_mutual_information(found, right)}
    with contextlib.suppress(ModuleNotFoundError):  # the matching needs scipy, which a bare GPU machine lacks
        scores["accuracy"] = accuracy(found, right)
    return scores
