"""How good models are: test samples by group, a client's score, and the accuracies of a round.

No party of the protocol learns any of this. Test samples are cut into groups (what a client's distribution is a mixture of), every
model is tested once on each, and a client's accuracy is the mean over groups by its own distribution.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.algorithms.contract import Predictor
from covey.clustering.agreement import accuracy, adjusted_rand_index, normalised_mutual_information
from covey.learn.kernels.graph import Recordings
from covey.learn.machine import Machine
from covey.learn.schedule.transfer import on_its_way
from covey.learn.work import Job, Logits
from covey.measures import LEADS
from covey.messages import message
from covey.metrics.metric import Metric
from covey.metrics.spread import members, per_class, spread, spread_of
from covey.metrics.totals import CLASSES, MOST_GROUPS, NUMBERS, OnDevice, Predictions, Totals, by_group, predictions
from covey.statistics import tallied


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


@dataclass(frozen=True)
class Scores:
    """Of many clients at once: few kinds of scores, which differ in their client only, and of which kind each client's is. Figures
    are looked at last: a GPU may still compute them.
    """

    clients: NDArray[np.int64]  # [n]
    kind: NDArray[np.int64]  # [n]
    models: list[int]  # the index of the model of each kind
    score: Callable[[int], Score]  # of a kind


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
        # by clients and distributions: numbers, a client of each, and the distributions, so that their id stays theirs
        self._likeness: dict[tuple[bytes, int], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = {}
        self.machine, self.metrics, self.task = machine, metrics, machine.network.task
        self.rows = torch.from_numpy(rows).to(machine.device)  # recorded tests read them there
        self.labels = machine.samples.labels(self.rows)
        self.groups = groups[rows]
        self.tested = np.bincount(self.groups, minlength=count).astype(np.float64)
        self._is_tested, self._samples = self.tested > 0, self.tested.sum()
        self._recordings = Recordings(machine.device)

    def scores(
        self, clients: Sequence[int], uses: Sequence[Predictor], distributions: NDArray[np.float64], round: int = -1
    ) -> list[Score]:
        """Of what each client predicts with. Models that many clients choose from are tested once a round."""
        if round != self._round or round < 0:
            self._round, self._tested = round, {}
        outputs: dict[int, Tensor] = {}
        scores = []
        for client, use in zip(clients, uses):
            if use.index is None:
                tested = self._test(use, outputs)
                if use.weights is None:
                    outputs.clear()  # a model of the client's own: nobody else predicts with it
            else:
                tested = self._tested_once(use, outputs)
            groups, share = self._mixture(client, distributions)
            scores.append(self._score(client, use, tested, groups, share))
        return scores

    def scores_as_one(
        self, clients: NDArray[np.int64], use: Predictor, distributions: NDArray[np.float64], round: int
    ) -> Scores | None:
        """The same of clients that choose from the same models, `use.index` one for all or [n]; None: they are too different."""
        if use.index is None or self.apart is not None:
            return None
        if round != self._round:
            self._round, self._tested = round, {}
        tested = self._tested_once(use, {})  # begun: nobody waits for it yet
        alike, examples = self._alike(clients, distributions)
        index = np.broadcast_to(np.asarray(use.index, np.int64), len(clients))
        each = index * len(examples) + alike
        found = tallied(each)[0]
        kind = np.searchsorted(found, each) if len(found) > 1 else np.zeros(len(each), np.int64)
        models, of = (part.tolist() for part in np.divmod(found, len(examples)))
        kinds = [(int(examples[example]), replace(use, index=model)) for model, example in zip(models, of)]
        mixtures = [self._mixture(client, distributions) for client, _ in kinds]
        return Scores(clients, kind, models, lambda k: self._score(*kinds[k], tested, *mixtures[k]))

    def _alike(
        self, clients: NDArray[np.int64], distributions: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which clients have the same distribution: a number for each of these clients, and a client of each number."""
        at = (clients.tobytes(), id(distributions))
        known = self._likeness.get(at)
        if known is None:
            _, first, number = np.unique(distributions[clients], axis=0, return_index=True, return_inverse=True)
            if len(self._likeness) >= KEPT:
                self._likeness.clear()
            known = self._likeness[at] = (number.reshape(-1), clients[first], distributions)
        return known[0], known[1]

    def _tested_once(self, use: Predictor, outputs: dict[int, Tensor]) -> _Tested:
        """What many clients choose from is tested once a round."""
        at = use.models.data_ptr()  # clients hold views of one tensor
        if at not in self._tested:
            if len(self._tested) == KEPT:
                self._tested.clear()
            self._tested[at] = (self._test(use, outputs), use.models)
        return self._tested[at][0]

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
        if use.weights is None and self._on_device is not None:
            return self._test_on_device(use.models)
        at = use.models.data_ptr()
        if at not in outputs:
            outputs[at] = self._outputs(use.models)
        raw = outputs[at]
        targets = self.labels.to(raw.device)
        if use.weights is not None:
            mixture = predictions(self.task, raw, targets, use.weights.to(raw.device, raw.dtype))
            said, totals = (lambda _: mixture), by_group(mixture, self.groups, self.tested)[None]
        else:
            each = [predictions(self.task, one[None], targets) for one in raw]
            said, totals = each.__getitem__, np.stack([by_group(one, self.groups, self.tested) for one in each])
        return _Tested(self.task, said, lambda: totals)

    def _outputs(self, models: Tensor) -> Tensor:
        """[m, n, outputs] on the samples."""
        (raw,) = self.machine.compute([Job(self.rows, 0, Logits(models))])
        return raw

    def _test_on_device(self, models: Tensor) -> _Tested:
        """Of models to choose from: one table comes back; outputs are computed again where a metric asks for them."""
        added = self._on_device
        assert added is not None

        def sums(given: Tensor) -> tuple[Tensor, ...]:
            return (added.sums(self._outputs(given)),)

        records = self.machine.records(len(self.rows), len(models))
        (found,) = self._recordings(("testing models", models.shape), (models,), sums) if records else sums(models)
        fetched = on_its_way(found)
        return _Tested(
            self.task,
            lambda m: predictions(self.task, self._outputs(models[m][None]), self.labels),
            lambda: added.table(fetched()),
        )

    @cached_property
    def _on_device(self) -> OnDevice | None:
        """On a GPU copies of all outputs would take longer than the models."""
        if self.labels.device.type == "cpu" or self.task != CLASSES or len(self.tested) > MOST_GROUPS:
            return None
        return OnDevice(self.labels, self.groups, self.tested, self.machine.network.classes)

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
            whole = max(share.sum(), 1e-12)
            fits = tested.accuracy[:, groups] @ share / whole  # [m]
            used = use.index or 0
            everywhere = float(tested.accuracy[used] @ self.tested / self._samples)
            metrics, totals = self._measured(tested, used, groups, share / whole) if self.metrics else ({}, None)
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
                m.name: m.value(totals, lambda: (tested.said(used), self._weights(groups, share))) for m in self.metrics
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

    task: str
    said: Callable[[int], Predictions]  # what each of them says of the samples
    table: Callable[[], NDArray[np.float64]]  # the totals; a device may have to be waited for
    known: dict[tuple[int, bytes], tuple[dict[str, float], Tensor]] = field(default_factory=dict)
    scored: dict[tuple[int, bytes], tuple[Any, ...]] = field(default_factory=dict)  # a score but for its client

    @cached_property
    def totals(self) -> NDArray[np.float64]:
        """[m, groups, s]"""
        return self.table()

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """[m, groups]"""
        return np.full(self.totals.shape[:2], math.nan) if self.task == NUMBERS else self.totals[:, :, 1]


# ---------------------------------------------------------------- of a round


class RoundScores:
    """The scores of a round as they come in. Totals are added up, so that memory grows by a few numbers per client."""

    def __init__(self, truth: NDArray[np.int64] | None) -> None:
        self.truth = truth  # the true cluster of every client; None: clusters are those of equal choice
        self._totals: dict[int, NDArray[np.float64]] = {}  # by cluster
        self._kinds: list[Score] = []
        self._models: list[int] = []  # of each kind, also of those that wait
        self._waiting: list[tuple[Scores, Pairs]] = []  # whose figures nobody has looked at
        self._alone: tuple[list[int], list[int]] = ([], [])  # clients that came one by one, and of which kind each is
        self._parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]  # the same, of those before them

    def add(self, scores: Score | Scores) -> None:
        if isinstance(scores, Scores):
            self._parts = [self._as_arrays(), (scores.clients, scores.kind + len(self._models))]
            clusters = self._clusters_of(scores.clients, np.array(scores.models)[scores.kind])
            self._waiting.append((scores, Pairs.of(clusters, scores.kind, len(scores.models))))
            self._models += scores.models
            return
        kinds = self.kinds
        if scores.totals is not None:
            cluster = scores.index if self.truth is None else int(self.truth[scores.client])
            self._totals[cluster] = self._totals.get(cluster, 0.0) + scores.totals.cpu().numpy()
            scores = Score(scores.client, scores.own, scores.everywhere, scores.index, scores.fits, scores.metrics)
        self._alone[0].append(scores.client)
        self._alone[1].append(len(kinds))
        kinds.append(scores)
        self._models.append(scores.index)

    @property
    def kinds(self) -> list[Score]:
        """Scores that differ."""
        self._look()
        return self._kinds

    @property
    def totals(self) -> dict[int, NDArray[np.float64]]:
        """By cluster."""
        self._look()
        return self._totals

    def _look(self) -> None:
        """At figures, which may have to be waited for."""
        waiting, self._waiting = self._waiting, []
        for scores, pairs in waiting:
            own = [scores.score(k) for k in range(len(scores.models))]
            self._kinds += own
            for cluster, kind, count in zip(*(part.tolist() for part in (pairs.clusters, pairs.kinds, pairs.counts))):
                totals = own[kind].totals
                if totals is not None:
                    self._totals[cluster] = self._totals.get(cluster, 0.0) + totals.cpu().numpy() * count

    @property
    def clients(self) -> NDArray[np.int64]:
        return self._as_arrays()[0]

    @property
    def clusters(self) -> NDArray[np.int64]:
        """Of each client."""
        return self._clusters_of(self.clients, self.column(self._models))

    @property
    def own(self) -> NDArray[np.float64]:
        """Accuracy of each client on its own distribution."""
        return self.column([s.own for s in self.kinds])

    @property
    def everywhere(self) -> NDArray[np.float64]:
        return self.column([s.everywhere for s in self.kinds])

    def own_by_client(self) -> dict[int, float]:
        return dict(zip(self.clients.tolist(), self.own.tolist()))

    def metric(self, name: str) -> NDArray[np.float64]:
        return self.column([s.metrics[name] for s in self.kinds])

    def column(self, of_kinds: list[Any]) -> NDArray[Any]:
        """[n] from a value for each kind."""
        return np.array(of_kinds)[self._as_arrays()[1]] if of_kinds else np.zeros(0)

    def _as_arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Clients and their kinds, as of now; they stay joined."""
        if self._alone[0]:
            self._parts.append((np.array(self._alone[0], np.int64), np.array(self._alone[1], np.int64)))
            self._alone = ([], [])
        self._parts = [part for part in self._parts if len(part[0])] or self._parts[:1]
        if len(self._parts) > 1:
            clients, kinds = zip(*self._parts)
            self._parts = [(np.concatenate(clients), np.concatenate(kinds))]
        return self._parts[0]

    def grouped(self) -> Grouped:
        """Of all that have come."""
        clients, kinds = self._as_arrays()
        clusters = self.clusters
        return Grouped(clients.tolist(), members(clusters), Pairs.of(clusters, kinds, len(self._models)))

    def _clusters_of(self, clients: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int64]:
        return index if self.truth is None else self.truth[clients]


@dataclass(frozen=True)
class Pairs:
    """Which kinds of scores the clients of which clusters have, and how many of them."""

    clusters: NDArray[np.int64]
    kinds: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, clusters: NDArray[np.int64], kinds: NDArray[np.int64], count: int) -> Pairs:
        low = int(clusters.min(initial=0))  # -1: a model of its own
        found, counts = tallied((clusters - low) * count + kinds)
        return cls(found // max(count, 1) + low, found % max(count, 1), counts)


@dataclass(frozen=True)
class Grouped:
    """What of a round's scores does not hang on figures: found while a GPU still computes those."""

    clients: list[int]
    members: list[NDArray[np.int64] | slice]  # of each cluster: their places
    pairs: Pairs


def accuracies(round: RoundScores, grouped: Grouped, intended: bool, target: Any = None) -> dict[str, Any]:
    """A round's accuracies, as a record has them.

    Args:
        intended: model j was begun for cluster j.
        target: the client that the partition is about, where it has one.
    """
    own, pairs = round.own, grouped.pairs
    mean = float(own.mean())
    scores = [round.kinds[kind] for kind in pairs.kinds.tolist()]
    per_cluster = cluster_accuracies(scores, pairs.clusters, intended, pairs.counts)
    record = _record(mean, per_cluster or [mean], float(round.everywhere.mean()))
    if isinstance(target, int) and len(at := np.flatnonzero(round.clients == target)):
        record["target"] = float(own[at[0]])
    # Where clusters are only those of equal choice, their unweighted mean is nobody's: one client alone would count as a cluster.
    return record if round.truth is not None else record | {LEADS: "client_mean"}


def measured(
    metrics: Sequence[Metric], task: str, listed: Sequence[int], round: RoundScores, grouped: Grouped, full: bool
) -> dict[str, Any]:
    """A round's record of every metric over clients and of every class. `full`: with all clients that are `listed`."""
    clients, of = grouped.clients, grouped.members
    record: dict[str, Any] = {
        "metrics": {m.name: spread_of(m, clients, round.metric(m.name), of, listed, full) for m in metrics}
    }
    if round.totals:
        parts = [round.totals[c] for c in sorted(round.totals) if c >= 0]
        every = list(round.totals.values())
        whole = np.sum(every, axis=0) if len(every) > 1 else every[0]
        record["classes"] = per_class(task, [one / len(clients) for one in (whole, *parts)], full)
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
        "average_cluster": float(np.mean(per_cluster)) if len(per_cluster) > 1 else per_cluster[0],
        "global": everywhere,
    }


def cluster_accuracies(
    scores: Sequence[Score], groups: NDArray[np.int64], intended: bool, counts: NDArray[np.int64] | None = None
) -> list[float]:
    """Accuracy of each cluster's model on the test distribution of that cluster, averaged over its clients.

    The model of cluster c is model c where the models were begun for their clusters (`intended`), else the one that most of
    the cluster's clients choose. Where clients predict with models of their own, it is the mean of theirs. `counts`: of how many
    clients each score is; None: of one.
    """
    counts = np.ones(len(scores), np.int64) if counts is None else counts
    if len(scores) == 1 and groups[0] >= 0:  # clients of one model and one distribution: there are no votes to count
        return [_of_one_kind(scores[0], int(groups[0]), intended, int(counts[0]))]
    per_cluster = []
    for c in tallied(groups[groups >= 0])[0]:
        places = np.flatnonzero(groups == c)
        members, many = [scores[place] for place in places.tolist()], counts[places]
        index = np.array([s.index for s in members])
        if index.min() < 0 or len({len(s.fits) for s in members}) > 1:
            per_cluster.append(_mean([s.own for s in members], many))
            continue
        models, votes = len(members[0].fits), np.bincount(index, many)
        model = int(c) if intended and int(c) < models and models > 1 else int(votes.argmax())
        per_cluster.append(_mean([s.fits[model] for s in members], many))
    return per_cluster


def _of_one_kind(score: Score, cluster: int, intended: bool, count: int) -> float:
    """`_mean` of so many clients with this score, to the bit."""
    if score.index < 0:
        return score.own * count / count
    models = len(score.fits)
    return score.fits[cluster if intended and cluster < models and models > 1 else score.index] * count / count


def _mean(values: list[float], counts: NDArray[np.int64]) -> float:
    """numpy's weighted average, to the bit, in a third of its time."""
    return float((np.array(values) * counts).sum() / counts.sum())


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
