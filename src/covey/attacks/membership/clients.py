"""Membership of whole clients: of two data sets, one a client's that took part, the other nobody's, which went into the models?

The adversary holds both candidates, of the same size and the same kinds of samples, and sees the models that clients are sent:
as a participating client, as the server, or as both together. From round to round a model moves by the (noised) mean of what
clients added. The guess is the candidate whose own update goes further along with that move, summed over rounds; under Gaussian
noise a likelihood ratio looks at the same. What anybody would add is taken off both first: the directions of updates on samples
that nobody trained on (the other pairs' strangers), and those of the adversary's own clients. The variant sees the last model
alone, as somebody does to whom it is published, and guesses the candidate with the lower loss.

A guess between a client and one in its place is what differential privacy for a *replaced* client bounds, so where the ledger has
such a statement, the most that it allows stands beside the score.

Limits: candidates are exchangeable as far as labels (and feature clusters) say. Clients with a style of their own, as people who
write by hand, differ from any mix of strangers: the controls are there for that. Updates are gradients, not simulated trainings.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import roles
from covey.attacks.contract import Finding, Knowledge, Truth, View, parties, received
from covey.attacks.declaration import GOT, Reads
from covey.attacks.membership.received import models_in
from covey.attacks.membership.scores import Floats
from covey.attacks.membership.strangers import Rows, dealt, matched, samples_at, unused
from covey.errors import CoveyError
from covey.leaks import CLIENT, CLIENTS, COALITION, SERVER, Leak
from covey.learn.machine import Machine
from covey.learn.work import Gradient, Job, Losses
from covey.ledger.clients import told_apart
from covey.randomness import generator
from covey.statistics import wilson

STRANGERS = "a sum over strangers"
BEFORE = "the model before training"
LEAST = 5  # samples of a candidate
DELTAS = (
    None,
    0.03,
    0.1,
    0.3,
    0.5,
    0.7,
    0.9,
    0.97,
    0.99,
)  # at which the ledger is asked: the least of the bounds holds
METRIC = "pairs told apart"


@dataclass
class ClientMembership:
    """Which of two clients took part? Share of pairs in which the one that did is named."""

    name: ClassVar[str] = "client_membership"
    label: ClassVar[str] = "Membership of clients"
    title: ClassVar[str] = "of two clients' data, which went into the models: the one whose own update points their way"
    row: ClassVar[Leak] = CLIENTS
    seen_from: ClassVar[tuple[str, ...]] = (CLIENT, COALITION, SERVER)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Model, roles.Models), GOT, sealed=True),)
    means: ClassVar[str] = (
        "share of pairs, a client and one of the same kind that was not there, told apart; 0.5 tells nothing, 1 all"
    )
    controls: ClassVar[tuple[str, ...]] = (STRANGERS, BEFORE)
    own_rows: ClassVar[bool] = False

    vantage: str = "client:0"
    rounds: int = 10  # moves of the models that count, the first
    clients: int = 40  # that are asked about, at most
    cases: int = 500  # samples of a candidate, at most
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.clients < 2 or self.cases < LEAST:
            raise CoveyError(
                f"attack '{self.name}' has rounds {self.rounds}, clients {self.clients}, cases {self.cases}: it needs at least 1 "
                f"round, 2 clients and {LEAST} cases"
            )

    def begin(self, knowledge: Knowledge) -> None:
        self.known = knowledge
        self.shown: list[Tensor] = []  # of this round
        self.memory.setdefault("models", [])  # [m, d] of the first rounds in which some were seen

    def observe(self, view: View) -> None:
        if received(view, self.known.algorithm):
            fresh = models_in(view, self.known, self.memory)
            self.shown += [model for model in fresh if not any(model is other for other in self.shown)]

    def end_round(self, round: int) -> None:
        if not self.shown:
            return
        rows = torch.cat([model.detach().reshape(-1, self.known.network.d) for model in self.shown])
        self.shown.clear()
        self.memory["device"] = str(rows.device)
        self.memory["last"] = rows.cpu()
        if len(self.memory["models"]) <= self.rounds:
            self.memory["models"].append(self.memory["last"])
            self.memory.setdefault("rounds", []).append(round)

    def finding(self, truth: Truth) -> Finding:
        count = len(list(self._moves()))
        if not count:
            return self._nothing("no model was seen to move")
        asked = self._asked(truth)
        if len(asked) < 2:
            return self._nothing("fewer than two other clients took part")
        members, strangers = _pairs(truth, asked, self.cases, generator(self.known.setting.seed, self.name))
        x, y = samples_at(truth.federation, np.concatenate([*members, *strangers]))
        ends = np.cumsum([len(rows) for rows in (*members, *strangers)])
        places = [torch.as_tensor(at) for at in np.split(np.arange(len(y)), ends[:-1])]  # members, then their strangers
        machine = Machine(self.known.network, x, y, device=self.memory["device"])
        own = self._own_machine()
        seen, sham = (np.zeros(len(places)) for _ in range(2))
        for start, moves in self._moves():
            candidates = _updates(machine, places, start)
            known = _updates(*own, start) if own else []
            seen += _along(candidates, known, moves)
            sham += _along_strangers(candidates)
        bound = _allowed(truth)
        note = (
            "" if bound is None else f"The run's ledger allows {bound:.3f} at most, for a client replaced by another."
        )
        used = (
            f"{count} moves of the models that clients are sent, and two candidates for each of {len(members)} clients"
        )
        details = {
            "allowed by the ledger": bound,
            "pairs": len(members),
            "samples of a candidate": float(np.mean([len(rows) for rows in members])),
        }
        published = self._scored(
            f"{self.name}_published",
            -_losses(machine, places, self.memory["last"]),
            {BEFORE: _share(_right(-_losses(machine, places, self.memory["models"][0])))},
            "the last model that was sent, and the same candidates",
            details,
            note,
        )
        controls = {STRANGERS: _share(_right(sham))}
        return self._scored(self.name, seen, controls, used, details, note, [published])

    def _scored(
        self,
        name: str,
        scores: Floats,
        controls: dict[str, float],
        used: str,
        details: dict[str, Any],
        note: str,
        variants: Sequence[Finding] = (),
    ) -> Finding:
        right = _right(scores)
        numbers = (_share(right), 0.5, *wilson(_share(right), len(right)), controls)
        return Finding(name, self.vantage, METRIC, *numbers, used, details, variants=list(variants), note=note)

    def _nothing(self, used: str) -> Finding:
        return Finding(self.name, self.vantage, METRIC, 0.5, 0.5, 0.0, 1.0, used=used)

    def _moves(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(models [m, d], how each moved by the next round). Where their number changed, the nearest is what became of one."""
        models: list[Tensor] = self.memory["models"]
        for start, after in itertools.pairwise(models):
            end = after if len(after) == len(start) else after[torch.cdist(start, after).argmin(1)]
            if bool((end != start).any()):
                yield start, end - start

    def _asked(self, truth: Truth) -> list[int]:
        """Clients that took part in what it saw, but for its own."""
        own = {int(p.removeprefix("client:")) for p in parties(self.vantage) if p.startswith("client:")}
        first, *_, after = self.memory["rounds"]
        there = {i for facts in truth.notes[first - 1 : after - 1] for i in facts} - own
        chosen = generator(self.known.setting.seed, self.name, "asked").permutation(sorted(there))
        return sorted(chosen[: self.clients].tolist())

    def _own_machine(self) -> tuple[Machine, list[Tensor]] | None:
        where = [
            torch.as_tensor(rows) for name, rows in self.known.where.items() if name.startswith("own:") and len(rows)
        ]
        if not where:
            return None
        return Machine(self.known.network, self.known.x, self.known.y, device=self.memory["device"]), where


def _pairs(truth: Truth, asked: list[int], cases: int, rng: np.random.Generator) -> tuple[list[Rows], list[Rows]]:
    """Rows of clients, and as many of the same kinds that nobody held, for each: no stranger has another's rows.

    Shared rows would make every pair right or wrong together, and an interval over pairs too narrow.
    """
    federation = truth.federation
    own = [rng.permutation(federation.clients[i])[:cases] for i in asked]
    parts = dealt(federation, own, unused(federation), rng)
    members, strangers = [], []
    for rows, part in zip(own, parts):
        theirs = matched(federation, rows, part, rng)
        same = matched(federation, theirs, rows, rng) if len(theirs) else theirs
        if len(theirs) == len(same) >= LEAST:
            members.append(same)
            strangers.append(theirs)
    if len(members) < 2:
        raise CoveyError(
            f"attack 'client_membership' needs {LEAST} samples that no client holds beside each client: leave more out"
        )
    return members, strangers


@dataclass(frozen=True)
class Update:
    """What a candidate would do."""

    model: int  # that suits it best
    direction: Tensor  # [d] of its training from there


def _updates(machine: Machine, places: Sequence[Tensor], models: Tensor) -> list[Update]:
    losses = machine.compute([Job(rows, 0, Losses(models)) for rows in places])
    chosen = [int(one.argmin()) for one in losses]
    gradients = machine.compute([Job(rows, 0, Gradient(models[j])) for rows, j in zip(places, chosen)])
    return [Update(j, -one.double().cpu()) for j, one in zip(chosen, gradients)]


def _along(candidates: Sequence[Update], known: Sequence[Update], moves: Tensor) -> Floats:
    """How far each candidate goes along with the move [m, d] of its model, less what strangers and known clients would explain."""
    vectors = torch.stack([*(one.direction for one in (*candidates, *known)), *moves.double()])
    products, first = _products(vectors), len(candidates) + len(known)
    scores = []
    for i, one in enumerate(candidates):
        added = [len(candidates) + n for n, other in enumerate(known) if other.model == one.model]
        target = np.eye(len(vectors))[first + one.model]
        scores.append(partial_cosine(products, i, target, [*_others(candidates, i), *added]))
    return np.array(scores)


def _along_strangers(candidates: Sequence[Update]) -> Floats:
    """The same with a sum over half of the other strangers in the place of what was seen, in which nobody of a pair is."""
    products = _products(torch.stack([one.direction for one in candidates]))
    scores = []
    for i in range(len(candidates)):
        others = _others(candidates, i)
        target = np.isin(np.arange(len(candidates)), others[::2]).astype(np.float64)
        scores.append(partial_cosine(products, i, target, others[1::2]))
    return np.array(scores)


def _others(candidates: Sequence[Update], i: int) -> list[int]:
    """The strangers of other pairs that would train the same model."""
    n = len(candidates) // 2
    return [s for s in range(n, 2 * n) if s != n + i % n and candidates[s].model == candidates[i].model]


def _products(vectors: Tensor) -> Floats:
    return np.asarray((vectors @ vectors.T).numpy(), np.float64)


def partial_cosine(products: Floats, i: int, target: Floats, known: Sequence[int]) -> float:
    """Of vector i and a sum of vectors (`target` are their weights), both less what lies in the span of the known ones; 0 where
    nothing is left of one of them. `products`: of every two vectors.
    """
    along = products @ target
    sides = np.stack([products[i], along])[:, known]  # of both with the known ones
    whole = np.array([[products[i, i], along[i]], [along[i], target @ along]])
    rest = (
        whole - sides @ np.linalg.lstsq(products[np.ix_(known, known)], sides.T, rcond=1e-10)[0]
        if len(known)
        else whole
    )
    if (np.diag(rest) <= 1e-9 * np.diag(whole)).any():
        return 0.0
    return float(rest[0, 1] / np.sqrt(rest[0, 0] * rest[1, 1]))


def _losses(machine: Machine, places: Sequence[Tensor], models: Tensor) -> Floats:
    """Of each candidate under the model that suits it best."""
    return np.array([float(one.min()) for one in machine.compute([Job(rows, 0, Losses(models)) for rows in places])])


def _right(scores: Floats) -> Floats:
    """Of each pair: 1 where the member scores higher, ½ where both score alike."""
    members, strangers = np.split(scores, 2)
    return np.asarray((np.sign(members - strangers) + 1) / 2, np.float64)


def _share(right: Floats) -> float:
    return float(right.mean())


def _allowed(truth: Truth) -> float | None:
    """What the run's ledger allows at most: its best bound over several δ."""
    bounds = [bound for delta in DELTAS if (bound := told_apart(truth.priced(delta))) is not None]
    return min(bounds, default=None)
