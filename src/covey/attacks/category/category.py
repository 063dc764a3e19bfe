"""Category inference: Gu et al., Adaptive Privacy Defense Against Category Inference Attack in Clustered FL, WASA 2025.

An honest-but-curious client gets all cluster models every round. It files small subsets of auxiliary data under the cluster
whose model fits them best, simulates their one-step updates, averages groups of them, and trains a multi-label model per
cluster on those. Applied to Δw_j = w_j^{t+1} − w_j^t it says which categories the cluster's clients hold in round t.

Its controls have seen nothing of the protocol: everything present, and a coin. Beside it stand attackers who read the published
models but not the update, as findings of their own: the categories in most simulated rows; the trained model asked about the
*mean* simulated row (null query); the null query of a model trained on subsets of two, because the size of subsets is the
attacker's choice and small ones tell more of how the filing went; and the filing of single samples, which needs no attack model
at all and works for any number of categories. What the update adds to the best of those is a footnote: whatever it is, what
they learn has leaked. Against defended runs also a noise-aware attacker, who adds the noise that it measures in the update (on
the coordinates that its own samples move least) to its rows; it has its own null query. The last round has no successor that a
client sees.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import roles
from covey.attacks.category.multilabel import MultiLabel, fit, fit_noisy
from covey.attacks.category.rows import Features, Rows, Simulated, draw_subsets, filed_alone, group, simulate
from covey.attacks.category.scores import Sets, by_round_and_cluster, coin, describe, in_words, leak, resamples, score
from covey.attacks.contract import Finding, Knowledge, Thinking, Truth, View, parties
from covey.attacks.declaration import GOT, Reads, lacks_public, lacks_rounds
from covey.errors import CoveyError, nearest
from covey.leaks import CATEGORY, CLIENT
from covey.leaks import Leak as LeakRow
from covey.learn.work import SampleLosses
from covey.randomness import generator, key, normals

FEATURES = ("output", "update", "bias")
MODELS = {"logistic": 0, "mlp": 64}  # hidden units
ALL_PRESENT = "all present"
PUBLISHED = (
    "label frequency",
    "null query",
    "null query, pairs",
    "single samples",
)  # they read the models, not the update
OWN_NULL = "its null query"  # of the noise-aware attacker
PER_CATEGORY = 0.6  # samples in a subset: measured on MNIST, see docs/attacks/category.md
PAIR = 2  # samples in the subsets of that control
RESAMPLES = 2000


@dataclass
class CategoryInference:
    name: ClassVar[str] = "category"
    label: ClassVar[str] = "Category inference"
    title: ClassVar[str] = "which categories does each cluster hold? from two successive broadcasts (Gu et al. 2025)"
    row: ClassVar[LeakRow] = CATEGORY
    seen_from: ClassVar[tuple[str, ...]] = (CLIENT,)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Models,), GOT),)
    means: ClassVar[str] = (
        "F1 of the categories said to be in a cluster; naming all of them scores too, so only what is above the control counts"
    )
    controls: ClassVar[tuple[str, ...]] = (ALL_PRESENT,)
    own_rows: ClassVar[bool] = False  # public samples do

    vantage: str = "client:0"
    every: int = 10  # attack rounds 10, 20, … (the attack is trained anew for each) …
    rounds: tuple[int, ...] = ()  # … or exactly these
    subsets: int = 10_000  # γ
    subset_size: int = 0  # samples in each; not stated in the paper; 0: six for every ten categories
    group_size: int = 0  # subsets averaged into a row; 0: clients per cluster, as many as a real update averages
    rows: int = 2_000  # training rows per cluster
    features: str = "output"  # of the update: output layer, sketch of all of it ("update"), output "bias"
    sketch: int = 2048  # numbers in the sketch
    model: str = "logistic"  # or "mlp"
    least: float = 0.0  # a category is present with more than this share of the cluster's samples; 0: any sample
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not any(party.startswith("client:") for party in parties(self.vantage)):
            raise CoveyError(f"attacks.vantage is '{self.vantage}': category inference needs a client, e.g. 'client:0'")
        for what in ("every", "subsets", "rows", "sketch"):
            if getattr(self, what) < 1:
                raise CoveyError(f"attacks.{what} is {getattr(self, what)}: it must be at least 1")
        if self.subset_size < 0 or self.group_size < 0 or not 0 <= self.least < 1:
            raise CoveyError(
                "attacks.subset_size and attacks.group_size must not be negative, and attacks.least lies from 0 to below 1"
            )
        for what, known in (("features", FEATURES), ("model", tuple(MODELS))):
            if getattr(self, what) not in known:
                raise CoveyError(f"unknown attacks.{what} '{getattr(self, what)}'{nearest(getattr(self, what), known)}")

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        return lacks_public(experiment) or lacks_rounds(experiment, 2)

    @classmethod
    def audited(cls, experiment: Any) -> dict[str, Any]:
        """Up to five rounds, spread, of those whose result is sent to somebody; a long run keeps the attack's own rhythm."""
        last = experiment.training.rounds - 1
        if last >= 20:
            return {}
        count = min(5, last)
        spread = {1 + round(i * (last - 1) / max(count - 1, 1)) for i in range(count)}
        return {"rounds": tuple(sorted(spread))}

    def begin(self, knowledge: Knowledge) -> None:
        """Takes the auxiliary samples: public ones, never a row of any client."""
        public = [rows for name, rows in knowledge.where.items() if not name.startswith("own:")]
        self._aux = np.concatenate(public) if public else np.zeros(0, np.int64)
        if len(self._aux) == 0:
            raise CoveyError(
                "category inference needs auxiliary samples: set partition.public, e.g. to 5 % of the training set"
            )
        self._known = knowledge
        self.memory.setdefault("inferred", {})

    def observe(self, view: View) -> Thinking:
        """Every broadcast of cluster models closes the round before it."""
        models = roles.first(view.message, roles.Models)
        if not view.receiver.startswith("client:") or models is None:
            return None
        before = self.memory.get("before")
        if before is not None and before["round"] == view.round:
            return None  # a coalition gets it once per member
        return self._turn(view.round, before, models)

    def end_round(self, round: int) -> Thinking:
        return None

    def _turn(self, round: int, before: dict[str, Any] | None, models: Tensor) -> Generator[Any, Any, None]:
        """The inference comes first and what is remembered is replaced last: an interrupted turn can be played again."""
        if before is not None and before["round"] == round - 1:
            yield from self._infer(before["round"], before["models"], models)
        attacked = round in self.rounds if self.rounds else round % self.every == 0
        self.memory["before"] = {"round": round, "models": models} if attacked else None

    def _infer(self, round: int, before: Tensor, after: Tensor) -> Generator[Any, Any, None]:
        known, y = self._known, self._known.y[self._aux]
        random = generator(known.setting.seed, round, "category inference")
        aux = torch.from_numpy(self._aux)
        losses = (yield SampleLosses(before, on=aux)).cpu().numpy()  # [k, n]
        size = self.subset_size or max(1, int(PER_CATEGORY * known.network.classes))
        subsets = draw_subsets(y, known.network.classes, self.subsets, size, random)
        pairs = draw_subsets(y, known.network.classes, self.subsets, PAIR, random)
        filed, pairs_filed = subsets.filed(losses), pairs.filed(losses)
        alone = filed_alone(losses, y, known.network.classes)
        said: dict[str, list[NDArray[np.bool_]]] = {}
        for j in range(len(before)):
            own = np.flatnonzero(filed == j)
            if len(own) == 0:  # nothing to learn from: this cluster is given up
                answers = dict.fromkeys(("attack", *PUBLISHED, "noise-aware", "noise-aware null"), self._nothing())
            else:
                simulated = yield from simulate(
                    before[j], aux, known.setting.plan.lr, self._features(), known.defence is not None
                )
                together = self.group_size or max(1, known.setting.clients // known.setting.clusters)
                rows = group(simulated, subsets, own, self.rows, together, random)
                update = after[j].to(rows.x.device) - before[j].to(rows.x.device)
                stream = key(known.setting.seed, round, j, "category model")
                answers = self._answers(rows, simulated, update, stream)
                there = np.flatnonzero(pairs_filed == j)
                small = group(simulated, pairs, there, self.rows, together, random) if len(there) else rows
                answers[PUBLISHED[2]] = _null(self._fit(small, simulated, stream), small.x)
            answers[PUBLISHED[3]] = alone[j]
            for name, answer in answers.items():
                said.setdefault(name, []).append(answer)
        self.memory["inferred"][round] = {name: np.stack(answers) for name, answers in said.items()}  # [k, classes]

    def _answers(self, rows: Rows, simulated: Simulated, update: Tensor, stream: int) -> dict[str, NDArray[np.bool_]]:
        """What the attacker and each control say of one cluster, [classes]."""
        read = self._features().of(update[None])  # [1, features]
        plain = self._fit(rows, simulated, stream)
        aware, blurred = plain, rows.x
        if self._known.defence is not None:
            blur = normals([stream + 1], rows.x.numel(), rows.x.device).view_as(rows.x)
            blurred = rows.x + simulated.noise(update) * self._features().spread(rows.x.device) * blur
            aware = fit_noisy(blurred, rows.labels, MODELS[self.model], stream)
        return {
            "attack": _says(plain.probabilities(read)),
            "label frequency": _says(rows.labels.mean(0)[None]),
            "null query": _null(plain, rows.x),
            "noise-aware": _says(aware.probabilities(read)),
            "noise-aware null": _null(aware, blurred),
        }

    def _fit(self, rows: Rows, simulated: Simulated, stream: int) -> MultiLabel:
        return fit(rows.x, rows.labels, MODELS[self.model], stream, averaged=simulated.features)

    def _features(self) -> Features:
        network = self._known.network
        head = network.output_size(f"attack '{self.name}'")
        stream = key(self._known.setting.seed, "category sketch")
        return Features(self.features, network.d, network.classes, head, self.sketch, stream)

    def _nothing(self) -> NDArray[np.bool_]:
        return np.zeros(self._known.network.classes, bool)

    def finding(self, truth: Truth) -> Finding:
        pairs, present = self._pairs(truth)
        if not pairs:
            words = "no two successive broadcasts of cluster models with clients in them: nothing was inferred"
            return Finding(self.name, self.vantage, "F1 of categories", 0.0, 0.0, 0.0, 1.0, used=words)
        inferred = self.memory["inferred"]

        def said(name: str) -> Sets:
            return np.stack([inferred[round][name][j] for round, j in pairs])

        draws = resamples(pairs, RESAMPLES, generator(self._known.setting.seed, "category resamples"))
        everything, published = np.ones_like(present), {name: said(name) for name in PUBLISHED}
        blind = {ALL_PRESENT: score(everything, present, draws).f1}

        def finding_of(attack: str, sets: Sets, used: str) -> Finding:
            reached = score(sets, present, draws)
            numbers = (reached.f1, coin(present), reached.low, reached.high)
            return Finding(attack, self.vantage, "F1 of categories", *numbers, controls=blind, used=used)

        without = {ALL_PRESENT: everything, **published}  # who does not read the update
        own, aware = score(said("attack"), present, draws), score(said("noise-aware"), present, draws)
        above = leak(said("attack"), without, present, draws)
        above_aware = leak(said("noise-aware"), without | {OWN_NULL: said("noise-aware null")}, present, draws)
        defended = self._known.defence is not None
        words = in_words(above, own.f1, (aware.f1, above_aware) if defended else None)
        public = f"{len(self._aux)} auxiliary samples"
        models = f"cluster models that every client gets and {public}"
        both = f"cluster models of successive rounds ({self.features} features of the update) and {public}"
        others = [finding_of(f"{self.name}_{_spelt(n)}", sets, f"{models}, no update") for n, sets in published.items()]
        if defended and aware.f1 != own.f1:
            used = f"{both}, and the size of the noise, measured in the update"
            others.append(finding_of(f"{self.name}_noise_aware", said("noise-aware"), used))
        scored = describe(pairs, said("attack"), present)
        details = {
            "in_words": words,
            "precision": own.precision,
            "recall": own.recall,
            "published models": {name: score(sets, present, draws).f1 for name, sets in published.items()},
            "leak": above.value,
            "leak_low": above.low,
            "leak_high": above.high,
            "best_control": above.control,
            "noise_aware": aware.f1,
            "noise_aware_leak": above_aware.value,
            "noise_aware_leak_low": above_aware.low,
            "noise_aware_leak_high": above_aware.high,
            "pairs": scored,
            "pictures": [by_round_and_cluster(scored)],
        }
        return replace(finding_of(self.name, said("attack"), both), details=details, variants=others, note=words)

    def _pairs(self, truth: Truth) -> tuple[list[tuple[int, int]], Sets]:
        """Attacked rounds and clusters with clients in them, and the categories that those hold."""
        counts = truth.federation.histogram()
        pairs, present = [], []
        for round in sorted(self.memory["inferred"]):
            clusters = {i: notes.get("cluster") for i, notes in truth.notes[round - 1].items()}
            for j in sorted({c for c in clusters.values() if c is not None}):
                held = counts[[i for i, c in clusters.items() if c == j]].sum(0)
                pairs.append((round, int(j)))
                present.append(held > self.least * held.sum())
        return pairs, np.array(present)


def _says(probabilities: Tensor) -> NDArray[np.bool_]:
    """[1, classes] -> the categories [classes] that are more likely there than not."""
    return np.asarray((probabilities[0] >= 0.5).cpu().numpy())


def _null(model: MultiLabel, x: Tensor) -> NDArray[np.bool_]:
    """What a model says when asked about the mean of its training rows."""
    return _says(model.probabilities(x.mean(0, keepdim=True)))


def _spelt(name: str) -> str:
    return name.replace(",", "").replace(" ", "_")
