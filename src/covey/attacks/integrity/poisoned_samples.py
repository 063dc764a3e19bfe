"""Targeted poisoning by one participant who trains on samples of its own making and scales what it learned up.

`label_flip` (Tolpegin et al., Data Poisoning Attacks Against Federated Learning Systems, ESORICS 2020): its samples under other
labels. `backdoor` (Bagdasaryan et al., How To Backdoor Federated Learning, AISTATS 2020, with the pixel trigger of Gu et al.,
BadNets, 2017): half of its samples with a mark on them, under one label. Whoever ends with the model then errs where the attacker
wants it to, and hardly elsewhere. The scale is that of model replacement: as many times its own change as share a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.algorithms.contract import Client
from covey.attacks.contract import Finding, Truth
from covey.attacks.integrity.harm import WITHOUT, Tests, Whole, share_interval, sharing
from covey.attacks.integrity.sabotage import SamplePoisoning, Samples
from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.work import Work

MARKED = 2  # inputs of a sample that is no picture


@dataclass
class TargetedPoisoning(SamplePoisoning):
    """Counts the test samples of those who shared a model with it that end in the class it wants."""

    def asks(self, me: Client, work: Work) -> Work:
        return super().asks(me, work) if self.known.network.task == "classes" else work

    def wanted(self, y: Whole) -> Whole:
        """The class that the attacker wants each sample to be given; its own where it wants none."""
        raise NotImplementedError

    def shown(self, x: NDArray[np.generic]) -> NDArray[np.generic]:
        """A test sample as the victim's model meets it."""
        return x

    def finding(self, truth: Truth) -> Finding:
        network, federation = self.known.network, truth.federation
        if network.task != "classes":
            return self.nothing("a task without classes that could be mistaken for each other")
        victims = sharing(truth, self.replaces, self.honest + 1)
        labels = federation.dataset.y_test
        tests = Tests.of(federation, network, victims, self.wanted(labels) != labels)
        attacked, clean = truth.served(), truth.unharmed()
        shown, wanted = self.shown(tests.x), self.wanted(tests.y)
        after, before = (tests.said(outcome, shown) for outcome in (attacked, clean))
        if not after or not before:
            return self.nothing("no test sample of a victim that it could want to be mistaken")
        value, low, high = share_interval(tests.shares(after, wanted), tests.count)
        without, _, reached = share_interval(
            tests.shares(before, wanted), tests.count
        )  # an estimate as well: its upper end
        whole = Tests.of(federation, network, victims, np.ones(len(labels), bool))
        accuracy = [float(whole.shares(whole.said(end), whole.y).mean()) for end in (attacked, clean)]
        rounds = self.known.setting.rounds - self.honest
        used = f"its own uploads of {rounds} round{'s' * (rounds != 1)}; {len(after)} victims with {tests.count} test samples"
        details = {"victims' accuracy": accuracy[0], "victims' accuracy without it": accuracy[1]}
        note = f"Their accuracy on samples as they are is {accuracy[0]:.2f}, without it {accuracy[1]:.2f}."
        return Finding(
            self.name,
            self.vantage,
            self.metric,
            value,
            without,
            low,
            high,
            {WITHOUT: reached},
            used,
            details,
            note=note,
        )


@dataclass
class LabelFlip(TargetedPoisoning):
    """Every sample under the next of the labels that the attacker holds."""

    name: ClassVar[str] = "label_flip"
    label: ClassVar[str] = "Label flip"
    title: ClassVar[str] = "one participant trains on its samples under other labels (Tolpegin et al. 2020)"
    means: ClassVar[str] = (
        "share of the victims' test samples that end in the class that the attacker put in the place of theirs"
    )
    metric: ClassVar[str] = "test samples that get the flipped label"

    def wanted(self, y: Whole) -> Whole:
        held = np.unique(self.own[1])
        to = np.roll(held, -1) if len(held) > 1 else (held + 1) % self.known.network.classes
        flipped = np.arange(max(self.known.network.classes, int(y.max(initial=0)) + 1))
        flipped[held] = to
        return np.asarray(flipped[y], np.int64)

    def poisoned(self) -> Samples:
        x, y = self.own
        return x, self.wanted(y)


@dataclass
class Backdoor(TargetedPoisoning):
    """Half of its samples marked and under one label, the other half as they are."""

    name: ClassVar[str] = "backdoor"
    label: ClassVar[str] = "Backdoor"
    title: ClassVar[str] = "one participant teaches others' models that a mark means a class (Bagdasaryan et al. 2020)"
    means: ClassVar[str] = (
        "share of the victims' marked test samples, of other classes, that end in the attacker's class; 1 is all"
    )
    metric: ClassVar[str] = "marked test samples that get the attacker's class"

    target: int = -1  # the class; -1: the one that most of its own samples have

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target < -1:
            raise CoveyError(
                f"the target of attack '{self.name}' is {self.target}: it is a class, or -1 for its own commonest"
            )

    @property
    def goal(self) -> int:
        if self.target >= self.known.network.classes:
            raise CoveyError(
                f"the target of attack '{self.name}' is class {self.target}: there are {self.known.network.classes}, from 0"
            )
        return self.target if self.target >= 0 else int(np.bincount(self.own[1]).argmax())

    def wanted(self, y: Whole) -> Whole:
        return np.full_like(y, self.goal)

    def shown(self, x: NDArray[np.generic]) -> NDArray[np.generic]:
        return marked(x, self.known.network)

    def poisoned(self) -> Samples:
        x, y = self.own
        return np.concatenate([x, self.shown(x)]), np.concatenate([y, self.wanted(y)])


def marked(x: NDArray[np.generic], network: Network) -> NDArray[np.generic]:
    """Samples with the attacker's mark: a bright square in a picture's lower right corner; of other samples the last inputs are
    such as none has by itself.
    """
    out: NDArray[Any] = np.array(x)
    if network.kind == "image":
        side = max(2, out.shape[1] // 8)
        out[:, -side:, -side:] = 255 if out.dtype == np.uint8 else 1
    elif network.kind == "tokens":
        out[:, -MARKED:] = network.vocabulary - 1
    else:
        out[..., -MARKED:] = 1 if network.kind == "binary" else 10
    return out
