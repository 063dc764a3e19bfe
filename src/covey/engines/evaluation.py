"""How good models are: test samples by group, a client's score, and the accuracies of a round.

No party of the protocol learns any of this. Test samples are cut into groups (what a client's distribution is a mixture of), every
model is tested once on each, and a client's accuracy is the mean over groups by its own distribution.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.algorithms.contract import Predictor
from covey.clustering.agreement import accuracy, adjusted_rand_index
from covey.learn.machine import Machine
from covey.learn.work import Job, Logits
from covey.messages import message


@message
@dataclass(frozen=True)
class Score:
    """A client's accuracy on its own distribution and on the whole test set, with the index of the model it uses."""

    client: int
    own: float
    everywhere: float
    index: int  # -1: a model of its own
    fits: list[float]  # accuracy on its own distribution of every model that it could choose from


class Examiner:
    """Tests models on the samples of each group; no party of the protocol has these."""

    def __init__(self, machine: Machine, rows: NDArray[np.int64], groups: NDArray[np.int64], count: int) -> None:
        self.machine = machine
        self.rows = torch.from_numpy(rows)
        self.labels = machine.samples.labels(self.rows.to(machine.device))
        self.groups = groups[rows]
        self.tested = np.bincount(self.groups, minlength=count).astype(np.float64)

    def scores(
        self, clients: Sequence[int], uses: Sequence[Predictor], distributions: NDArray[np.float64]
    ) -> list[Score]:
        """Of what each client predicts with. Models that many clients choose from are tested once."""
        known: dict[int, NDArray[np.float64]] = {}  # place of the models in memory -> accuracy by group
        outputs: dict[int, Tensor] = {}
        scores = []
        for client, use in zip(clients, uses):
            at = use.models.data_ptr()  # clients hold views of one tensor
            if use.index is None or at not in known:
                known[at] = self.by_group(use, outputs)
                if use.index is None and use.weights is None:
                    outputs.clear()  # a model of the client's own: nobody else predicts with it
            scores.append(self._score(client, use, known[at], distributions[client]))
        return scores

    def by_group(self, use: Predictor, outputs: dict[int, Tensor]) -> NDArray[np.float64]:
        """Accuracy per group, [m, groups], of each model to choose from, or [1, groups] of the mixture of all.

        `outputs` keeps those of models that many clients share.
        """
        at = use.models.data_ptr()
        if at not in outputs:
            (outputs[at],) = self.machine.compute([Job(self.rows, 0, Logits(use.models))])  # [m, n, classes]
        predicted = outputs[at]
        if use.weights is not None:
            weights = use.weights.to(predicted.device, predicted.dtype)
            predicted = torch.einsum("mnc,m->nc", predicted.softmax(2), weights)[None]
        right = (predicted.argmax(2) == self.labels.to(predicted.device)).cpu().numpy()
        correct = np.stack([np.bincount(self.groups, weights=r, minlength=len(self.tested)) for r in right])
        return np.asarray(correct / np.maximum(self.tested, 1))

    def _score(
        self, client: int, use: Predictor, by_group: NDArray[np.float64], distribution: NDArray[np.float64]
    ) -> Score:
        # Groups without test samples carry no weight: nothing is known about them.
        share = distribution * (self.tested > 0)
        fits = by_group @ share / max(share.sum(), 1e-12)  # [m]
        used = use.index or 0
        everywhere = float(by_group[used] @ self.tested / self.tested.sum())
        return Score(client, float(fits[used]), everywhere, -1 if use.index is None else use.index, fits.tolist())


# ---------------------------------------------------------------- of a round


def accuracies(
    scores: Sequence[Score], truth: NDArray[np.int64] | None, intended: bool, target: Any = None
) -> dict[str, Any]:
    """A round's accuracies, as a record has them.

    Args:
        truth: the true cluster of every client; None: clusters are those of equal choice.
        intended: model j was begun for cluster j.
        target: the client that the partition is about, where it has one.
    """
    own = np.array([s.own for s in scores])
    served = [s.client for s in scores]
    groups = truth[served] if truth is not None else np.array([s.index for s in scores])
    per_cluster = cluster_accuracies(scores, groups, intended)
    return _record(
        float(own.mean()), per_cluster or [float(own.mean())], float(np.mean([s.everywhere for s in scores]))
    ) | ({"target": float(own[served.index(target)])} if target in served else {})


def reported_accuracies(reported: Sequence[float]) -> dict[str, Any]:
    """Of what silos chose to report, in the same form; nothing is known of clusters or of common test samples."""
    mean = sum(reported) / len(reported)
    return _record(mean, [mean], mean)


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
    scores = {"ari": adjusted_rand_index(chosen[known], truth[known])}
    with contextlib.suppress(ModuleNotFoundError):  # the matching needs scipy, which a bare GPU machine lacks
        scores["accuracy"] = accuracy(chosen[known], truth[known])
    return scores
