"""Membership inference on a single client's uploads, by whoever sees them in the clear: the server, or somebody on the line.

An upload is a model trained on one client's samples alone, so it tells more than the average that others get. Three readers,
each adding up what a client's first uploads say: by how much training lowered the candidate's loss (after Yeom et al. 2018);
LiRA (Carlini et al., Membership Inference Attacks From First Principles, S&P 2022); RMIA (Zarifzadeh et al., Low-Cost
High-Power Membership Inference Attacks, ICML 2024). The latter two train shadows (`shadows.py`) from the model that the client
got, with the plan and the defence that everybody knows; corrections of an algorithm's own (SCAFFOLD's, FedDyn's) are not
simulated. As in those papers the adversary holds candidates: some are the client's, some nobody's, and it is asked which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import Reads
from covey.attacks.membership.loss import area_error
from covey.attacks.membership.scores import Floats, area, power
from covey.attacks.membership.shadows import Reference, batches, confidence, draws
from covey.attacks.membership.strangers import matched, samples_at, unused
from covey.attacks.thinking import answered, defended
from covey.attacks.uploads import PLAIN, Upload, upload
from covey.errors import CoveyError
from covey.leaks import MEMBERSHIP, WIRE, Leak
from covey.learn.machine import Machine
from covey.learn.work import Job, Logits, SampleLosses, Train
from covey.randomness import generator, key
from covey.statistics import normal_interval

ROOM = 512e6  # bytes of uploads that an attack keeps, at most
LOW = (0.01, 0.001)  # false positives at which the power is told
RESAMPLES = 300
LEAST = 20  # samples that nobody trained on, below which nothing is calibrated
BEFORE = "the model before training"


@dataclass(frozen=True)
class Candidates:
    """Of one client: its samples, then samples that nobody trained on; and a population that is neither."""

    client: int
    members: int
    rows: Tensor  # positions in the machine's samples
    population: Tensor


class UploadReader:
    """What readers of uploads share: the first uploads of some clients, and the candidates that are asked about.

    The first, because every later one starts from a model that knows the members already: there is less to see.
    """

    name: ClassVar[str]
    row: ClassVar[Leak] = MEMBERSHIP
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = PLAIN
    own_rows: ClassVar[bool] = False
    vantage: str
    rounds: int
    clients: int
    memory: dict[str, Any]

    def begin(self, knowledge: Knowledge) -> None:
        self.known = knowledge
        self.got: dict[str, Any] = {}
        self.memory.setdefault("uploads", {})  # client -> [round, start [m, d], end [m, d]] of its first uploads

    def observe(self, view: View) -> None:
        if view.receiver.startswith("client:"):
            self.got[view.receiver] = view.message
            return
        network, kept = self.known.network, self.memory["uploads"]
        client = view.sender.removeprefix("client:")
        room = max(1, int(ROOM / (8 * network.d * self.rounds)))
        if client not in kept and len(kept) >= min(self.clients, room):
            return
        seen = upload(self.got.get(view.sender), view.message, network.d)
        if seen is not None:
            kept[client] = [*kept.get(client, []), [view.round, seen.start, seen.end]][: self.rounds]

    def end_round(self, round: int) -> None:
        self.got.clear()

    def uploads(self) -> Iterator[tuple[int, list[tuple[int, Upload]]]]:
        for client, kept in sorted(self.memory["uploads"].items(), key=lambda item: int(item[0])):
            yield int(client), [(round, Upload(start, end)) for round, start, end in kept]

    def nothing(self, metric: str, chance: float, used: str = "no plain upload that it could read") -> Finding:
        return Finding(self.name, self.vantage, metric, chance, chance, 0.0, 1.0, used=used)

    def candidates(self, truth: Truth, clients: Sequence[int]) -> tuple[Machine, list[Candidates]]:
        """A machine with every client's candidates on it, and where they are."""
        federation, outside = truth.federation, unused(truth.federation)
        public = np.concatenate([*federation.public, np.zeros(0, np.int64)]).astype(np.int64)
        parts, places, end = [public], [], len(public)
        for client in clients:
            own = federation.clients[client]
            others = matched(federation, own, outside, generator(self.known.setting.seed, client, self.name))
            if len(others) < LEAST:
                raise CoveyError(f"attack '{self.name}' needs samples that no client holds: leave some out")
            aside = 0 if len(public) >= LEAST else len(others) // 3  # a population of no candidates
            kept = len(own) + len(others) - aside
            at = torch.arange(end, end + len(own) + len(others))
            places.append(Candidates(client, len(own), at[:kept], at[kept:] if aside else torch.arange(len(public))))
            parts += [own, others]
            end += len(at)
        x, y = samples_at(federation, np.concatenate(parts))
        return Machine(self.known.network, x, y, device=self.device()), places

    def device(self) -> torch.device:
        """Where the run is computed."""
        kept = next(iter(self.memory["uploads"].values()))
        start: Tensor = kept[0][1]
        return start.device


@dataclass
class UploadMembership(UploadReader):
    """By how much did the client's training lower the loss of this sample?"""

    name: ClassVar[str] = "upload_membership"
    label: ClassVar[str] = "Membership by uploads"
    title: ClassVar[str] = "a client's upload fits its own samples better than the model it got (Yeom et al. 2018)"
    means: ClassVar[str] = (
        "0.5 tells nothing, 1 everything; of a share at a rate of false alarms, that rate tells nothing"
    )
    controls: ClassVar[tuple[str, ...]] = (BEFORE,)
    by: ClassVar[str] = "the fall of the loss"

    vantage: str = "server"
    rounds: int = 4  # uploads of a client that count, its first
    clients: int = 10  # that are looked at, at most
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.clients < 1:
            raise CoveyError(
                f"attack '{self.name}' looks at one upload of one client at least: raise rounds or clients"
            )

    def evidence(self, machine: Machine, who: Candidates, round: int, seen: Upload) -> dict[str, Floats]:
        """What one upload says of each candidate, by the attacker's variants; higher: more likely a member."""
        before, after = confidences(machine, seen.start, who.rows), confidences(machine, seen.end, who.rows)
        return {"": (after - before).mean(0)}

    def unfit(self) -> str:
        """Why it cannot score samples of this kind; "": it can."""
        return ""

    def finding(self, truth: Truth) -> Finding:
        watched = dict(self.uploads())
        if words := self.unfit():
            return self.nothing("area under the ROC curve", 0.5, f"nothing: {words}")
        if not watched:
            return self.nothing("area under the ROC curve", 0.5)
        machine, every = self.candidates(truth, list(watched))
        start = self.known.setting.one_start()[None]
        evidence: dict[str, list[Split]] = {}
        for who in every:
            rounds = [self.evidence(machine, who, round, seen) for round, seen in watched[who.client]]
            for name in rounds[0]:
                evidence.setdefault(name, []).append(
                    Split.of(np.sum([one[name] for one in rounds], axis=0), who.members)
                )
            evidence.setdefault(BEFORE, []).append(Split.of(confidences(machine, start, who.rows)[0], who.members))
        before = Split.joined(evidence.pop(BEFORE))
        used = f"{sum(map(len, watched.values()))} uploads of {len(every)} clients, {self.by}, and candidates with their labels"
        findings = [
            one for name, splits in evidence.items() for one in self._findings(name, Split.joined(splits), before, used)
        ]
        records = [{"client": w.client, **split.json()} for w, split in zip(every, evidence[""])]
        curve = Split.joined(evidence[""]).curve()
        return replace(findings[0], details={"records": records, "pictures": [curve]}, variants=findings[1:])

    def _findings(self, suffix: str, scores: Split, before: Split, used: str) -> Iterator[Finding]:
        """The area, and the power at low rates of false positives that so many strangers can tell."""
        name = f"{self.name}_{suffix}" if suffix else self.name
        value, counts = scores.area(), (len(scores.members), len(scores.strangers))
        low, high = normal_interval(value, area_error(value, *counts))
        yield Finding(
            name, self.vantage, "area under the ROC curve", value, 0.5, low, high, {BEFORE: before.area()}, used
        )
        for rate in LOW:
            if int(rate * (len(scores.strangers) + 1)) >= 1:
                metric = f"power at {100 * rate:g} % false positives"
                interval = scores.power_interval(rate, generator(self.known.setting.seed, name, metric))
                reached = {BEFORE: before.power(rate)}
                value = scores.power(rate)
                yield Finding(f"{name}_at_{100 * rate:g}%", self.vantage, metric, value, rate, *interval, reached, used)


@dataclass
class LiRA(UploadMembership):
    """Is the upload more like shadows that trained on this sample, or like those that did not?"""

    name: ClassVar[str] = "lira"
    label: ClassVar[str] = "LiRA"
    title: ClassVar[str] = "likelihood ratio of a client's upload against shadow models (Carlini et al. 2022)"
    by: ClassVar[str] = "likelihood ratios against shadow models"

    shadows: int = 32  # per upload

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shadows < 4:
            raise CoveyError(f"attack '{self.name}' has {self.shadows} shadows: with fewer than 4 nothing has a spread")

    @classmethod
    def audited(cls, experiment: Any) -> dict[str, Any]:
        """Lighter: an audit pools the clients of several seeds."""
        return {"shadows": 16, "clients": 6}

    def evidence(self, machine: Machine, who: Candidates, round: int, seen: Upload) -> dict[str, Floats]:
        reference = self.reference(machine, who, round, seen)
        return {"": reference.lira(), "offline": reference.lira(online=False)}

    def reference(self, machine: Machine, who: Candidates, round: int, seen: Upload) -> Reference:
        setting, most = self.known.setting, int((seen.end - seen.start).norm(dim=1).argmax())
        rng = generator(setting.seed, round, who.client, "shadows")
        inside = draws(who.members, len(who.rows), self.shadows, rng)
        at = torch.cat([who.rows, who.population])
        works = [Train(seen.start[most], setting.plan, on=who.rows[torch.from_numpy(mask)]) for mask in inside]
        size = batches(len(works), self.known.network.d, machine.device)
        parts: list[Floats] = []
        for first in range(0, len(works), size):
            thinking = defended(works[first : first + size], round, self.known)
            names = (setting.seed, round, who.client, "shadow", first)
            trained = answered(thinking, machine, lambda step, i, names=names: key(*names, step, i))  # type: ignore[misc]
            parts.append(confidences(machine, torch.stack(trained), at))
        shadows, own, n = np.concatenate(parts), confidences(machine, seen.end[most][None], at)[0], len(who.rows)
        return Reference(own[:n], shadows[:, :n], inside, own[n:], shadows[:, n:])


@dataclass
class RMIA(LiRA):
    """Did the upload raise this sample's likelihood more than that of other people's samples?"""

    name: ClassVar[str] = "rmia"
    label: ClassVar[str] = "RMIA"
    title: ClassVar[str] = (
        "the same by comparison with a population of samples: good with few shadows (Zarifzadeh et al. 2024)"
    )
    by: ClassVar[str] = "likelihoods relative to a population's and to shadow models'"

    def unfit(self) -> str:
        numbers = self.known.network.task == "numbers"
        return "it compares probabilities, and predicted numbers have none" if numbers else ""

    def evidence(self, machine: Machine, who: Candidates, round: int, seen: Upload) -> dict[str, Floats]:
        reference = self.reference(machine, who, round, seen)
        return {"": reference.rmia(), "offline": reference.rmia(online=False)}


@dataclass(frozen=True)
class Split:
    """Scores of members and of strangers; higher: more likely a member."""

    members: Floats
    strangers: Floats

    @classmethod
    def of(cls, scores: Floats, members: int) -> Split:
        return cls(scores[:members], scores[members:])

    @classmethod
    def joined(cls, splits: Sequence[Split]) -> Split:
        return cls(np.concatenate([s.members for s in splits]), np.concatenate([s.strangers for s in splits]))

    def area(self) -> float:
        return area(-self.members, -self.strangers)

    def power(self, rate: float) -> float:
        return power(-self.members, -self.strangers, rate)

    def power_interval(self, rate: float, rng: np.random.Generator) -> tuple[float, float]:
        """By resampling both: the threshold, too, is estimated."""
        drawn = [
            Split(rng.choice(self.members, len(self.members)), rng.choice(self.strangers, len(self.strangers)))
            for _ in range(RESAMPLES)
        ]
        low, high = np.percentile([one.power(rate) for one in drawn], [2.5, 97.5])
        return float(low), float(high)

    def json(self) -> dict[str, list[float]]:
        return {"members": np.round(self.members, 3).tolist(), "strangers": np.round(self.strangers, 3).tolist()}

    def curve(self) -> dict[str, Any]:
        """The ROC curve, for the report."""
        rates = np.unique([r for r in np.geomspace(1e-3, 1, 25) if int(r * (len(self.strangers) + 1)) >= 1])
        title = "true positives by the share of false positives"
        return {"kind": "line", "title": title, "x": rates.tolist(), "y": [self.power(min(r, 0.999)) for r in rates]}


def confidences(machine: Machine, models: Tensor, rows: Tensor) -> Floats:
    """[models, n] scaled confidences in the true labels of samples on the machine; minus the loss where nothing is classified."""
    every, models = torch.arange(len(machine.samples.y)), models.to(machine.device)
    if machine.network.task != "classes":
        (losses,) = machine.compute([Job(every, 0, SampleLosses(models, on=rows))])
        return np.asarray(-losses.cpu().double().numpy(), np.float64)
    (logits,) = machine.compute([Job(every, 0, Logits(models, on=rows))])
    labels = machine.samples.y.to(logits.device)[rows.to(logits.device)]
    return np.asarray(confidence(logits, labels).cpu().double().numpy(), np.float64)
