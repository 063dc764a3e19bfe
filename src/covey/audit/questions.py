"""What can be asked of an experiment: what could leak (rows), who might learn it (columns), by which attack, and if not why not.

All of it follows from declarations: what the algorithm's messages carry and what it gives away by design, what each attack
reads and from where. An attack that could only report that it saw nothing it can read is not let near a run: its "no leak seen"
would sound like safety.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from covey import leaks, roles
from covey.algorithms import contract
from covey.attacks import ATTACKS
from covey.attacks.contract import parties
from covey.attacks.declaration import RETURNED, Declaration, declaration, misdeclared
from covey.errors import CoveyError
from covey.experiment import encryptions
from covey.experiment.experiment import Experiment
from covey.leaks import CLIENT, COALITION, EAVESDROPPER, SECOND, SERVER, SERVERS, WIRE, Leak
from covey.names import fault_of_own_code

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
        known, _ = registered()
        rows = _rows(known.values())
        own: dict[str, Any] = {}
        for attack in self.experiment.attacks:
            if words := _unusable(attack) or _other_row(attack, rows) or _other_attack(attack, known):
                raise CoveyError(words)
            own[attack.name] = type(attack)
            rows |= _rows([attack])
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
        return [name for name, said in self.declared.items() if said.row == row and column in self.columns(name)]

    def columns(self, name: str) -> tuple[str, ...]:
        """Where an attack may look from: what the server can do, servers can do together that open each other's messages, and
        an eavesdropper who is shown the same."""
        declared = self.declared[name].seen_from
        alike = (
            (SERVERS, bool(self.protocol.together)),
            (EAVESDROPPER, self.server_overheard and not self.declared[name].active),
        )
        joined = [column for column, able in alike if able and SERVER in declared and column not in declared]
        return (*declared, *joined)

    # ---------------------------------------------------------------- places

    @functools.cached_property
    def protocol(self) -> contract.Declaration:
        return contract.declaration_under(self.experiment.algorithm, self.experiment.encryption)

    def vantage(self, column: str) -> str:
        """The parties of a column, as views name them; "" where the protocol has no such party."""
        server, client = self.protocol.server, "client:0"
        return {
            SERVER: server,
            SECOND: next(iter(self.protocol.further), ""),
            CLIENT: client,
            COALITION: f"{server}+{client}",
            EAVESDROPPER: EAVESDROPPER,
            SERVERS: "+".join((server, *self.protocol.further)) if self.protocol.further else "",
        }[column]

    def column_of(self, vantage: str) -> str:
        """The column that a vantage belongs to: servers and clients together are a coalition, several clients still clients."""
        members = parties(vantage)
        if EAVESDROPPER in members:
            return EAVESDROPPER
        clients = {party for party in members if party.startswith("client:")}
        if clients and clients != members:
            return COALITION
        if clients:
            return CLIENT
        return SECOND if members <= {*self.protocol.further} else SERVERS if len(members) > 1 else SERVER

    @functools.cached_property
    def server_overheard(self) -> bool:
        """Whether an eavesdropper is shown every message that the server is, and the server has no key more to read it with.

        Both know the same then, so that one run scores an attack for both.
        """
        keyless = self.protocol.sealing == contract.MASKS or not hasattr(self.experiment.algorithm, "keys")
        return self.experiment.encryption == encryptions.PLAIN and keyless and not self.protocol.further

    def scored_at(self, name: str, column: str) -> Watch:
        """Where an attack is made whose score stands in this column: here, or at a server that knows just the same."""
        row = self.declared[name].row
        assert row is not None
        alike = column == EAVESDROPPER and self.server_overheard and SERVER in self.columns(name)
        return Watch(name, SERVER if alike and not self.given(row, SERVER) else column)

    # ---------------------------------------------------------------- what is known without an attack

    @property
    def undeclared(self) -> str:
        """Why nothing can be told of this algorithm at all; "": it declares its messages."""
        if self.protocol.sends or self.protocol.replies:
            return ""
        return f"{self.protocol.name} declares no messages (sends, replies), so nobody can tell what it shows"

    @functools.cached_property
    def unspoken(self) -> str:
        """Which field of a declared message does not say what it carries, so that no attack can read it; "": none."""
        protocol = self.protocol
        servers, clients = (*protocol.asks, *protocol.answers), (*protocol.consults, *protocol.advises)
        kinds = (*protocol.sends, *protocol.replies, *servers, *clients)
        return next((words for kind in kinds if (words := _unspoken(kind))), "")

    def given(self, row: Leak, column: str) -> str:
        """What the protocol itself hands this party, in words; "" where it does not."""
        said = (given.why for given in self.protocol.gives if given.leak == row and column in given.to)
        by_messages = {
            leaks.MODELS: self._models_given,
            leaks.ISOLATION: self._own_models_given,
            leaks.IDENTITY: self._identities_given,
        }.get(row)
        return next(said, "") or (by_messages(column) if by_messages else "")

    def _own_models_given(self, column: str) -> str:
        """Who gets a single client's model, by what replies carry."""
        opened = self.experiment.encryption == "none"
        clear = any(
            roles.carries(kind, roles.Model, roles.Models, roles.Change, roles.SharedLayers, sealed=opened)
            for kind in self.protocol.replies
        )
        return "every reply is one client's own model, in the clear" if clear and column in WIRE else ""

    def _identities_given(self, column: str) -> str:
        """Who is told the groups that clients are in, where these are the clusters that replies name."""
        named = any(roles.carries(kind, roles.Identity) for kind in self.protocol.replies)
        is_shown = column == CLIENT and named and self._shows_groups
        return "clients that help to open sums are told who is in which cluster" if is_shown else ""

    def named(self, column: str) -> bool:
        """Whether this party sees replies that name a cluster, be it the client's own or what a defence says in its place."""
        return column in WIRE and any(roles.carries(kind, roles.Identity) for kind in self.protocol.replies)

    def named_truly(self, column: str) -> bool:
        """Whether no defence says another cluster in the client's place."""
        return self.named(column) and not hasattr(self.experiment.defence, "choose")

    @property
    def _shows_groups(self) -> bool:
        """Whether clients are asked about groups of clients."""
        return any(roles.carries(kind, roles.Groups) for kind in self.protocol.consults)

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
            return "every client gets all cluster models" + (
                ", sealed under the key it has" * (not everything and sealed)
            )
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
        if column == SERVERS:
            return (SERVER, SECOND)
        if column in WIRE:
            places = (CLIENT, SERVER) if column == EAVESDROPPER else (CLIENT,)
            return tuple(p for p in places if any(self._overheard(self.declared[name]) for name in self.on(row, p)))
        if column == CLIENT and self._shows_groups and self._by_groups(row):
            return (SERVER,)
        return ()

    def _by_groups(self, row: Leak) -> bool:
        """Whether the server's attacks on it read sets of clusters alone, which are the groups that clients are asked about."""
        attacks = [self.declared[name] for name in self.on(row, SERVER) if not self.unfit(name)]
        reads = [one for said in attacks for one in said.reads]
        return bool(reads) and all(one.among == RETURNED and roles.IdentitySet in one.what for one in reads)

    def _overheard(self, said: Declaration) -> bool:
        """Whether an attack reads only what passes everybody in the clear."""
        opened = self.experiment.encryption == "none" and self.protocol.sealing != BLINDED
        clear = (opened or not replace(one, sealed=False).missing(self.protocol) for one in said.reads)
        return said.overheard() and not said.unreadable(self.protocol) and all(clear)

    # ---------------------------------------------------------------- what is run

    def watches(self) -> Iterator[Watch]:
        """Every attack that can be made here, from every place."""
        for name, said in self.declared.items():
            assert said.row is not None
            if said.row.absent(self.experiment) or self.lacks(name):
                continue
            for column in self.columns(name):
                apt = self.vantage(column) and not self.unfit(name, column) and not self.given(said.row, column)
                if apt and self.scored_at(name, column).column == column:
                    yield Watch(name, column)

    def unfit(self, name: str, column: str = "") -> str:
        """Why an attack cannot read this algorithm's messages, as they are or as they are opened there; "": it can."""
        seen = self.protocol
        if column == SERVERS and seen.together:
            seen = replace(seen, sends=seen.together[:1], replies=seen.together[1:])
        return self.declared[name].unreadable(seen)

    def lacks(self, name: str) -> str:
        """What an attack needs and does not find here, in words; "": nothing. One whose own answer fails costs its cell alone."""
        said = self.declared[name]
        try:
            words = said.lacks(self.experiment)
            if not words:
                said.audited(self.experiment)  # asked again for every place
        except Exception as e:
            return fault_of_own_code(e) or f"does not say what it needs: {type(e).__name__}: {e}"
        return words

    def harms(self, watch: Watch) -> bool:
        """Whether it looks for harm and not for knowledge."""
        row = self.declared[watch.attack].row
        return row is not None and bool(row.does)

    def batches(self, chosen: Collection[Watch] | None = None) -> list[tuple[Watch, ...]]:
        """Which attacks watch the same run: no name twice, and an active one alone. The first is undisturbed, for the accuracy.

        `chosen`: of these only, as far as they can be made here.
        """
        shared: list[list[Watch]] = []
        alone: list[tuple[Watch, ...]] = []
        for watch in self.watches():
            if chosen is not None and watch not in chosen:
                continue
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


def registered() -> tuple[dict[str, Any], tuple[str, ...]]:
    """(name -> class of the installed attacks that can be audited, a sentence for each that is left out)."""
    loaded, problems = ATTACKS.loaded()
    rows = _rows([])
    known: dict[str, Any] = {}
    left_out = [*problems]
    for name, kind in loaded.items():
        if words := misdeclared(kind) or _unmakeable(name, kind) or _other_row(kind, rows):
            left_out.append(f"{words}; it is left out")
        else:
            known[name] = kind
            rows |= _rows([kind])
    return known, tuple(left_out)


def _unmakeable(name: str, kind: Any) -> str:
    """Why an audit cannot make an attack that nobody configured."""
    try:
        return _unusable(kind())
    except Exception as e:  # a package of somebody's: it spoils nothing for others
        return f"attack '{name}' cannot be made without settings ({e})"


def _unusable(attack: Any) -> str:
    plain = "" if dataclasses.is_dataclass(attack) else "is no dataclass, so an audit cannot set its place"
    return misdeclared(attack) or (plain and f"attack '{attack.name}' {plain}")


def _rows(attacks: Iterable[Any]) -> dict[str, Leak]:
    """Name -> row: covey's own, and those that these attacks bring along."""
    brought = [row for attack in attacks if (row := declaration(attack).row) is not None]
    return {row.name: row for row in (*leaks.LEAKS, leaks.OWN, *brought)}


def _other_row(attack: Any, rows: Mapping[str, Leak]) -> str:
    """Two rows of one name would be one in the matrix, and what the first says would be lost."""
    row = declaration(attack).row
    if row is None or rows.get(row.name, row) == row:
        return ""
    return (
        f"attack '{attack.name}': its row is named '{row.name}', and so is another one that asks "
        f"“{rows[row.name].question}”: declare that one, or give yours another name"
    )


def _other_attack(attack: Any, known: Mapping[str, Any]) -> str:
    kind = type(attack)
    if known.get(attack.name, kind) is kind:
        return ""
    return (
        f"attack '{attack.name}' of {kind.__module__}:{kind.__qualname__} has the name of an attack of "
        f"{known[attack.name].__module__}, and an audit makes both: give it another name"
    )


def _unspoken(kind: Any, above: tuple[Any, ...] = ()) -> str:
    if not dataclasses.is_dataclass(kind) or kind in above:
        return (
            ""
            if above
            else f"{getattr(kind, '__name__', kind)} is no dataclass, so its fields say nothing of themselves"
        )
    hints, said = typing.get_type_hints(kind), roles.of(kind)  # type: ignore[arg-type]
    for one in fields(kind):
        if one.name in said:
            continue
        inner = [c for c in (hints[one.name], *typing.get_args(hints[one.name])) if dataclasses.is_dataclass(c)]
        if not inner:
            return f"field {one.name} of {kind.__name__} says nothing of itself (give it a role)"  # type: ignore[union-attr]
        if words := next((w for c in inner if (w := _unspoken(c, (*above, kind)))), ""):
            return words
    return ""


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
