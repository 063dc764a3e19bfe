"""What can be asked of an experiment: what could leak (rows), who might learn it (columns), by which attack, and if not why not.

All of it follows from declarations: what the algorithm's messages carry and what it gives away by design, what each attack
reads and from where. An attack that could only report that it saw nothing it can read is not let near a run: its "no leak seen"
would sound like safety.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from covey import leaks, roles
from covey.algorithms import contract
from covey.attacks import ATTACKS
from covey.attacks.contract import parties
from covey.attacks.declaration import Declaration, declaration
from covey.experiment.experiment import Experiment
from covey.leaks import CLIENT, COALITION, EAVESDROPPER, SECOND, SERVER, WIRE, Leak

BLINDED = "rows"  # the family of encryptions whose vectors are under a blind also where nothing is encrypted


@dataclass(frozen=True)
class Watch:
    """One attack, by its name, from one place."""

    attack: str
    column: str


@dataclass(frozen=True)
class Questions:
    """What an audit asks of one experiment."""

    experiment: Experiment

    # ---------------------------------------------------------------- attacks and rows

    @functools.cached_property
    def attacks(self) -> Mapping[str, Any]:
        """Name -> class of all attacks there are, by rows: the registered ones, then those that the experiment brings along."""
        order = {leak.name: n for n, leak in enumerate(leaks.LEAKS)}
        known, _ = ATTACKS.loaded()
        own = {a.name: type(a) for a in self.experiment.attacks if known.get(a.name) is not type(a)}
        return dict(sorted({**known, **own}.items(), key=lambda item: order.get(_row_name(item[1]), len(order))))

    @functools.cached_property
    def declared(self) -> Mapping[str, Declaration]:
        """Name -> what it declares; an attack of one's own that says nothing stays where it looks, in a row for such."""
        return {name: self._declared(name, kind) for name, kind in self.attacks.items()}

    def _declared(self, name: str, kind: Any) -> Declaration:
        said = declaration(kind)
        if said.row is not None and said.seen_from:
            return said
        place = self.column_of(self.configured(name).vantage)
        return replace(said, row=said.row or leaks.OWN, seen_from=said.seen_from or (place,))

    @functools.cached_property
    def rows(self) -> Sequence[Leak]:
        """Everything that some attack looks for."""
        return list(dict.fromkeys(said.row for said in self.declared.values() if said.row is not None))

    def on(self, row: Leak, column: str) -> list[str]:
        """The attacks on one thing from one place, whether they can be made here or not."""
        return [name for name, said in self.declared.items() if said.row == row and column in said.seen_from]

    # ---------------------------------------------------------------- places

    @functools.cached_property
    def protocol(self) -> contract.Declaration:
        return contract.declaration(self.experiment.algorithm)

    def vantage(self, column: str) -> str:
        """The parties of a column, as views name them; "" where the protocol has no such party."""
        server, client = self.protocol.server, "client:0"
        return {
            SERVER: server,
            SECOND: next(iter(self.protocol.further), ""),
            CLIENT: client,
            COALITION: f"{server}+{client}",
            EAVESDROPPER: EAVESDROPPER,
        }[column]

    def column_of(self, vantage: str) -> str:
        """The column that a vantage belongs to: servers and clients together are a coalition, several clients still clients."""
        members = parties(vantage)
        if EAVESDROPPER in members:
            return EAVESDROPPER
        clients = {party for party in members if party.startswith("client:")}
        if clients and clients != members:
            return COALITION
        return CLIENT if clients else SECOND if members <= {*self.protocol.further} else SERVER

    # ---------------------------------------------------------------- what is known without an attack

    @property
    def undeclared(self) -> str:
        """Why nothing can be told of this algorithm at all; "": it declares its messages."""
        if self.protocol.sends or self.protocol.replies:
            return ""
        return f"{self.protocol.name} declares no messages (sends, replies), so nobody can tell what it shows"

    def given(self, row: Leak, column: str) -> str:
        """What the protocol itself hands this party, in words; "" where it does not."""
        said = (given.why for given in self.protocol.gives if given.leak == row and column in given.to)
        return next(said, "") or (self._models_given(column) if row == leaks.MODELS else "")

    def _models_given(self, column: str) -> str:
        """Who gets all models, by what the messages to clients carry."""
        sealed = self.experiment.encryption != "none"
        everything = self._sends(roles.Models)
        sums = any(
            isinstance(role, roles.SealedSums) and roles.Model in role.inside
            for kind in self.protocol.sends
            for role in roles.declared(kind)
        )
        if column == CLIENT and (everything or sums):
            return "every client gets all cluster models" + (", sealed under the key it has" * sealed)
        if column in WIRE and (everything or (sums and not sealed)):
            return "all cluster models pass in the clear"
        if column in WIRE and self._sends(roles.Model):
            return "all models pass in the clear"
        return ""

    def _sends(self, role: type[roles.Role]) -> bool:
        return any(roles.carries(kind, role) for kind in self.protocol.sends)

    def implies(self, row: Leak, column: str) -> tuple[str, ...]:
        """Parties whose leaks are this one's too, because it sees at least as much of what the attacks there read."""
        if column == COALITION:
            return (SERVER, CLIENT)
        if column in WIRE and any(self._overheard(self.declared[name]) for name in self.on(row, CLIENT)):
            return (CLIENT,)
        return ()

    def _overheard(self, said: Declaration) -> bool:
        """Whether a client's attack reads only what passes everybody in the clear."""
        algorithm = self.experiment.algorithm
        opened = self.experiment.encryption == "none" and self.protocol.sealing != BLINDED
        clear = (opened or not replace(one, sealed=False).missing(algorithm) for one in said.reads)
        return said.overheard() and not said.unreadable(algorithm) and all(clear)

    # ---------------------------------------------------------------- what is run

    def watches(self) -> Iterator[Watch]:
        """Every attack that can be made here, from every place."""
        for name, said in self.declared.items():
            assert said.row is not None
            if said.row.absent(self.experiment) or self.unfit(name) or said.lacks(self.experiment):
                continue
            for column in said.seen_from:
                if self.vantage(column) and not self.given(said.row, column):
                    yield Watch(name, column)

    def unfit(self, name: str) -> str:
        """Why an attack cannot read this algorithm's messages; "": it can."""
        return self.declared[name].unreadable(self.experiment.algorithm)

    def batches(self) -> list[tuple[Watch, ...]]:
        """Which attacks watch the same run: no name twice, and an active one alone. The first is undisturbed, for the accuracy."""
        shared: list[list[Watch]] = []
        alone: list[tuple[Watch, ...]] = []
        for watch in self.watches():
            if self.declared[watch.attack].active:
                alone.append((watch,))
                continue
            free = next((batch for batch in shared if watch.attack not in {other.attack for other in batch}), None)
            if free is None:
                shared.append([watch])
            else:
                free.append(watch)
        return [*([tuple(batch) for batch in shared] or [()]), *alone]

    def watched(self, batch: Sequence[Watch]) -> Experiment:
        """The experiment as a run under the eyes of these attacks: one seed, wherever it lies."""
        attacks = tuple(self._placed(watch) for watch in batch)
        return replace(self.experiment, attacks=attacks, seeds=1, out="")

    def configured(self, name: str) -> Any:
        """An attack as the experiment has it, else as it is by itself."""
        own = next((attack for attack in self.experiment.attacks if attack.name == name), None)
        return self.attacks[name]() if own is None else own

    def _placed(self, watch: Watch) -> Any:
        """An attack at its place: with the experiment's own settings where it has some, else with those for an audit."""
        attack, said = self.configured(watch.attack), declaration(self.attacks[watch.attack])
        names = {f.name for f in fields(attack) if f.init}
        place = {"vantage": self.vantage(watch.column)} if said.seen_from and "vantage" in names else {}
        usual = _usual(attack)
        settings = {
            name: value
            for name, value in {**place, **said.audited(self.experiment)}.items()
            if name == "vantage" or getattr(attack, name) == getattr(usual, name)
        }
        return replace(attack, memory={}, **settings)


def _row_name(kind: Any) -> str:
    row = declaration(kind).row
    return "" if row is None else row.name


def _usual(attack: Any) -> Any:
    """The same attack with no settings of anybody's; itself where its class cannot do without."""
    try:
        return type(attack)()
    except TypeError:
        return attack


def usual_place(attack: Any) -> bool:
    """Whether nobody chose where it looks from."""
    return bool(_usual(attack).vantage == attack.vantage)
