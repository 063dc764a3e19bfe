"""Membership inference: was this sample among a client's?

`membership` reads the noisy features that PQFed's clients send: the adversary holds the exact features of a candidate and
looks how near the nearest noisy row is, by Euclidean distance (the paper) or by the likelier measure for Laplace noise,
Σ_c |x_c − n_c| / (Δ_c / ε). `loss_membership` reads any model sent in the clear: a sample that it was trained on has a lower
loss (Yeom et al. 2018). Both calibrate on samples that nobody trained on, drawn in the client's own proportions, so that
recognising a *kind* of sample does not count as recognising a sample; half of those are kept apart as a placebo.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.algorithms.features import Features, NoisyFeatures, project
from covey.attacks.contract import Finding, Knowledge, Truth, View, wilson
from covey.clustering.collaborators import laplace_noised
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.learn.machine import Machine
from covey.learn.samples import Samples
from covey.learn.work import Job, SampleLosses
from covey.randomness import generator

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


def nearest(points: Tensor, noisy: Tensor, scale: Tensor | None = None) -> Floats:
    """Distance of each point [m, c] to the nearest noisy row [n, c]: Euclidean, or L1 in units of `scale` [c]."""
    if scale is None:
        found = torch.cdist(points, noisy)
    else:
        found = torch.cdist(points / scale, noisy / scale, p=1)
    return np.asarray(found.amin(1).cpu().numpy(), np.float64)


def power(cases: Floats, controls: Floats, rate: float = 0.05) -> float:
    """Share of cases below the threshold that lets a share `rate` of such controls pass.

    The threshold is the ⌊rate (n + 1)⌋-th smallest control: a fresh control falls below it with at most that probability,
    however few there are. (The usual interpolated quantile lets too many pass among few controls.)
    """
    rank = int(rate * (len(controls) + 1))
    if rank < 1:
        raise CoveyError(
            f"{len(controls)} controls cannot calibrate a false-positive rate of {rate}: give more of them"
        )
    return float((cases < np.sort(controls)[rank - 1]).mean())


def area(cases: Floats, controls: Floats) -> float:
    """Probability that a case scores below a control, ties half: the area under the ROC curve."""
    ordered = np.sort(controls)
    below, upto = np.searchsorted(ordered, cases, "left"), np.searchsorted(ordered, cases, "right")
    return float((len(ordered) - (below + upto) / 2).mean() / len(ordered))


def simulated_power(
    features: NDArray[np.float32],
    epsilon: float,
    rng: np.random.Generator,
    rows: int = 1200,
    score: str = "euclidean",
    bounds: tuple[Floats, Floats] | None = None,
    rate: float = 0.05,
) -> float:
    """One repetition of the paper's experiment on exact features [m, c]: a reference of `rows`, noised, against as many held out.

    `bounds` is a public range of each coordinate; without it the reference's own is taken, as in the paper.
    """
    if len(features) < 2 * rows:
        raise CoveyError(f"{len(features)} features cannot give a reference and a held-out set of {rows} each")
    picked = features[rng.permutation(len(features))[: 2 * rows]]
    if bounds is not None:
        picked = np.clip(picked, *bounds).astype(np.float32)
    reference, held_out = picked[:rows], picked[rows:]
    width = reference.max(0) - reference.min(0) if bounds is None else bounds[1] - bounds[0]
    noisy = torch.from_numpy(laplace_noised(reference, epsilon, np.asarray(width, np.float64), rng))
    scale = _scale(score, torch.from_numpy(np.asarray(width, np.float32)), epsilon)
    distances = [nearest(torch.from_numpy(group), noisy, scale) for group in (reference, held_out)]
    return power(distances[0], distances[1], rate)


def _scale(score: str, width: Tensor, epsilon: float) -> Tensor | None:
    """Units of the L1 score; without noise every unit does, so the range itself."""
    if score == "euclidean":
        return None
    if score != "scaled_l1":
        raise CoveyError(f"the score is {score!r}: choose 'euclidean' or 'scaled_l1'")
    unit = width / epsilon if np.isfinite(epsilon) else width
    return unit.clamp_min(1e-12)


@dataclass
class FeatureMembership:
    """Is the nearest noisy row suspiciously near? Power at a fixed share of false positives, per client and on average."""

    name: ClassVar[str] = "membership"
    title: ClassVar[str] = "PQFed's noisy features tell whether a sample was among a client's (Euclidean)"
    score: ClassVar[str] = "euclidean"

    vantage: str = "server"
    rate: float = 0.05  # false positives
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise CoveyError(f"the rate of attack '{self.name}' is {self.rate}: a share strictly between 0 and 1")

    def begin(self, knowledge: Knowledge) -> None:
        self.network = knowledge.network
        self.seed = knowledge.setting.seed
        self.epsilon = float(getattr(knowledge.algorithm, "epsilon", np.inf))
        self.memory.setdefault("rows", {})

    def observe(self, view: View) -> None:
        sent = getattr(view.message, "features", view.message)
        if isinstance(sent, Features):
            self.memory["features"] = sent
        if isinstance(view.message, NoisyFeatures):
            self.memory["rows"][int(view.sender.removeprefix("client:"))] = view.message.rows.cpu()

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        federation, seen = truth.federation, self.memory["rows"]
        if not seen or "features" not in self.memory:
            return _nothing(self.name, self.vantage, "power", self.rate, "no noisy features were seen")
        outside = unused(federation)
        found: dict[int, tuple[float, float]] = {}
        for i, noisy in sorted(seen.items()):
            rng = generator(self.seed, i, "membership")
            others = matched(federation, federation.clients[i], outside, rng)
            if len(others) < 2 / self.rate:
                continue
            cases, aside = self._exact(federation, federation.clients[i]), self._exact(federation, others)
            width = self._width(torch.cat([cases, aside]))
            scale = _scale(self.score, width, self.epsilon)
            distances = nearest(aside, noisy, scale)
            controls, placebo = distances[::2], distances[1::2]
            found[i] = (
                power(nearest(cases, noisy, scale), controls, self.rate),
                power(placebo, controls, self.rate),
            )
        if not found:
            raise CoveyError(f"attack '{self.name}' needs samples that no client holds to calibrate on: leave some out")
        return self._summary(found, {i: len(federation.clients[i]) for i in found})

    def _exact(self, federation: Federation, rows: Rows) -> Tensor:
        samples = Samples(self.network, *samples_at(federation, rows), torch.device("cpu"))
        return project(self.memory["features"], samples.inputs(torch.arange(len(rows))))

    def _width(self, known: Tensor) -> Tensor:
        """Δ: public, or guessed from the exact features that the adversary has."""
        features: Features = self.memory["features"]
        if features.low is None or features.high is None:
            return known.amax(0) - known.amin(0)
        return features.high - features.low

    def _summary(self, found: dict[int, tuple[float, float]], sizes: dict[int, int]) -> Finding:
        values = np.array([p for p, _ in found.values()])
        mean = float(values.mean())
        if len(values) > 1:
            half = 1.959964 * float(values.std(ddof=1)) / len(values) ** 0.5
            low, high = max(0.0, mean - half), min(1.0, mean + half)
        else:
            low, high = wilson(mean, sum(sizes.values()))
        placebo = float(np.mean([p for _, p in found.values()]))
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric=f"power at {100 * self.rate:g} % false positives",
            value=mean,
            chance=self.rate,
            low=low,
            high=high,
            controls={"samples that were never there": placebo},
            used=f"noisy features of {len(found)} clients, {self.score.replace('_', ' ')} score, exact features of candidates",
            details={"per client": {str(i): p for i, (p, _) in found.items()}},
        )


@dataclass
class ScaledMembership(FeatureMembership):
    """The same with the score that fits Laplace noise, which the paper leaves out."""

    name: ClassVar[str] = "membership_l1"
    title: ClassVar[str] = "the same by the L1 score that fits Laplace noise: stronger"
    score: ClassVar[str] = "scaled_l1"


@dataclass
class LossMembership:
    """Is the model's loss on this sample suspiciously low? Area under the ROC curve, over the models last sent in the clear."""

    name: ClassVar[str] = "loss_membership"
    title: ClassVar[str] = "a model's loss tells whether a sample was trained on (Yeom et al. 2018)"

    vantage: str = "server"
    rate: float = 0.05  # false positives, of the power among the details
    cases: int = 2000  # samples per model at most
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.network = knowledge.network
        self.setting = knowledge.setting

    def observe(self, view: View) -> None:
        sent = getattr(view.message, "models", getattr(view.message, "model", None))
        if view.sender == "server" and isinstance(sent, Tensor) and sent.shape[-1] == self.network.d:
            self.memory["models"] = sent.cpu().reshape(-1, self.network.d)

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        models = self.memory.get("models")
        if models is None:
            return _nothing(self.name, self.vantage, "area under the ROC curve", 0.5, "no model was seen in the clear")
        cases, controls = self._scores(truth, models)
        early = self._scores(truth, self.setting.start.cpu().mean(0).expand_as(models))
        value = area(cases, controls)
        half = 1.959964 * _area_error(value, len(cases), len(controls))
        return Finding(
            attack=self.name,
            vantage=self.vantage,
            metric="area under the ROC curve",
            value=value,
            chance=0.5,
            low=max(0.0, value - half),
            high=min(1.0, value + half),
            controls={"the model before training": area(*early)},
            used=f"{len(models)} model{'s' * (len(models) != 1)} in the clear, and candidates with their labels",
            details={"power at fixed false positives": power(cases, controls, self.rate), "cases": len(cases)},
        )

    def _scores(self, truth: Truth, models: Tensor) -> tuple[Floats, Floats]:
        """Losses of (members, strangers) under each model, of the clients that train it; ranks within a model, to pool them."""
        federation = truth.federation
        last = truth.notes[-1] if truth.notes else {}
        outside = unused(federation)
        cases, controls = [], []
        for j, model in enumerate(models):
            users = [i for i in last if int(last[i].get("cluster", 0)) == j]
            if not users:
                continue
            rng = generator(self.setting.seed, j, "loss membership")
            members = np.unique(np.concatenate([federation.clients[i] for i in users]))
            members = members[np.sort(rng.permutation(len(members))[: self.cases])]
            strangers = matched(federation, members, outside, rng)
            if len(strangers) < 2 / self.rate:
                raise CoveyError("attack 'loss_membership' needs samples that no client holds: leave some out")
            machine = Machine(self.network, *samples_at(federation, np.concatenate([members, strangers])))
            every = torch.arange(len(members) + len(strangers))
            (losses,) = machine.compute([Job(every, 0, SampleLosses(model[None]))])
            # Models differ in their level of loss: ranks among the strangers make their scores comparable.
            ordered = np.sort(losses[0, len(members) :].cpu().double().numpy())
            ranks = np.searchsorted(ordered, losses[0].cpu().double().numpy()) / len(ordered)
            cases.append(ranks[: len(members)])
            controls.append(ranks[len(members) :])
        return np.concatenate(cases), np.concatenate(controls)


def unused(federation: Federation, least: int = 500) -> Rows:
    """Samples that no client holds and no server was given: training rows, or, if they are few, those of the test set.

    Test samples count on from the training rows.
    """
    rows = len(federation.dataset.y_train)
    taken = np.zeros(rows, bool)
    for held in (*federation.clients, *federation.public):
        taken[held] = True
    free = np.flatnonzero(~taken)
    return free if len(free) >= least else np.arange(rows, rows + len(federation.dataset.y_test))


def samples_at(federation: Federation, rows: Rows) -> tuple[NDArray[np.generic], Rows]:
    """Samples and labels of training rows and, counting on, of test samples."""
    dataset, border = federation.dataset, len(federation.dataset.y_train)
    x = np.empty((len(rows), *dataset.x_train.shape[1:]), dataset.x_train.dtype)
    y = np.empty(len(rows), np.int64)
    seen, fresh = rows < border, rows >= border
    x[seen], y[seen] = dataset.x_train[rows[seen]], dataset.y_train[rows[seen]]
    x[fresh], y[fresh] = dataset.x_test[rows[fresh] - border], dataset.y_test[rows[fresh] - border]
    return x, y


def matched(federation: Federation, rows: Rows, pool: Rows, rng: np.random.Generator) -> Rows:
    """Rows of the pool in the given rows' proportions of kinds, at most as many as given.

    Kinds are the labels, within the partition's feature clusters where it has such.
    """
    dataset = federation.dataset
    kinds = np.concatenate([dataset.y_train, dataset.y_test])
    clusters = federation.notes.get("feature_clusters")
    if isinstance(clusters, np.ndarray):
        kinds = kinds + len(dataset.classes) * np.concatenate([clusters, federation.test_groups])
    wanted = np.bincount(kinds[rows], minlength=int(kinds.max()) + 1)
    there = np.bincount(kinds[pool], minlength=len(wanted))
    asked = wanted > 0
    share = min(1.0, float((there[asked] / wanted[asked]).min()))
    if share * len(rows) < 100:  # a rare kind would leave almost nothing: take what each kind has
        counts = np.minimum(wanted, there)
    else:
        counts = np.floor(share * wanted).astype(np.int64)
    shuffled = rng.permutation(pool)
    picked = [shuffled[kinds[shuffled] == g][: counts[g]] for g in np.flatnonzero(counts)]
    return np.asarray(rng.permutation(np.concatenate(picked)) if picked else np.zeros(0), np.int64)


def _nothing(name: str, vantage: str, metric: str, chance: float, why: str) -> Finding:
    return Finding(name, vantage, metric, chance, chance, 0.0, 1.0, used=why)


def _area_error(area: float, cases: int, controls: int) -> float:
    """Standard error of an area under the ROC curve (Hanley and McNeil 1982)."""
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (cases - 1) * (q1 - area**2) + (controls - 1) * (q2 - area**2)
    return float(np.sqrt(max(spread, 0.0) / (cases * controls)))
