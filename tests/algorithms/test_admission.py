"""Honest replies of every algorithm are admitted; with any single field spoilt they are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from math import inf
from typing import Annotated, Any, ClassVar

import pytest
import torch

from covey import roles
from covey.algorithms import ALGORITHMS
from covey.algorithms.admission import admit
from covey.algorithms.contract import Setting
from covey.algorithms.ifca import IFCA, ClusterUpdate
from covey.algorithms.pqfed.features import NoisyFeatures
from covey.algorithms.pqfed.messages import Turns
from covey.algorithms.routing import Routing
from covey.crypto.signatures import Envelope
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.messages import message
from covey.rounds.loop import run

PQFED = {"name": "pqfed", "components": 4, "strategy": "all"}
CASES: dict[str, tuple[Any, str]] = {
    **{name: (name, "none") for name in ALGORITHMS if name != "pqfed"},
    "mingledpie sealed": ("mingledpie", "ckks"),
    "routing sealed": ("routing", "bfv"),
    "fedcaprivacy sealed": ("fedcaprivacy", "bfv"),
    "pqfed for one": (PQFED, "none"),
    "pqfed for each": ({**PQFED, "target": -1}, "none"),
    "pqfed over ifca": ({**PQFED, "target": -1, "under": "ifca"}, "none"),
    "pqfed step by step": ({**PQFED, "strategy": "incremental", "step_rounds": 1, "epsilon": inf}, "none"),
}


@dataclass(frozen=True)
class Heard:
    """One reply, and what its server knew when it came."""

    algorithm: Any
    state: Any
    setting: Setting
    keys: Mapping[str, Any]
    reply: Any

    def admit(self, reply: Any) -> None:
        admit(self.algorithm, self.state, self.setting, self.keys, reply)


@cache
def heard(case: str) -> list[Heard]:
    """The first client's reply of every round of a small run."""
    algorithm, encryption = CASES[case]
    experiment = Experiment.of(
        {
            "dataset": "digits",
            "algorithm": algorithm,
            "encryption": encryption,
            "clients": 6,
            "clusters": 3,
            "partition": {"name": "label_sets", "samples": 20},
            "start": {"common": False},
            "training": {"rounds": 3, "epochs": 1, "lr": 0.1},
            "evaluation": {"every": 3},
            "engine": {"workers": 1},
        }
    )
    cls = type(experiment.algorithm)
    replies: list[Heard] = []

    def aggregate(self: Any, server: Any, state: Any, arriving: Iterator[tuple[int, Any]]) -> Any:
        came = list(arriving)
        replies.append(Heard(self, state, server.setting, server.keys, came[0][1]))
        return cls.aggregate(self, server, state, iter(came))

    listening = type(cls.__name__, (cls,), {"aggregate": aggregate})
    own = {f.name: getattr(experiment.algorithm, f.name) for f in fields(experiment.algorithm)}
    run(replace(experiment, algorithm=listening(**own)), quiet=True)
    return replies


def misshapen(role: roles.Role, value: torch.Tensor) -> torch.Tensor:
    """Of descriptions only the algorithm knows how many numbers they have; it sets aside what differs from the others'."""
    if isinstance(role, roles.Moments):
        return value[..., :-1, :]
    described = isinstance(role, roles.NoisedFeatures | roles.SingularVectors | roles.LossTrace)
    return value[0] if described else value[:-1]


def spoilt(role: roles.Role, value: Any) -> Iterator[Any]:
    """Values that no honest client can have put where a value of this role stands."""
    if value is not None and not isinstance(role, roles.MomentsByLabel):  # honest where a message has nothing to say
        yield None
    yield from ([1.5], "words" if not isinstance(value, str) else b"words")
    if isinstance(value, torch.Tensor):
        yield from (value.double(), misshapen(role, value), value * torch.nan)
    if isinstance(role, roles.Memberships):
        yield value - 2
    if isinstance(role, roles.Count | roles.Identity):
        yield from (-1, True, 1.0, 10**13)
    if isinstance(role, roles.IdentitySet):
        yield from ([], [0, 0], [99], [True], tuple(value))
    if isinstance(role, roles.Share):
        yield from (1.5, -0.1, float("nan"), True)
    if isinstance(role, roles.SealedBlocks):
        yield from (value[:-1], [value[0][:-1], *value[1:]], [b"", *value[1:]])
    elif isinstance(role, roles.Sealed):
        yield from (b"", value[:-1], value[:100] + bytes([value[100] ^ 1]) + value[101:])
    if isinstance(role, roles.Parts):
        target, part = next(iter(value.items()))
        yield from ({99: part}, {str(target): part}, {target: Turns({})}, {target: NoisyFeatures(torch.ones(2, 2))})
        for name, worse in all_spoilt(part):
            yield {target: replace(part, **{name: worse})}


def all_spoilt(reply: Any) -> Iterator[tuple[str, Any]]:
    for name, role in roles.of(type(reply)).items():
        yield from ((name, value) for value in spoilt(role, getattr(reply, name)))


@pytest.mark.parametrize("case", CASES)
def test_honest_replies_are_admitted_and_every_spoilt_field_is_refused(case: str) -> None:
    replies = heard(case)
    assert len(replies) == 3
    for one in replies:
        one.admit(one.reply)
        for name, value in all_spoilt(one.reply):
            with pytest.raises(CoveyError, match=rf"^{type(one.reply).__name__}\.{name} "):
                one.admit(replace(one.reply, **{name: value}))


def test_an_envelope_of_wrong_kinds_is_refused() -> None:
    one = heard("fedcaprivacy sealed")[0]
    assert isinstance(one.reply, Envelope)
    wrong = {"sender": 3, "purpose": b"", "round": "1", "timestamp": 1.0, "nonce": "", "payload": "", "signature": None}
    for name, value in wrong.items():
        with pytest.raises(CoveyError, match=rf"Envelope\.{name}"):
            one.admit(replace(one.reply, **{name: value}))


def test_replies_of_another_algorithm_or_phase_are_refused() -> None:
    one = heard("ifca")[0]
    with pytest.raises(CoveyError, match="found a Turns, expected ClusterUpdate"):
        one.admit(Turns({}))
    select, train, _ = heard("pqfed for one")
    with pytest.raises(CoveyError, match="found a LocalModel, expected NoisyFeatures"):
        select.admit(train.reply)
    with pytest.raises(CoveyError, match="found a NoisyFeatures, expected LocalModel"):
        train.admit(select.reply)


# ---------------------------------------------------------------- algorithms of a user's own


@message
@dataclass(frozen=True)
class Unsaid:
    """A reply without roles."""

    numbers: torch.Tensor
    nested: dict[str, list[float]]


@message
@dataclass(frozen=True)
class Half:
    """A reply with a check of its own, and a role on one field only."""

    model: Annotated[torch.Tensor, roles.Model]
    word: str

    def check(self, setting: Setting) -> None:
        if self.word != "please":
            raise CoveyError("is rude")


@dataclass(frozen=True)
class Silent(IFCA):
    """Declares no messages."""

    name: ClassVar[str] = "silent"
    sends: ClassVar[tuple[type, ...]] = ()
    replies: ClassVar[tuple[type, ...]] = ()


@dataclass(frozen=True)
class Renamed(IFCA):
    name: ClassVar[str] = "renamed"


def test_an_undeclared_algorithm_gets_its_numbers_checked() -> None:
    one = replace(heard("ifca")[0], algorithm=Silent())
    one.admit(Unsaid(torch.ones(3), {"a": [1.0]}))
    one.admit(Unsaid(torch.ones(3, dtype=torch.int64), {}))
    for bad in (Unsaid(torch.full((3,), torch.nan), {}), Unsaid(torch.ones(3), {"a": [1.0, float("inf")]})):
        with pytest.raises(CoveyError, match="infinite or none"):
            one.admit(bad)
    one.admit(one.reply)
    with pytest.raises(CoveyError, match=r"ClusterUpdate\.cluster"):  # its message says what it carries
        one.admit(replace(one.reply, cluster=7))


def test_a_message_may_bring_its_own_check() -> None:
    one = replace(heard("ifca")[0], algorithm=Silent())
    model = one.reply.model
    one.admit(Half(model, "please"))
    with pytest.raises(CoveyError, match="rude"):
        one.admit(Half(model, "now"))
    with pytest.raises(CoveyError, match=r"Half\.model"):
        one.admit(Half(model[1:], "please"))


def test_a_renamed_algorithm_is_checked_as_before() -> None:
    one = replace(heard("ifca")[0], algorithm=Renamed())
    one.admit(one.reply)
    with pytest.raises(CoveyError, match=r"ClusterUpdate\.model"):
        one.admit(replace(one.reply, model=torch.zeros(7)))
    with pytest.raises(CoveyError, match="expected ClusterUpdate"):
        one.admit(Unsaid(torch.ones(3), {}))
    assert isinstance(one.reply, ClusterUpdate)


@dataclass(frozen=True)
class Vaulted(Routing):
    name: ClassVar[str] = "vaulted"
    sealed_with: ClassVar[str] = "vault"


def test_the_key_that_seals_sums_is_the_one_that_the_algorithm_names() -> None:
    sealed = heard("routing sealed")[0]
    one = replace(sealed, algorithm=Vaulted(), keys={"vault": sealed.keys["sealing"]})
    one.admit(one.reply)
    with pytest.raises(CoveyError, match=r"RoutedUpdate\.blocks"):
        one.admit(replace(one.reply, blocks=[b"", *one.reply.blocks[1:]]))
    says = r"^vaulted seals sums, and its server holds no key 'vault' .* \(sealing\)$"
    with pytest.raises(CoveyError, match=says):
        sealed_elsewhere = replace(one, keys=sealed.keys)
        sealed_elsewhere.admit(one.reply)
