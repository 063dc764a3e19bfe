"""Preference profiling from the models themselves: A2 on plain ones, and a coalition whose client opens the sealed ones.

A2 retrains every model that it received on auxiliary samples of one label at a time and reads how far it moves. A model that
was trained on a label hardly moves on it, so the cluster whose labels move it least is the guess. Sealed models are bytes to
the server: nothing to retrain, and the guess is a lot among k, which measures nothing.

The coalition is the server with clients that give it all they hold. Where all clients of MingledPie (and of exact routing) hold the
same secret key, one of them opens every update, and the indicator in it *is* the identity. Where sums are opened together
(`encryption = "threshold"`) it takes a quorum of them, and fewer guess from the sets shown, as A1 does. What the opened sums tell
them of single clients beyond that is not used here: see `clustering/isolation.py` for when they do.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Setting, declaration
from covey.algorithms.sums.openings import pooled
from covey.attacks.contract import Finding, Knowledge, Thinking, Truth, View, replied
from covey.attacks.declaration import Reads, lacks_public
from covey.attacks.preference.identity import GUESSED, identity_set, true_clusters
from covey.attacks.preference.identity_sets import CONTROLS, Weights, last_set, score
from covey.attacks.sealed import places
from covey.crypto.sealing import sealing
from covey.errors import CoveyError
from covey.leaks import COALITION, IDENTITY, LABELS, WIRE, Leak
from covey.learn.work import Plan, Train, Work
from covey.statistics import wilson


@dataclass
class A2:
    """Retrain each plain model on auxiliary data of each label and see on which it moves least."""

    name: ClassVar[str] = "a2"
    label: ClassVar[str] = "A2"
    title: ClassVar[str] = "each plain model retrained label by label: on which does it move least?"
    row: ClassVar[Leak] = LABELS
    seen_from: ClassVar[tuple[str, ...]] = WIRE
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Model,), sealed=True),)  # a sealed one may be sealed by nothing
    means: ClassVar[str] = "share of clients whose set of labels is guessed right; 1 is all"
    controls: ClassVar[tuple[str, ...]] = CONTROLS
    own_rows: ClassVar[bool] = False

    vantage: str = "server"
    rounds: tuple[int, ...] = ()  # in which to look; empty: in the last
    memory: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def lacks(cls, experiment: Any) -> str:
        if not getattr(experiment.partition, "from_label_sets", False):
            return "guesses among sets of labels: set partition = 'label_sets'"
        return lacks_public(experiment)

    def begin(self, knowledge: Knowledge) -> None:
        self.setting, y = knowledge.setting, knowledge.y
        k = self.setting.clusters
        public = [knowledge.where.get(f"public:{j}", np.zeros(0, np.int64)) for j in range(k)]
        # label -> its auxiliary samples; cluster -> its labels, as far as the public samples show them
        self.samples = {int(c): np.flatnonzero(y == c) for c in np.unique(y[np.concatenate(public)])}
        self.labels = [sorted({int(c) for c in y[rows]}) for rows in public]
        self.memory |= {"moves": {}, "seen": {}} if "moves" not in self.memory else {}

    def observe(self, view: View) -> Thinking:
        if not view.sender.startswith("client:"):
            return None
        client, model = int(view.sender.removeprefix("client:")), None
        if roles.first(view.message, roles.Turn) is not None:  # its model need not be in the reply of this round
            model = plain_model(view.message, self.setting)
            kept = self.memory.setdefault("kept", {})
            model = kept[client] = kept.get(client) if model is None else model
        if view.round not in (self.rounds or (self.setting.rounds,)):
            return None
        self.memory["seen"][client] = view.round
        model = plain_model(view.message, self.setting) if model is None else model
        if model is None and roles.first(view.message, roles.Sealed) is not None:
            self.memory["sealed"] = True
        return None if model is None or not all(self.labels) else self._retrain(client, model)

    def _retrain(self, client: int, model: Tensor) -> Generator[list[Work], Any, None]:
        plan = Plan(lr=0.01, epochs=1, batch_size=0)
        labels = list(self.samples)
        tries: list[Work] = [
            Train(model, plan, on=torch.from_numpy(self.samples[c]), purpose=f"a2 {c}") for c in labels
        ]
        moved = yield tries
        self.memory["moves"][client] = {c: float((m - model.to(m.device)).norm()) for c, m in zip(labels, moved)}

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        k = self.setting.clusters
        seen, moves = self.memory["seen"], self.memory["moves"]
        if not seen:
            raise CoveyError(
                "a2 saw no reply in the rounds it looks at: leave its `rounds` empty, or name rounds of the run"
            )
        beliefs: dict[int, Weights] = {i: np.ones(k) for i in seen}
        for i, by_label in moves.items():
            beliefs[i] = -np.array([np.mean([by_label[c] for c in labels]) for labels in self.labels])
        value, controls = score(beliefs, true_clusters(truth, seen, "preference"))
        low, high = wilson(value, len(seen)) if moves else (0.0, 1.0)  # lots drawn blindly say nothing of a leak
        used = (
            f"{len(moves)} plain models, auxiliary samples of {len(self.samples)} labels" if moves else self._lacked()
        )
        return Finding(
            self.name, self.vantage, "accuracy", value, 1 / k, low, high, controls, used, {"models": len(moves)}
        )

    def _lacked(self) -> str:
        if not all(self.labels):
            return "nothing: a cluster has no auxiliary samples (partition.public)"
        return "nothing: no plain model" + (", only ciphertext" if "sealed" in self.memory else "")


@dataclass
class Coalition:
    """The server and clients that give it all they hold: open every update that their keys open, and read its cluster."""

    name: ClassVar[str] = "coalition"
    label: ClassVar[str] = "Coalition"
    title: ClassVar[str] = "the server, with the keys of clients on its side, opens every update that they open"
    row: ClassVar[Leak] = IDENTITY
    seen_from: ClassVar[tuple[str, ...]] = (COALITION,)
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.Identity, roles.Indicator, roles.SealedBlocks), sealed=True),)
    means: ClassVar[str] = GUESSED
    controls: ClassVar[tuple[str, ...]] = CONTROLS
    own_rows: ClassVar[bool] = False

    vantage: str = "server+client:0"
    rounds: tuple[int, ...] = ()  # in which to look; empty: in the last
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.setting, self.algorithm = knowledge.setting, knowledge.algorithm
        self.key = declaration(knowledge.algorithm).sealed_with
        parties = {party: keys for party, keys in knowledge.keys.items() if party.startswith("client:")}
        self.held = {int(p.removeprefix("client:")): keys for p, keys in parties.items() if self.key in keys}
        for name in ("guess", "seen", "shown"):
            self.memory.setdefault(name, {})

    def observe(self, view: View) -> None:
        if not replied(view, self.algorithm) or view.round not in (self.rounds or (self.setting.rounds,)):
            return
        client = int(view.sender.removeprefix("client:"))
        self.memory["seen"][client] = view.round
        self.memory["shown"][client] = identity_set(view.message, self.setting.clusters)
        guess = self._open(view.message, client, view.round)
        if guess is not None:
            self.memory["guess"][client] = guess

    def _open(self, message: Any, sender: int, round: int) -> int | None:
        boxes = roles.first(message, roles.Boxes) or []
        for role, value in roles.carried(message, roles.Identity, roles.Sealed):
            if isinstance(role, roles.Identity):
                return int(value)
            assert isinstance(role, roles.Sealed)
            inside = places(role, self.setting)
            blocks = isinstance(role, roles.SealedBlocks)
            if not blocks and roles.Indicator not in inside:
                continue
            opened = pooled(self.held, sender, value if blocks else [value], boxes, round, self.key)
            if opened is None:
                return None
            if blocks:  # of a client's blocks only its own cluster's counts somebody
                return int(np.argmax([block[inside[roles.Count]] for block in opened]))
            return int(np.argmax(opened[0][inside[roles.Indicator]]))
        return None

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        k = self.setting.clusters
        seen, guess, shown = self.memory["seen"], self.memory["guess"], self.memory["shown"]
        if not seen:
            raise CoveyError("the coalition saw no reply in the rounds it looks at: leave its `rounds` empty")
        beliefs = {i: np.eye(k)[guess[i]] if i in guess else last_set([shown[i]], k) for i in seen}
        value, controls = score(beliefs, true_clusters(truth, seen, "identity"))
        blind = not guess and all(len(shown[i]) == k for i in seen)
        low, high = (0.0, 1.0) if blind else wilson(value, len(seen))
        if guess:
            used = f"{len(guess)} updates, as the keys of {len(self.held)} clients open them"
        else:
            what = "nothing" if blind else "the sets shown"
            used = f"{what}: no update that the keys of {len(self.held)} clients open"
        return Finding(self.name, self.vantage, "accuracy", value, 1 / k, low, high, controls, used, {})


def plain_model(message: Any, setting: Setting) -> Tensor | None:
    """The model that a message holds in the clear, [d]; None where it holds none, or only ciphertext."""
    for role, value in roles.carried(message, roles.Model, roles.Sealed):
        if not isinstance(role, roles.Sealed):
            plain: Tensor = value
            return plain
        inside = places(role, setting)
        for one in (value if isinstance(value, list) else [value]) if roles.Model in inside else []:
            opened = _open_unsealed(one)
            if opened is None or not np.delete(opened, inside[roles.Model]).any():  # a block of zeros is no model
                continue
            if opened[inside[roles.Model]].any():  # nor is what a client sends while it is not its turn
                return torch.from_numpy(opened[inside[roles.Model]].astype(np.float32))
    return None


def _open_unsealed(sealed: Any) -> NDArray[np.float64] | None:
    """What stands in a vector that was "sealed" without encryption; None under any other scheme."""
    if not isinstance(sealed, bytes) or sealing.Label.read(sealed).scheme != "none":
        return None
    return sealing.sealer(sealing.generate_keys("none")).open(sealed)
