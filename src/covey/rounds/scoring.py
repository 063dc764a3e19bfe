"""What is measured of a round, by who sees everything: how good each client's model is, and how well the clusters fit.

No party of the protocol learns any of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.algorithms.contract import Predictor, Setting, declaration, wanted
from covey.clustering.cohesion import wasserstein_adjusted
from covey.data.federation import Federation
from covey.engines.calls import Call
from covey.engines.evaluation import Examiner, RoundScores, accuracies, clustering_scores, measured
from covey.engines.simulate import Hosts
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.learn.machine import Machine
from covey.metrics.metric import Metric
from covey.metrics.totals import CLASSES, NUMBERS
from covey.results.models import Models, keep
from covey.rounds.record import by_age

MOST_PAIRED = 500  # clients whose labels are compared with each other's


@dataclass
class Scoring:
    """Of one run."""

    experiment: Experiment
    federation: Federation
    network: Network
    setting: Setting
    metrics: tuple[Metric, ...]
    listed: NDArray[np.int64]  # clients that records list: all, or a sample
    hosts: Hosts
    calls: Callable[[Any, int, Sequence[int] | NDArray[np.int64]], Sequence[Call]]  # of a state, a round and clients
    # Of which phase and clusters, and how well they cohere.
    _last_cohesion: tuple[tuple[int, list[int]], float] | None = None

    def is_due(self, round: int) -> bool:
        return round % self.experiment.evaluation.every == 0 or round == self.experiment.training.rounds

    def evaluate(self, state: Any, round: int) -> dict[str, Any]:
        """How good what every client that has joined would use now is; no party of the protocol learns it."""
        served = self._served(state, round)
        scores = RoundScores(self.federation.at(round + 1).clusters)
        for score in self.hosts.score(round + 1, self.calls(state, round, served)):
            scores.add(score)
        grouped, of = scores.grouped(), self.listed.tolist()
        ages = self._newcomers(state, round, scores)
        # A GPU is waited for once: by then the test is done, too, which was begun behind what is checked.
        self.hosts.check()
        accuracy = None
        if self.network.task != NUMBERS:
            # A cluster that changes keeps no model of its own.
            intended = self._intended and not self.federation.phases
            accuracy = accuracies(scores, grouped, intended, self.federation.notes.get("target"))
        last = round == self.experiment.training.rounds or self.has_reached({"accuracy": accuracy})
        if last and accuracy is not None and self.experiment.evaluation.training:
            accuracy["training"] = self._on_training_samples(state, round)
        figures = measured(self.metrics, self.network.task, of, scores, grouped, full=last)
        record = {"accuracy": accuracy} | ages | figures
        if self._sampled:
            record["evaluated"] = {"clients": len(served), "of": self.setting.clients}
            if any("clients" in figures for figures in record["metrics"].values()):
                record["listed"] = of
        return record

    def _on_training_samples(self, state: Any, round: int) -> float:
        """Mean over clients of their accuracy on the samples that they hold: how well models fit, not how good they are.

        They choose a model as they do to be tested, by what they hold in the next round.
        """
        data, rows = self.federation.dataset, self.federation.at(round + 1).clients
        machine = Machine(self.network, data.x_train, data.y_train)
        one_group, all_of_it = np.zeros(len(data.y_train), np.int64), np.ones((self.setting.clients, 1))
        each = []
        for client, use in self.hosts.predictors(round + 1, self.calls(state, round, self._served(state, round))):
            if len(rows[client]):
                alone = use.models if use.index is None else use.models[use.index : use.index + 1]
                chosen = None if use.index is None else 0
                here = Predictor(alone.cpu(), chosen, None if use.weights is None else use.weights.cpu())
                (score,) = Examiner(machine, rows[client], one_group, 1).scores([client], [here], all_of_it)
                each.append(score.own)
        return float(np.mean(each))

    def _served(self, state: Any, round: int) -> Sequence[int] | NDArray[np.int64]:
        """Of the listed clients those that have joined and that the models are for."""
        joined = self.experiment.participation.joined(round, self.setting.clients)
        return wanted(self.experiment.algorithm, state, self.listed[self.listed < joined], "serves")

    def _newcomers(self, state: Any, round: int, scores: RoundScores) -> dict[str, Any]:
        """Own accuracy of clients that joined later, by the rounds that they have trained; 0: those who come next, as they are."""
        participation = self.experiment.participation
        if not participation.join or self.network.task == NUMBERS:
            return {}
        there, soon = (participation.joined(when, self.setting.clients) for when in (round, round + 1))
        coming = self.listed[(self.listed >= there) & (self.listed < soon)]
        served = wanted(self.experiment.algorithm, state, coming, "serves")
        met = RoundScores(scores.truth)
        for score in self.hosts.score(round + 1, self.calls(state, round, served)) if len(served) else ():
            met.add(score)
        return by_age(scores.own_by_client() | met.own_by_client(), participation, round)

    def agreement(
        self, round: int, chosen: tuple[NDArray[np.int64], list[int]], clusters: list[int] | None
    ) -> dict[str, float] | None:
        """With the true clusters: of all clients' last choices or, where a sample is listed, of the round's participants."""
        truth = self.federation.at(round).clusters
        if not self._sampled or truth is None:
            return clustering_scores(clusters, truth)
        clients, of_each = chosen
        return clustering_scores(of_each, truth[clients]) if of_each else None

    def cohesion(self, round: int, clusters: list[int] | None) -> dict[str, float]:
        """FedGWC's score of the clusters by the labels that their clients hold; of no more clients than pairs are cheap."""
        if clusters is None or self.network.task != CLASSES or len(clusters) > MOST_PAIRED or not self.is_due(round):
            return {}
        now = (self.federation.phase(round), clusters)
        if self._last_cohesion is None or self._last_cohesion[0] != now:  # clusters mostly stay
            known = [place for place, cluster in enumerate(clusters) if cluster >= 0]
            counts = self.federation.at(round).histogram([int(self.listed[place]) for place in known])
            self._last_cohesion = (now, wasserstein_adjusted(counts, [clusters[place] for place in known]))
        score = self._last_cohesion[1]
        return {} if math.isnan(score) else {"cohesion": score}

    @property
    def _sampled(self) -> bool:
        """Whether records speak of a sample of the clients."""
        return len(self.listed) < self.setting.clients

    def models(self, state: Any, done: int) -> Models:
        """What every listed client that has joined predicts with."""
        uses = self.hosts.predictors(done + 1, self.calls(state, done, self._served(state, done)))
        data, of = self.federation.dataset, self.setting.clients if self._sampled else 0
        return Models(keep(uses, self.network, data.classes, data.columns, self.federation.names, of), self.network)

    @cached_property
    def _intended(self) -> bool:
        """Whether model j was begun for cluster j: pre-trained on that cluster's public samples."""
        truth, k = self.federation.clusters, self.setting.clusters
        if not declaration(self.experiment.algorithm).numbered:
            return False
        pretrained = self.experiment.start.pretrain_epochs > 0 and len(self.federation.public) == k
        return truth is not None and pretrained and int(truth.max()) + 1 == k

    def given_away(self) -> str:
        """What the models' start gave away: nobody who looks for clusters has samples that are sorted by them."""
        several = declaration(self.experiment.algorithm).trains == "clusters" and self.setting.clusters > 1
        if not self._intended or not several:
            return ""
        return (
            f"each of the {self.setting.clusters} models has seen public samples of its true cluster before the first round "
            f"(start.pretrain_epochs = {self.experiment.start.pretrain_epochs})"
        )

    def has_reached(self, record: dict[str, Any]) -> bool:
        training = self.experiment.training
        accuracy = record["accuracy"]
        return bool(training.target and accuracy and accuracy[training.target_metric] >= training.target)
