"""Property inference by a participating client: Kim et al., Exploring Clustered Federated Learning's Vulnerability against
Property Inference Attack, RAID 2023, which carries Melis et al. (S&P 2019) over to clusters.

Passive: in rounds spread over the run the attacker trains every cluster's model, from that model, on batches of its own rows
with and without the property, averages some, and keeps their features. What it tests are the differences of each cluster's
model between rounds. It keeps features, never models of past rounds. Active: its own training also learns the property, by a
head that it does not upload, and is scaled up by γ; see `active.py`.

The paper's Algorithm 3 prints the attacker's cluster i where its text says each cluster j: here it is j. It does not say how
large simulated groups are, how many updates are simulated, which rows the AUC covers: all are fields, or in the finding.
Ours: simulated rows come from some rounds only (`rows` bounds them), and the attacker, who knows the defence, simulates it too.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Thinking, Truth, View
from covey.attacks.declaration import GOT, RETURNED, Reads, lacks_rounds
from covey.attacks.property.groups import Groups
from covey.attacks.property.pictures import pictures
from covey.attacks.property.score import CONTROLS, OTHER, PLACEBO, PROPERTY, Evidence, judge, labels_of
from covey.attacks.property.update_features import consecutive_cosines, features_by_piece, update_features
from covey.attacks.thinking import defended
from covey.data.partitions.dealing import look_alikes
from covey.errors import CoveyError
from covey.leaks import CLIENT, Leak
from covey.leaks import PROPERTY as PROPERTY_LEAK
from covey.learn.schedule.transfer import there
from covey.learn.work import Train, Work
from covey.randomness import generator

ROWS = tuple(entry.name for entry in fields(Evidence))


@dataclass
class PropertyInference:
    """Whether a client trained on rows with a property in a round, from the cluster models that a participant gets."""

    name: ClassVar[str] = "property"
    stream: ClassVar[str] = "property"  # of its draws: a subclass of another name makes the same
    label: ClassVar[str] = "Property inference"
    title: ClassVar[str] = "did a client train on rows with a property? from the cluster models (Kim et al. 2023)"
    row: ClassVar[Leak] = PROPERTY_LEAK
    seen_from: ClassVar[tuple[str, ...]] = (CLIENT,)
    reads: ClassVar[tuple[Reads, ...]] = (
        Reads((roles.Model, roles.Models), GOT),
        Reads((roles.Model, roles.Models), RETURNED),
    )
    means: ClassVar[str] = "0.5 tells nothing, 1 everything"
    controls: ClassVar[tuple[str, ...]] = CONTROLS
    own_rows: ClassVar[bool] = True
    used: ClassVar[str] = "all cluster models of every round, and its own rows"

    vantage: str = "client:1"  # the partition's attacker
    simulated: int = 3  # it_client: updates simulated of each kind, in a round and cluster; others at least a group
    aggregates: int = 6  # it_aggr: random groups of them averaged, of each kind
    group: int = 0  # updates in a group, one of them with the property; 0: clients / clusters, what it must assume
    rows: int = 6000  # simulated groups of a size to learn from, at most: rounds to simulate in are drawn accordingly
    warm_up: int = 0  # rounds before it begins; 0: a tenth of all
    trees: int = 100
    remove_own: bool = (
        False  # score what is left without its own upload; its share of a cluster's mean is assumed: 1 / group
    )
    placebo: bool = True  # also learn a subset that means nothing, for the control
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.simulated, self.aggregates, self.rows, self.trees) < 1 or min(self.group, self.warm_up) < 0:
            raise CoveyError(
                f"{self.name} needs simulated, aggregates, rows and trees of at least 1, group and warm_up of at least 0"
            )
        if not self.vantage.removeprefix("client:").isdigit():
            raise CoveyError(
                f"the vantage of {self.name} is {self.vantage!r}: it is one client, for example 'client:1'"
            )

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        kinds = getattr(experiment.algorithm, "sends", ())
        if any(roles.carries(kind, roles.Parts) for kind in kinds):
            return "follows one model per cluster, and here a client gets models for several targets"
        if not (getattr(experiment.partition, "plants_property", False) and experiment.exposure.every):
            return "needs a property that is planted: set partition = 'property', on data with attributes, and exposure.every"
        return lacks_rounds(experiment, 3)

    @classmethod
    def audited(cls, experiment: Any) -> dict[str, Any]:
        return {"vantage": f"client:{experiment.partition.attacker}"}

    @property
    def attacker(self) -> int:
        return int(self.vantage.removeprefix("client:"))

    def begin(self, knowledge: Knowledge) -> None:
        if "property" not in knowledge.where:
            raise CoveyError(
                f"{self.name} looks from {self.vantage}, which knows no property rows: set partition = 'property' and make "
                "partition.attacker this client"
            )
        self.knowledge = knowledge
        marked = knowledge.where["property"]
        others = np.setdiff1d(knowledge.where[f"own:{self.attacker}"], marked)
        if not len(marked) or not len(others):
            raise CoveyError(f"{self.vantage} holds {len(marked)} property and {len(others)} other rows: it needs both")
        self.pools = {OTHER: others, PROPERTY: marked}
        if self.placebo:
            random = generator(knowledge.setting.seed, "placebo")
            self.pools[PLACEBO] = look_alikes(knowledge.y, marked, others, random)  # still among the others too
        # The same tensors in every round: a machine keeps what lies on its device already.
        self._on = {kind: torch.from_numpy(pool) for kind, pool in self.pools.items()}
        self.begins = self.warm_up or knowledge.setting.rounds // 10
        for name in ROWS:
            self.memory.setdefault(name, [])

    def observe(self, view: View) -> Thinking:
        if view.sender == self.vantage:
            own, cluster = (roles.first(view.message, role) for role in (roles.Model, roles.Identity))
            self.memory["own"] = (own, int(cluster or 0))
            return None
        models = cluster_models(view.message)
        if models is None:
            return None
        self._compare(view.round, models)
        self.memory["before"] = (view.round, models)
        return self._simulate(view.round, models) if self._simulates(view.round, len(models)) else None

    def end_round(self, round: int) -> None:
        pass

    def _compare(self, round: int, models: Tensor) -> None:
        """The models of this round less those of the last are the updates of the last."""
        then, before = self.memory.get("before", (0, models))
        if then != round - 1 or then <= self.begins:
            self.memory.pop("update", None)
            return
        before = before.to(models.device)
        update = models - before  # [k, d]
        own, cluster = self.memory.get("own", (None, 0))
        less = update.clone()
        if own is not None:
            less[cluster] -= (own.to(models.device) - before[cluster]) / self._group(len(models))
        features = update_features(self.knowledge.network, torch.cat([update, less])).half()
        previous = self.memory.get("update")
        unknown = torch.full((len(models),), float("nan"), device=models.device)
        cosine = unknown if previous is None else consecutive_cosines(update, previous.to(update.device))
        self._keep(
            observed=features[: len(models)],
            without_own=features[len(models) :],
            round=np.full(len(models), then),
            cluster=np.arange(len(models)),
            cosine=cosine,
        )
        self.memory["update"] = update

    def _keep(self, **arrays: Any) -> None:
        """What a GPU computed stays there until all is asked for: each round that waits for a copy lets the GPU wait, too."""
        for name, array in arrays.items():
            self.memory[name].append(array)

    def _simulates(self, round: int, clusters: int) -> bool:
        setting = self.knowledge.setting
        if round <= self.begins:
            return False
        in_all = (setting.rounds - self.begins) * clusters * self.aggregates * len(self.pools)
        return bool(generator(setting.seed, round, "simulate", self.stream).random() < self.rows / in_all)

    def _group(self, clusters: int) -> int:
        return self.group or max(1, round(self.knowledge.setting.clients / clusters))

    def _sizes(self, clusters: int) -> list[int]:
        """Of simulated groups: a whole one, and one without the attacker."""
        group = self._group(clusters)
        return [group, group - 1] if group > 1 else [group]

    def _simulate(self, round: int, models: Tensor) -> Generator[Work | list[Work], Any, None]:
        """Updates that clients of each kind would send from each cluster's own model, averaged in random groups."""
        group, k = self._group(len(models)), len(models)
        counts = {kind: max(self.simulated, group) if kind == OTHER else self.simulated for kind in self.pools}
        asked = [(j, kind) for j in range(k) for kind, count in counts.items() for _ in range(count)]
        plan, starts = self.knowledge.setting.plan, models.unbind(0)
        works: list[Work] = [Train(starts[j], plan, on=self._on[kind]) for j, kind in asked]
        trained = yield from defended(works, round, self.knowledge)
        random = generator(self.knowledge.setting.seed, round, "groups", self.stream)
        drawn = [
            Groups.drawn(kind, size, self.aggregates, counts[OTHER], counts[kind], random)
            for kind in counts
            for size in self._sizes(k)
        ]
        kept = [groups for groups in drawn if self._learns_from(groups, k)]
        ends = itertools.accumulate(counts.values())
        columns = {kind: slice(end - counts[kind], end) for kind, end in zip(counts, ends)}
        mixed = torch.from_numpy(np.concatenate([groups.weights(columns) for groups in kept]))
        weights = there(mixed, models.device).expand(k, -1, -1)  # [k, groups of all kinds and sizes, updates]

        def means(low: int, high: int) -> Tensor:
            """Of some parameters of all groups: all means of a large model at once would be many times the model."""
            updates = torch.stack([model[low:high] for model in trained]).view(k, -1, high - low)
            return torch.bmm(weights, updates.sub_(models[:, None, low:high])).flatten(0, 1)

        each = k * self.aggregates
        rows = features_by_piece(self.knowledge.network, means, len(kept) * each, models.device).half()
        rows = rows.view(k, len(kept), self.aggregates, -1).transpose(0, 1).flatten(0, 2)  # groups first, then clusters
        kinds, sizes = (np.repeat([getattr(groups, name) for groups in kept], each) for name in ("kind", "size"))
        self._keep(simulated=rows, kind=kinds, size=sizes)

    def _learns_from(self, groups: Groups, clusters: int) -> bool:
        """The placebo is learnt for the control of the score alone, so from groups of its size."""
        return groups.kind != PLACEBO or groups.size == self._sizes(clusters)[-1 if self.remove_own else 0]

    def evidence(self) -> Evidence:
        """All that was gathered so far."""
        if not self.memory["simulated"] or not self.memory["observed"]:
            raise CoveyError(
                f"{self.name} saw too few rounds to learn from: raise training.rounds or lower its warm_up"
            )
        return Evidence(**{name: _joined(self.memory[name]) for name in ROWS})

    def finding(self, truth: Truth) -> Finding:
        evidence = self.evidence()
        labels = labels_of(truth, evidence.round, evidence.cluster)
        seed = self.knowledge.setting.seed
        scores = judge(evidence, labels, seed, self.trees, self.remove_own)
        details = {
            "property": str(truth.federation.notes.get("property", "")),
            "simulated group": self._group(int(evidence.cluster.max()) + 1),
            "first round scored": int(evidence.round.min()),
            **scores.details,
            **_steadiness(evidence.cosine[labels.victim]),
            **({"pictures": pictures(evidence, labels, seed)} if truth.looked_at else {}),
        }
        return Finding(
            self.name,
            self.vantage,
            "AUC",
            scores.auc,
            0.5,
            scores.low,
            scores.high,
            scores.controls,
            self.used,
            details,
            variants=[] if scores.placebo is None else [self._odd_rounds(*scores.placebo, scores.controls)],
        )

    def _odd_rounds(self, value: float, low: float, high: float, controls: Mapping[str, float]) -> Finding:
        """The placebo as an attacker of its own: who cannot name the property may still tell when something was different."""
        shuffled = {CONTROLS[0]: controls[CONTROLS[0]]}
        used = f"{self.used}; it learnt nothing of the property, only what a round without it looks like"
        return Finding(f"{self.name}_odd_rounds", self.vantage, "AUC", value, 0.5, low, high, shuffled, used)


def cluster_models(message: Any) -> Tensor | None:
    """The models [k, d] in what a client is sent, where it is sent models."""
    many, one = (roles.first(message, role) for role in (roles.Models, roles.Model))
    return many if many is not None else None if one is None else one[None]


def _joined(parts: Sequence[Tensor | NDArray[Any]]) -> NDArray[Any]:
    """What was kept round by round, also in a checkpoint, as one array."""
    tensors = [torch.as_tensor(part) for part in parts]
    device = next((t.device for t in tensors if t.is_cuda), torch.device("cpu"))
    return np.asarray(torch.cat([t.to(device) for t in tensors]).cpu().numpy())


def _steadiness(cosine: NDArray[np.floating[Any]]) -> dict[str, float]:
    """Of the victim's cluster; nothing where a cluster had the victim in no two rounds running."""
    known = cosine[~np.isnan(cosine)]
    if not len(known):
        return {}
    return {"cosine of consecutive updates": float(known.mean()), "its deviation": float(known.std())}
