"""Hands every attack the messages that its parties see, and advances the work that attacks ask for.

An attack is somebody's code inside the run, so what it must not do is kept from it and not asked of it. Its vantage is read
once, before it is handed anything; it gets copies, so that nothing it does to them reaches a party or another attack (covey's
own, which write into nothing, share one); it acts in the place of its own clients only. This holds against mistakes and
shortcuts. It is no sandbox: Python code in the same process can look for anything there.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from covey import roles
from covey.algorithms.contract import Declaration as Protocol
from covey.algorithms.contract import Setting, declaration_under, own_keys
from covey.algorithms.contract import declaration as protocol_of
from covey.attacks.contract import Attack, Finding, Knowledge, Thinking, Truth, View, parties, sees
from covey.attacks.declaration import declaration, misdeclared
from covey.attacks.thinking import answered
from covey.data.federation import Federation
from covey.errors import CoveyError, nearest
from covey.leaks import EAVESDROPPER
from covey.learn.flat import Network
from covey.learn.machine import Machine
from covey.messages import Rows, copied
from covey.randomness import key

TOGETHER = "read together"  # in the memory of an attack by several servers: what they keep to open messages with
OURS = __name__.rpartition(".")[0] + "."  # attacks of this room
DISTINCT = 16  # broadcasts of which an attack's copy is kept: the models of so many groups


@dataclass
class _Copies:
    """One attack's own copies, or those that covey's share. Of a message that goes to many clients there is one, as there is of
    the message.
    """

    kept: dict[int, tuple[Any, Any]] = field(
        default_factory=dict
    )  # id -> the message, so its id stays its own; the copy

    def of(self, message: Any, to_many: bool) -> Any:
        if not to_many:
            return copied(message)
        if id(message) not in self.kept:
            if len(self.kept) == DISTINCT:
                self.kept.pop(next(iter(self.kept)))
            self.kept[id(message)] = (message, copied(message))
        return self.kept[id(message)][1]


class Observers:
    """All attacks on one run."""

    def __init__(
        self,
        attacks: Sequence[Attack],
        setting: Setting,
        network: Network,
        federation: Federation,
        keys: Mapping[str, Mapping[str, Any]],
        device: str = "cpu",
        algorithm: Any = None,
        defence: Any = None,
        arithmetic: str = "ieee",
    ) -> None:
        """Attacks compute where and in what the run does: what they simulate are its clients' trainings."""
        self.attacks = list(attacks)
        self.seed = setting.seed
        self._seconds = 0.0
        self.machines: dict[int, Machine] = {}
        self.together: dict[int, Callable[..., Any]] = {}  # attack -> how its servers read what they see
        self.replaced: dict[int, Any] = {}
        self.replies = () if algorithm is None else _from_clients(declaration_under(algorithm, setting.encryption))
        for words in filter(None, map(misdeclared, self.attacks)):
            raise CoveyError(words)
        names = [a.name for a in self.attacks]
        for name in names:
            if names.count(name) > 1:
                raise CoveyError(f"attack '{name}' is listed twice, and findings go by name: list it once")
        self.vantages = [str(attack.vantage) for attack in self.attacks]  # whatever it says of itself later
        self.copies = self._no_copies()
        for n, (attack, vantage) in enumerate(zip(self.attacks, self.vantages)):
            if algorithm is not None:
                check_vantage(vantage, algorithm)
            known = _knowledge(vantage, setting, network, federation, keys)
            known = replace(known, algorithm=copy.deepcopy(algorithm), defence=copy.deepcopy(defence))
            self.machines[n] = Machine(network, known.x, known.y, device=device, arithmetic=arithmetic)
            if algorithm is not None and _all_servers(vantage, algorithm):
                self.together[n] = partial(algorithm.read_together, known.keys, known.setting)
            with _answering_for(attack):
                attack.begin(known)
            for client in _own_places(attack, vantage):
                if client in self.replaced:
                    raise CoveyError(
                        f"attacks '{self.replaced[client].name}' and '{attack.name}' both run in the place of client "
                        f"{client}: let one of them look from another client"
                    )
                self.replaced[client] = attack

    def __bool__(self) -> bool:
        return bool(self.attacks)

    def seconds(self) -> float:
        """What attacks have taken of this process since the last call."""
        taken, self._seconds = self._seconds, 0.0
        return taken

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - begin

    def see(self, round: int, sender: str, receiver: str, message: Any) -> Any:
        """A message passes: whoever may see it does. Returns it, as received.

        A reply that the algorithm does not declare is refused: what attacks can read is judged by what is declared.
        """
        if sender.startswith("client:"):
            self.check_kind(sender, message)
        if self.attacks:
            view = View(round, sender, receiver, message)
            with self._timed():
                self._show(view)
        return message

    def _show(self, view: View) -> None:
        once: dict[int, Any] = {}  # by whose copies they are
        for n, attack in enumerate(self.attacks):
            if sees(self.vantages[n], view):
                copies = self.copies[n]
                if id(copies) not in once:
                    once[id(copies)] = copies.of(view.message, to_many=view.receiver.startswith("client:"))
                with _answering_for(attack):
                    for shown in self._read(n, replace(view, message=once[id(copies)])):
                        self._think(n, attack.observe(shown), view.round)

    def check_kind(self, sender: str, reply: Any) -> None:
        """Refuses a reply that the algorithm does not declare."""
        if self.replies and type(reply) not in self.replies:
            declared = " or ".join(kind.__name__ for kind in self.replies)
            raise CoveyError(
                f"{sender} returned a {type(reply).__name__}, but the algorithm's `replies` declare {declared}: add it there"
            )

    def read_rows(self, reply: Any) -> bool:
        """Whether somebody may look into what the reply of many clients has in rows: it is long, and written for each of them only
        where an attack declares that it reads it, or is not covey's own. A reply without such fields is shown as it is.
        """
        kind: type = type(reply)
        rows = {f.name for f in fields(reply) if isinstance(getattr(reply, f.name), Rows)} if self.attacks else set()
        if not rows or self.together:
            return bool(self.attacks)
        found = [role for name, role in roles.of(kind).items() if name in rows and not isinstance(role, roles.Part)]
        if len(found) < len(rows):  # nothing here says what the others hold
            return True
        return any(not _is_ours(attack) or _reads(attack, kind, found) for attack in self.attacks)

    def _read(self, n: int, view: View) -> list[View]:
        """A message as an attack reads it: as it is, or as servers open it that put their keys together."""
        if n not in self.together:
            return [view]
        kept = self.attacks[n].memory.setdefault(TOGETHER, {})
        read = self.together[n](kept, view.round, view.sender, view.receiver, view.message)
        return [View(view.round, sender, receiver, message) for sender, receiver, message in read]

    def end_round(self, round: int) -> None:
        self.copies = self._no_copies()
        for n, attack in enumerate(self.attacks):
            with self._timed(), _answering_for(attack):
                self._think(n, attack.end_round(round), round)

    def _no_copies(self) -> list[_Copies]:
        """By attack: a foreign one's are its own."""
        shared = _Copies()
        return [shared if _is_ours(attack) else _Copies() for attack in self.attacks]

    def findings(self, truth: Truth) -> tuple[list[Finding], list[str]]:
        """(what the attacks found, why those that could not be scored could not)."""
        findings, failed = [], []
        for attack, vantage in zip(self.attacks, self.vantages):
            try:
                with self._timed():
                    finding = _explained(_refuse_no_finding(attack.finding(truth)), declaration(attack).means)
                finding = replace(finding, attack=attack.name)  # no score lands under another attack's name
                _refuse_other_vantage(finding, vantage)
                findings.append(finding)
            except CoveyError as e:
                failed.append(f"attack '{attack.name}' has no finding: {e}")
            except Exception as e:  # somebody's code: it costs its own score, not the others'
                failed.append(_failure(attack, e))
        return findings, failed

    def memories(self) -> list[dict[str, Any]]:
        return [attack.memory for attack in self.attacks]

    def restore(self, memories: Sequence[dict[str, Any]]) -> None:
        for attack, memory in zip(self.attacks, memories):
            attack.memory.clear()
            attack.memory.update(memory)

    def _think(self, n: int, thinking: Thinking, round: int) -> None:
        """Advances an attack's coroutine: its work runs on its own machine, over data that it really has."""
        if thinking is None:
            return
        answered(thinking, self.machines[n], lambda step, i: key(self.seed, round, "attack", n, step, i))


def _is_ours(attack: Attack) -> bool:
    return type(attack).__module__.startswith(OURS) and "observe" not in vars(attack)


def _reads(attack: Attack, kind: type, found: Sequence[roles.Role]) -> bool:
    """Whether it declares that it reads messages of this class, or one of these of their fields; all, where it declares nothing."""
    reads = declaration(attack).reads
    return not reads or any(
        issubclass(kind, tuple(what for what in one.what if not issubclass(what, roles.Role)))
        or any(
            roles.shows(role, *(what for what in one.what if issubclass(what, roles.Role)), sealed=one.sealed)
            for role in found
        )
        for one in reads
    )


def _all_servers(vantage: str, algorithm: Any) -> bool:
    """Whether servers look that can open together what none of them can."""
    protocol = protocol_of(algorithm)
    return bool(protocol.together) and parties(vantage) >= {protocol.server, *protocol.further}


def _from_clients(protocol: Protocol) -> tuple[type, ...]:
    """What a client may send; nothing: it is not declared."""
    return (*protocol.replies, *protocol.advises) if protocol.replies else ()


@contextlib.contextmanager
def _answering_for(attack: Attack) -> Iterator[None]:
    """Whatever goes wrong in an attack's own code is one sentence that names it."""
    try:
        yield
    except CoveyError:
        raise
    except Exception as e:
        raise CoveyError(_failure(attack, e)) from e


def _failure(attack: Attack, problem: Exception) -> str:
    return f"attack '{attack.name}' failed with {type(problem).__name__}: {problem}"


def _refuse_no_finding(finding: Any) -> Finding:
    if not isinstance(finding, Finding):
        raise CoveyError(f"its finding() returned a {type(finding).__name__}, expected a Finding")
    return finding


def _explained(finding: Finding, means: str) -> Finding:
    """How a score is read is the attack's to declare, once for all its findings."""
    variants = [_explained(variant, means) for variant in finding.variants]
    return replace(finding, means=finding.means or means, variants=variants)


def _own_places(attack: Attack, vantage: str) -> tuple[int, ...]:
    """The clients in whose place an active attacker runs: its own ones only."""
    replacement = getattr(attack, "replaces", None)
    places = (replacement,) if isinstance(replacement, int) else tuple(replacement or ())
    foreign = [i for i in places if f"client:{i}" not in parties(vantage)]
    if foreign:
        raise CoveyError(
            f"attack '{attack.name}' would run in the place of client {foreign[0]}, but looks from '{vantage}': an attacker "
            f"acts for its own clients only, so add 'client:{foreign[0]}' to its vantage"
        )
    return places


def _refuse_other_vantage(finding: Finding, vantage: str) -> None:
    for one in (finding, *finding.variants):
        if one.vantage != vantage:
            raise CoveyError(
                f"its finding says that it looked from '{one.vantage}', but it was shown what '{vantage}' sees: set its vantage "
                "before the run"
            )


def check_vantage(vantage: str, algorithm: Any) -> None:
    """Refuses a party that the protocol does not have: an attack there would see nothing, and call it safety."""
    protocol = protocol_of(algorithm)
    known = [protocol.server, *protocol.further, EAVESDROPPER, "client:0"]
    for party in vantage.split("+"):
        if party not in known and not party.startswith("client:"):
            raise CoveyError(f"vantage '{vantage}': {protocol.name} has no party '{party}'{nearest(party, known)}")


def _knowledge(
    vantage: str,
    setting: Setting,
    network: Network,
    federation: Federation,
    keys: Mapping[str, Mapping[str, Any]],
) -> Knowledge:
    """Auxiliary rows (public ones, and the data of the clients in the coalition) and the keys of the vantage's parties."""
    members = parties(vantage)
    numbers = [p.removeprefix("client:") for p in members if p.startswith("client:")]
    if not all(n.isdecimal() for n in numbers):
        raise CoveyError(f"vantage '{vantage}' names a client without its number: write for example 'client:3'")
    own_clients = sorted(map(int, numbers))
    for i in own_clients:
        if not 0 <= i < setting.clients:
            raise CoveyError(f"vantage '{vantage}' names client {i}, but clients count from 0 to {setting.clients - 1}")
    pieces = {f"public:{j}": rows for j, rows in enumerate(federation.public)}
    pieces |= {f"own:{i}": federation.clients[i] for i in own_clients}
    extra = federation.notes.get("auxiliary")
    if isinstance(extra, np.ndarray):
        pieces["auxiliary"] = extra
    rows = np.concatenate([*pieces.values()]) if pieces else np.zeros(0, np.int64)
    ends = np.cumsum([len(p) for p in pieces.values()])
    where = {name: np.arange(end - len(p), end) for (name, p), end in zip(pieces.items(), ends)}
    if federation.notes.get("attacker") in own_clients:  # it knows which of its own rows have the property
        where["property"] = np.flatnonzero(np.isin(rows, np.asarray(federation.notes["attacker_property"])))
    servers = members - {"clients"}  # no party is called so: under it lie the keys of all clients
    held = {party: dict(keys.get(party, {})) for party in servers}
    held |= {f"client:{i}": own_keys(keys.get("clients", {}), i) for i in own_clients}
    dataset = federation.dataset
    attributes = {name: values[rows] for name, values in dataset.attributes.items()}
    return Knowledge(
        setting.copy(), replace(network), held, dataset.x_train[rows], dataset.y_train[rows], where, attributes
    )
