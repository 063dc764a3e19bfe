"""Sealing and opening of sums for algorithms, under a key that all clients share or by clients that open them together.

Under a shared key (`crypto/sealing`) a client opens what the server sends. Under a scheme of `crypto/openings` there is one more
exchange in the round: the server, having added up, asks the clients that have replied for their part of the sums' keys, and
broadcasts what any `quorum` of them answered (an `Opening`) with the sums.

A client helps to open only what `check_groups` lets pass: sets of at least `least` clients, of which neither a difference of
two nor any combination is smaller or gives a single client away. It helps once a round: asked for other sets in the same
round it refuses, and of another round or run no share opens. So a server that lies gets sums of the sets that it names once, and
each holds enough clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Client, Coroutine, Server, Setting
from covey.clustering.isolation import Groups, keeps_apart
from covey.crypto import openings
from covey.crypto.openings.threshold import Opening, OpeningAdvice, OpeningQuestion, check_advice, check_boxes, fuse
from covey.crypto.sealing import sealing
from covey.errors import CoveyError
from covey.learn.work import Compute
from covey.measures import Measure

OWN = "opening"  # a client's own key, where sums are opened together
LEAST = 2  # clients in a sum that is opened together: of one client it would be a decryption, which is what t clients are for
_ASKED = "opened groups"  # in a client's memory

UNOPENED = Measure(
    "Rounds not opened",
    "share",
    "Fewer clients than must (quorum) were in the sums or helped to open them: the round was lost, its models stayed as they were.",
    alarm=0.5,
    warning="in some round fewer clients than must (quorum) helped to open the sums, and its models stayed as they were",
)

CUT = Measure(
    "Cut models",
    "share",
    "Clients whose trained model was beyond what sealed numbers carry, or none: it was cut, since refusing it would tell.",
    alarm=0.5,
    warning="the trained model was beyond algorithm.bound, or no number, and was cut to it before it was sealed: raise "
    "algorithm.bound, lower training.lr, or ask what the coordinator sends",
)


@dataclass(frozen=True)
class Seals:
    """What one client seals vectors and opens sums with."""

    key: bytes = field(repr=False)  # that all clients share; or public parameters of those that open together
    client: int = 0
    own: bytes = field(default=b"", repr=False)  # this client's key; empty: the one above is shared
    occasion: str = ""  # the run and round in which it seals

    @classmethod
    def of(cls, me: Client) -> Seals:
        return cls(me.keys["sealing"], me.id, me.keys.get(OWN, b""), occasion(me.run, me.round))

    def seal(self, vectors: Sequence[ArrayLike]) -> tuple[list[bytes], list[bytes] | None]:
        """(the sealed vectors, boxes for the other clients: none under a shared key)."""
        if self.own:
            sealed: tuple[list[bytes], list[bytes]] = self._member().seal(vectors, self.occasion)
            return sealed
        return [sealing.sealer_of(self.key).seal(vector) for vector in vectors], None

    def open(self, sums: Sequence[bytes], opening: Opening | None) -> NDArray[np.float64]:
        """[., d]: what stands in the sums."""
        if not self.own:
            return np.stack([sealing.sealer_of(self.key).open(one) for one in sums])
        if not isinstance(opening, Opening):
            raise CoveyError("sums came that clients open together, without what opens them: the server left it out")
        return np.stack(self._member().open(sums, opening))

    def open_there(self, sums: Sequence[bytes], opening: Opening | None) -> Tensor:
        """The same; sums in the clear that were added in this process as they are there, on its device and in float32."""
        rows = None if self.own else sealing.open_rows(self.key, sums)
        return torch.from_numpy(self.open(sums, opening)) if rows is None else rows

    def advise(self, question: OpeningQuestion, padded: bool = True) -> OpeningAdvice:
        advice: OpeningAdvice = self._member().advise(question, self.occasion, padded)
        return advice

    def check(self) -> None:
        """Refuses a key of its own that is not the one that the others know."""
        self._member()

    def _member(self) -> Any:
        return _module(self.key).member(self.key, self.client, self.own)


def pooled(
    held: Mapping[int, Mapping[str, Any]],
    sender: int,
    sealed: Sequence[bytes],
    boxes: Sequence[bytes],
    round: int,
    key: str = "sealing",
) -> list[NDArray[np.float64]] | None:
    """What clients that pool what they hold (by client) read in one client's reply; None: they are too few for it."""
    if not held:
        return None
    public = next(iter(held.values()))[key]
    own = {i: keys[OWN] for i, keys in held.items() if OWN in keys}
    if not own:
        return [sealing.sealer_of(public).open(one) for one in sealed]
    opened: list[NDArray[np.float64]] | None = _module(public).pool(
        public, own, sender, sealed, boxes, occasion("", round)
    )
    return opened


def sealable(me: Client, trained: Tensor, start: Callable[[], Tensor]) -> Tensor:
    """What a silo seals of the model that it trained from `start`: never more than sealed numbers carry.

    Whether a model fits depends on the samples and on `start`, which the server may have chosen for it: a refusal would say in
    the clear what the seal hides. Simulations refuse, in words, when they seal; and so do silos that share a key, whose refusals
    are counted.
    """
    if me.secret is None or not is_together(me.setting.encryption):
        return trained
    bound = np.nextafter(np.float32(_module(me.keys["sealing"]).read(me.keys["sealing"]).bound), np.float32(0))
    whole = trained if bool(torch.isfinite(trained).all()) else start()
    cut = whole.clamp(-float(bound), float(bound))
    me.note("cut", float(not torch.equal(cut, trained)))
    return cut


def occasion(run: str, round: int) -> str:
    return f"{run}:{round}"


def round_of(occasion: str) -> int:
    return int(occasion.rpartition(":")[2])


def is_together(encryption: str) -> bool:
    """Whether sums under this encryption are opened by several clients, none of which can do it alone."""
    return encryption in openings.SCHEMES


def issue(
    setting: Setting, bound: float, quorum: int, publics: Mapping[int, bytes] | None = None
) -> tuple[dict[str, Any], bytes]:
    """(what clients hold, the server's public parameters).

    `publics`: by client, of keys that clients have made themselves; without it all keys are made here, by who is trusted then.
    """
    if not is_together(setting.encryption):
        refuse_needless(setting.encryption, quorum, publics, "every client opens sums alone")
        shared = sealing.generate_keys(setting.encryption, bound, setting.clients)
        return {"sealing": shared}, sealing.sealer(shared).public()
    return issue_together(setting, bound, quorum, publics)


def issue_together(
    setting: Setting, bound: float, quorum: int, publics: Mapping[int, bytes] | None = None, **sizes: int
) -> tuple[dict[str, Any], bytes]:
    """The same where sums are opened together; `sizes` are what a scheme wants to know beyond the bound."""
    scheme: Any = openings.SCHEMES[setting.encryption]
    holders = setting.clients if publics is None else len(publics)
    if quorum > holders:
        raise CoveyError(
            f"algorithm.quorum is {quorum}, and {holders} clients hold keys: so many could never open a sum; "
            f"set it to {holders} at most, or to 0 for {scheme.default_quorum(holders)}"
        )
    if publics is not None:
        roster = [publics.get(i, b"") for i in range(setting.clients)]
        helpers = quorum or scheme.default_quorum(len(publics))
        public = scheme.circle_of(bound, setting.clients, roster, helpers, **sizes)
        return {"sealing": public}, public
    helpers = quorum or scheme.default_quorum(setting.clients)
    public, own = scheme.generate_keys(bound, setting.clients, setting.clients, helpers, **sizes)
    return {"sealing": public, "own": {i: {OWN: key} for i, key in enumerate(own)}}, public


def refuse_needless(encryption: str, quorum: int, publics: Mapping[int, bytes] | None, why: str) -> None:
    """Refuses what only clients that open sums together have a use for."""
    instead = f"take encryption = {' or '.join(map(repr, openings.SCHEMES))}"
    if publics is not None:
        raise CoveyError(
            f"silos made keys of their own, but with encryption = '{encryption}' they share one: {instead}"
        )
    if quorum:
        raise CoveyError(
            f"algorithm.quorum is {quorum}, but with encryption = '{encryption}' {why}: {instead}, or leave it out"
        )


def check_held(keys: Mapping[str, Any], client: int, encryption: str, bound: float, quorum: int) -> None:
    """Refuses, before anything is sealed, keys of a client that others do not know as its own, and a circle in which fewer must
    help than was agreed: who made it would open what this client seals with fewer on its side.
    """
    if not is_together(encryption):
        return
    if OWN not in keys:
        raise CoveyError(
            f"this silo's own key is not here: put the {OWN}.key that `covey keys own` made into its folder"
        )
    Seals(keys["sealing"], client, keys[OWN]).check()
    scheme = _module(keys["sealing"])
    circle = scheme.read(keys["sealing"])
    expected = quorum or scheme.default_quorum(circle.holders)
    if circle.quorum != expected or circle.bound != bound:
        raise CoveyError(
            f"these keys open sums with {circle.quorum} silos and a bound of {circle.bound:g}, agreed are {expected} and {bound:g}"
            ": ask who made them, and compare with the other silos"
        )


def quorum_of(public: bytes) -> int:
    """How many clients must help to open sums under these public parameters; 0: each does it alone."""
    scheme = sealing.read_description(public)["scheme"]
    return int(_module(public).read(public).quorum) if is_together(scheme) else 0


def check_quorum(quorum: int, option: str = "algorithm.quorum") -> None:
    if quorum < 0 or quorum == 1:
        raise CoveyError(
            f"{option} is {quorum}: at least 2 clients must help to open a sum, or 0 for more than half of them"
        )


def least_opened(setting: Setting, min_group: int) -> int:
    """Fewest clients of a sum that may be opened."""
    return max(min_group, LEAST) if is_together(setting.encryption) else min_group


def open_together(
    server: Server,
    groups: Groups,
    boxes: Mapping[int, Sequence[bytes]],
    vectors: Sequence[int],
    padded: bool = True,
) -> Opening | None:
    """The round's opening, with the help of those who have replied; None: too few of them help.

    Args:
        groups: [g, n] which of the n clients, in the order of `boxes`, is in which sum.
        boxes: of each client, for each client.
        vectors: which of the clients' vectors each sum adds.
        padded: clients put pads on their answers, so that they open the sums and the server does not.
    """
    public, clients = server.keys["sealing"], list(boxes)
    sets = [[clients[i] for i in np.flatnonzero(row)] for row in groups]
    distinct = [list(one) for one in dict.fromkeys(tuple(one) for one in sets if one)]
    senders = sorted({i for one in distinct for i in one})
    questions = {j: OpeningQuestion(distinct, {i: boxes[i][j] for i in senders}) for j in clients}
    quorum = quorum_of(public)
    answers = server.consult(questions, quorum) if len(questions) >= quorum else {}
    usable = {j: advice for j, advice in answers.items() if _is_usable(public, advice, len(distinct), padded)}
    server.note("unopened", float(len(usable) < quorum))
    if len(usable) < quorum:
        server.blamed.update(_blamed(public, senders, answers))
        return None
    of_sums = [distinct.index(one) if one else -1 for one in sets]
    return fuse(public, usable, occasion(server.run, server.round), of_sums, vectors)


def _blamed(public: bytes, senders: Sequence[int], answers: Mapping[int, Any]) -> list[int]:
    """Clients whose boxes more of the others cannot read than there can be liars, where a quorum is honest."""
    circle = _module(public).read(public)
    said = [advice.unreadable for advice in answers.values() if isinstance(advice, OpeningAdvice)]
    complaints = {i: sum(isinstance(one, list) and i in one for one in said) for i in senders}
    return [i for i, count in complaints.items() if count > circle.holders - circle.quorum]


def help_open(me: Client, question: Any, least: int, for_all: bool = False) -> Coroutine:
    """A client's answer to the server's question; see the module's docstring for what it refuses.

    `for_all`: the sum may be seen by everybody, noise being in it, so there are no pads; and there is one sum, since the noises
    of two sums are not independent.
    """
    check_question(me, question)
    groups = tuple(tuple(group) for group in question.groups)
    if for_all and len(groups) > 1:
        raise CoveyError(f"sums of {len(groups)} groups of clients are asked for: noise protects one sum in a round")
    check_groups(groups, me.setting.clients, least)
    agree_once(me, groups)
    advice = yield Compute("open", Seals.of(me).advise, (question, not for_all))
    return advice


def check_question(me: Client, question: Any) -> None:
    if not isinstance(question, OpeningQuestion):
        raise CoveyError(f"a {type(question).__name__} was sent, expected the groups of sums to open")
    roles.check(question, replace(roles.NOTHING_AGREED, clients=me.setting.clients))


def agree_once(me: Client, groups: tuple[tuple[int, ...], ...]) -> None:
    """In a round all groups but those that were asked for first are refused."""
    now, asked = occasion(me.run, me.round), hashlib.sha256(repr(sorted(groups)).encode()).hexdigest()
    before = me.memory.get(_ASKED)
    if before is not None and before[0] == now and before[1] != asked:
        raise CoveyError(
            f"sums of other groups were opened in round {me.round}: a second set of them could tell single clients apart"
        )
    me.memory[_ASKED] = [now, asked]


@lru_cache(maxsize=64)
def check_groups(groups: tuple[tuple[int, ...], ...], clients: int, least: int) -> None:
    """Refuses sets of which one, a difference of two or a combination gives away fewer clients than `least`."""
    table = np.zeros((len(groups), clients), dtype=bool)
    for row, group in zip(table, groups):
        row[list(group)] = True
    fewest = min((len(group) for group in groups), default=0)
    if fewest < least:
        raise CoveyError(f"the sum of {fewest} clients is asked for: sums of at least {least} are opened")
    if not keeps_apart(table[:, table.any(0)], least):
        raise CoveyError(
            f"sums are asked for of which a combination holds fewer than {least} clients: these are not opened together"
        )


def keep_boxes(server: Server, boxes: dict[int, Sequence[bytes]], client: int, sent: Sequence[bytes] | None) -> bool:
    """Whether the boxes that came with a client's vector are whole; then they are kept. Under a shared key there are none."""
    if not is_together(server.setting.encryption):
        return True
    try:
        check_boxes(server.keys["sealing"], sent or [])
    except CoveyError:
        return False
    boxes[client] = sent or []
    return True


def _is_usable(public: bytes, advice: Any, groups: int, padded: bool) -> bool:
    if not isinstance(advice, OpeningAdvice):
        return False
    try:
        check_advice(public, advice, groups, padded)
    except CoveyError:
        return False
    return True


@lru_cache(maxsize=8)
def _module(public: bytes) -> Any:
    return openings.SCHEMES.installed(sealing.read_description(public)["scheme"])
