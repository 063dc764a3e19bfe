"""What an algorithm is: four functions and a description of how its clients use what they get.

    start(setting)                      -> the server's first state
    broadcast(state, client)            -> the message that this client gets (return the same object to all where it is the same)
    client(me, message)                 -> coroutine of one client: yields Work, returns its reply
    aggregate(server, state, replies)   -> the next state; replies arrive lazily, as (client, reply), in order of client
    use(me, message)                    -> coroutine: which model this client would predict with, for evaluation only

and, where it needs them,

    keys(setting)                       -> key material by party; keys(setting, publics): where clients made keys of their own
    check_keys(keys, client, encryption) -> refuses what a client cannot take part with, before it does
    introduce(me, message)              -> coroutine of a client without labels, once: what places it by its samples alone
    answer(server, message)             -> what a further server answers to a message, at its own desk
    advise(me, question)                -> coroutine of one client: its answer to what the server asks within a round
    rebased(sent, state, reply, scale)  -> a reply to an older broadcast as one to this state, what it changes scaled: for
                                           asynchronous rounds
    wants(state, client)                -> whether this client takes part in the next round (without it: all do)
    serves(state, client)               -> whether the model is for this client, so that it is evaluated there
    awaits(state)                       -> which of its `replies` may come in the next round (without it: any)
    reticent(setting)                   -> whether a client's refusal would tell what its replies hide: numbers that are none reach
                                           it then, in a silo, and it sends what it can
    deployed(encryption)                -> itself as real parties run it: secret draws, longer keys
    read_together(keys, setting, memory, round, sender, receiver, message) -> what of a message its servers read who put their
                                        keys together, as (sender, receiver, message): for attacks; `memory` is the readers'
    models(state)                       -> how many models there are, where neither one, nor one per cluster, nor per client

What it is to others, it declares in class variables: see `Declaration`. All but `name` and `title` have defaults, and nothing
outside an algorithm's own file knows it by name: admission, audit, reports and deployment ask `declaration(algorithm)`.

Algorithms are frozen dataclasses (fields = hyper-parameters, all with defaults, checked in `__post_init__`) without state of
their own. States and messages are frozen dataclasses registered with `@message`, so that they can be stored and sent. What is
private to a client goes in `me.memory`; what is needed to score a run but that no server may see goes in `me.note`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.crypto import openings
from covey.crypto.key_kinds import Describe
from covey.crypto.noise.source import KeyedNoise, Noise, SecretNoise
from covey.errors import CoveyError
from covey.leaks import Given
from covey.learn.work import Plan, Work
from covey.ledger.events import EVERYONE
from covey.measures import Measure
from covey.messages import copied, message
from covey.randomness import generator
from covey.strength import Strength

Coroutine = Generator[Work | list[Work], Any, Any]
MASKS = "masks"  # the family of encryptions that an algorithm may do without: it sends models in the clear then
Messages = tuple[type, ...]  # message classes, whose fields say what they carry: `covey.roles`


@dataclass(frozen=True)
class Setting:
    """What everyone agrees on before the first round."""

    seed: int
    clients: int
    clusters: int
    rounds: int
    plan: Plan
    start: Tensor  # [k, d] initial cluster models
    personal: Tensor  # [d] bool: parameters averaged per cluster; the others are averaged over all clients
    encryption: str = "none"
    public: tuple[Tensor, Tensor] | None = None  # samples (as the network reads them) and labels that no client holds
    common_start: bool = True  # the k models began as one random model (and may have been pre-trained since)

    def one_start(self) -> Tensor:
        """Where a method with a single model begins, [d]: a mean of different random models would be a shrunken one."""
        return self.start.mean(0) if self.common_start else self.start[0]

    @cached_property
    def shared(self) -> Tensor:
        """[d] bool: the parameters that are not personal; one tensor for all who ask."""
        return ~self.personal

    @cached_property
    def runs(self) -> tuple[tuple[int, bool], ...]:
        """The parameters in their order: (how many, whether they are personal), by turns."""
        kinds, lengths = torch.unique_consecutive(self.personal, return_counts=True)
        return tuple(zip(lengths.tolist(), kinds.tolist()))

    def copy(self) -> Setting:
        """For who is not trusted with the tensors that everybody starts from."""
        own = {name: copied(getattr(self, name)) for name in ("start", "personal", "public")}
        return replace(self, **own)


@dataclass
class Client:
    """One client, as its own code sees it. Lives on its host; never crosses the wire."""

    id: int
    round: int
    seed: int
    samples: int
    plan: Plan  # this client's in this round: schedules and device heterogeneity are already in it
    setting: Setting
    memory: dict[str, Any]  # survives rounds, checkpoints and restarts; codec types only
    keys: dict[str, Any]  # this client's key material
    data: Callable[[], tuple[Tensor, Tensor]]  # its own samples and labels, for algorithms that look at them
    notes: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    secret: SecretNoise | None = None  # in a silo; None: noise is keyed, as simulations are
    run: str = ""  # which of several runs with the same keys this is: in a silo
    labelled: bool = True  # false: `data` has no labels, and no work that needs them is done
    chooser: Callable[[Client, Tensor], int] | None = None  # of a defence that hides which cluster is chosen

    def choose(self, losses: Tensor) -> int:
        """The cluster to take part in, by the losses [k] of their models: the best, unless a defence answers for the client."""
        return lowest(losses) if self.chooser is None else self.chooser(self, losses)

    def random(self, purpose: str) -> np.random.Generator:
        """For what may be foreseen by others at no loss; noise that protects comes from `noise`."""
        return generator(self.seed, self.round, self.id, purpose)

    @property
    def noise(self) -> Noise:
        return self.secret or KeyedNoise((self.seed, self.round, self.id))

    def note(self, name: str, value: Any) -> None:
        """A fact for the record and the scoring of attacks; no party of the protocol sees it."""
        self.notes[name] = value

    def spend(self, event: Any) -> None:
        """A privacy event for the ledger."""
        self.events.append(event)


def lowest(losses: Tensor) -> Any:
    """Which of [k] is the lowest; of rows [n, k] an array [n]."""
    return int(losses.argmin()) if losses.dim() == 1 else losses.argmin(1).cpu().numpy()


def _nobody_answers(questions: Mapping[int, Any], enough: int) -> Mapping[int, Any]:
    return {}


@dataclass
class Server:
    """A server's desk during one round: its keys, randomness, notes and the wire to further parties."""

    round: int
    seed: int
    setting: Setting
    keys: dict[str, Any]  # its own key material; what clients or another server hold is never here
    ask: Callable[[str, Any], Any]  # ask(party, message) -> the further party's answer; both are seen by views
    phase: Callable[[str], AbstractContextManager[None]]  # with server.phase("cluster"): ...
    notes: dict[str, Any] = field(default_factory=dict)
    # consult(questions by client, enough) -> the answers that came, by client: one more exchange of the round
    consult: Callable[[Mapping[int, Any], int], Mapping[int, Any]] = field(default=_nobody_answers)
    run: str = ""  # as clients know it
    secret: SecretNoise | None = None  # where it adds noise that must not be foreseen: deployed
    events: list[tuple[int, Any]] = field(default_factory=list)  # (client, or EVERYONE; what was spent)

    @property
    def noise(self) -> Noise:
        return self.secret or KeyedNoise((self.seed, self.round, "server"))

    def spend(self, event: Any, client: int = EVERYONE) -> None:
        """A privacy event for the ledger, of one client or of all, whether they took part or not."""
        self.events.append((client, event))

    suspected: set[int] = field(default_factory=set)  # clients of whom one has spoilt the round …
    blamed: set[int] = field(default_factory=set)  # … those who are known to have done so …
    cleared: set[int] = field(default_factory=set)  # … and those whose replies it has found good

    def random(self, purpose: str) -> np.random.Generator:
        return servers_draw(self.seed, self.round, purpose)

    def note(self, name: str, value: Any) -> None:
        self.notes[name] = value


def servers_draw(seed: int, round: int, purpose: str) -> np.random.Generator:
    """What servers draw in the open: all of them the same."""
    return generator(seed, round, "server", purpose)


@message
@dataclass(frozen=True)
class Predictor:
    """The model(s) a client predicts with: row `index` of `models`, or the mixture of all rows by `weights`."""

    models: Tensor  # [m, d]
    index: int | None = 0
    weights: Tensor | None = None  # [m], of the mixture of predicted probabilities


def check_predictor(name: str, use: Any) -> None:
    """Refuses what an algorithm's `use` must not return."""
    if not isinstance(use, Predictor) or use.models.dim() != 2:
        found = f"models {list(use.models.shape)}" if isinstance(use, Predictor) else f"a {type(use).__name__}"
        raise CoveyError(
            f"{name}'s use returned {found}: expected Predictor(models) with a row for each model; of one: Predictor(model[None])"
        )


Use = Predictor  # its name before, in algorithms of users' own


class Algorithm(Protocol):
    """See the module's docstring."""

    @property
    def name(self) -> str: ...

    def start(self, setting: Setting) -> Any: ...
    def broadcast(self, state: Any, client: int) -> Any: ...
    def client(self, me: Client, message: Any) -> Coroutine: ...
    def aggregate(self, server: Server, state: Any, replies: Iterator[tuple[int, Any]]) -> Any: ...
    def use(self, me: Client, message: Any) -> Coroutine: ...

    # def carry_on(self, server, state) -> Any: optional, the state after a round that came to nothing; else it stays as it is

    # Where there are `further` servers:
    # def answer(self, server: Server, message: Any) -> Any
    # def check_question(self, server, message, past) -> Mapping[str, int]: optional, see `checked_question`
    # def answers_tell(self, setting, questions, refusals) -> float: optional, how many bits a run's answers say at most of the
    #     key that they are opened with


class BadAnswer(CoveyError):
    """A further server's answer cannot be used, or there is none: the round is lost, and nobody's reply is to blame."""


@dataclass(frozen=True)
class Declaration:
    """What an algorithm says about itself, with what holds where it says nothing.

    An algorithm without `sends` and `replies` runs, but nobody can tell what its messages show: replies are checked for
    numbers only, and an audit says so.
    """

    name: str
    title: str = ""
    label: str = ""  # as its authors write it; else its name
    sends: Messages = ()  # what a client may get
    replies: Messages = ()  # what a client may return
    parts: Messages = ()  # what may stand inside a reply that holds other messages
    asks: Messages = ()  # what further servers may be asked …
    answers: Messages = ()  # … and may answer
    consults: Messages = ()  # what clients may be asked within a round, beyond the broadcast …
    advises: Messages = ()  # … and may answer
    server: str = "server"  # the party that clients talk to, as views and keys name it
    further: tuple[str, ...] = ()  # the other servers; each has keys of its own and keeps nothing
    trains: str = "clusters"  # a model for each cluster; "one" for all; or each client its "own", which never leaves it
    numbered: bool = (
        True  # whether cluster model j begins at start j; else clusters get their numbers as they are formed
    )
    # family of encryptions it can run under: "sums" (crypto/sealing, crypto/openings), "masks" (crypto/openings) or "rows"
    # (crypto/blinded)
    sealing: str = ""
    masked: Messages = ()  # what a client returns in the place of `replies` under an encryption of the family "masks"
    sealed_with: str = "sealing"  # which of its keys seals sums: clients hold the key, the server its public half
    gives: tuple[Given, ...] = ()  # what it hands out by design, beyond what its messages carry
    together: Messages = ()  # what clients get, and what they return, as all its servers together read it: `read_together`
    key_kinds: Mapping[str, Describe] = field(
        default_factory=dict
    )  # what its key material is, for `covey keys inspect`
    averages: bool = (
        True  # whether the models it hands out are averages of trained ones: statistics survive nothing else
    )
    family: str = ""  # what comparisons put it beside: "personalised", "private"; "": by what it trains
    surveyed: bool = False  # whether `covey audit --matrix` compares it unless told what to compare
    strengths: tuple[Strength, ...] = ()  # options that buy protection: `covey audit --frontier` sweeps them
    # whether its text (`broadcast`, `client`, `use`, `aggregate`) reads the same for many clients as for one: vectors as rows
    # [n, d], numbers as arrays [n], nothing but plain training, losses, rowwise arithmetic and functions of one client without
    # vectors asked for (see `engines.cohort`)
    in_rows: bool = False
    sends_alike: bool = False  # whether `broadcast` gives all clients of a round the same: then it is asked once
    rounds_sent: int = 1  # rounds whose sums one broadcast may hold: messages grow with it
    measures: Mapping[str, Measure] = field(default_factory=dict)  # what it notes about itself, and how to show it
    min_group: int = 1  # fewest clients of an average that it hands out
    personal_layers: int = (
        0  # how many of the last layers are personal where the experiment does not say (`layers.personal`)
    )


def is_reticent(algorithm: Any, setting: Setting) -> bool:
    asked = getattr(algorithm, "reticent", None)
    return asked is not None and bool(asked(setting))


def declaration(algorithm: Any) -> Declaration:
    """An algorithm's declaration; of a class as well, as far as it stands there. CoveyError where a field holds something else."""
    declared = {f.name: getattr(algorithm, f.name) for f in fields(Declaration) if hasattr(algorithm, f.name)}
    known = {name: value for name, value in declared.items() if not isinstance(value, property)}
    _check(algorithm if isinstance(algorithm, type) else type(algorithm), known)
    return Declaration(**{**known, "label": known.get("label") or known["name"]})


def declaration_under(algorithm: Any, encryption: str) -> Declaration:
    """What it says about itself, with the messages that it has under this encryption."""
    declared = declaration(algorithm)
    asks = encryption in openings.SCHEMES
    masked = encryption in openings.of_family(MASKS) and declared.sealing == MASKS
    return replace(
        declared,
        replies=declared.masked if masked else declared.replies,
        consults=declared.consults if asks else (),
        advises=declared.advises if asks else (),
    )


def _check(kind: type, declared: Mapping[str, Any]) -> None:
    if "name" not in declared:
        raise CoveyError(f"{kind.__qualname__} declares no name: expected a text, such as name = 'mine'")
    for name, value in declared.items():
        holds, expected = _EXPECTED[name]
        if not holds(value):
            shown = " ".join(repr(value).split())
            raise CoveyError(f"{kind.__qualname__}.{name} is {shown[:100]}: expected {expected}")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _tuple_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(isinstance(one, kind) for one in value)


def _table_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(_text(key) and holds(one) for key, one in value.items())


_A_TEXT = (_text, "a text")
_CLASSES = (_tuple_of(type), "a tuple of message classes, such as (Update,)")
_TRAINS = ("one", "clusters", "own")
_EXPECTED: dict[
    str, tuple[Callable[[Any], bool], str]
] = {  # field of a declaration -> (whether a value fits, in words)
    "name": (lambda value: _text(value) and value != "", "a text, such as 'mine'"),
    "title": _A_TEXT,
    "label": _A_TEXT,
    "sends": _CLASSES,
    "replies": _CLASSES,
    "parts": _CLASSES,
    "masked": _CLASSES,
    "asks": _CLASSES,
    "answers": _CLASSES,
    "consults": _CLASSES,
    "advises": _CLASSES,
    "server": _A_TEXT,
    "further": (_tuple_of(str), "a tuple of texts, such as ('csp',)"),
    "trains": (lambda value: _text(value) and value in _TRAINS, "'one', 'clusters' or 'own'"),
    "sealing": _A_TEXT,
    "sealed_with": _A_TEXT,
    "together": (
        lambda value: _CLASSES[0](value) and len(value) in (0, 2),
        "two message classes, what clients get and what they return",
    ),
    "gives": (_tuple_of(Given), "a tuple of leaks.Given"),
    "key_kinds": (_table_of(callable), "a table of functions (material, role) -> KeyKind, by the names of keys"),
    "averages": (lambda value: isinstance(value, bool), "True or False"),
    "family": _A_TEXT,
    "surveyed": (lambda value: isinstance(value, bool), "True or False"),
    "in_rows": (lambda value: isinstance(value, bool), "True or False"),
    "sends_alike": (lambda value: isinstance(value, bool), "True or False"),
    "numbered": (lambda value: isinstance(value, bool), "True or False"),
    "strengths": (_tuple_of(Strength), "a tuple of strength.Strength"),
    "rounds_sent": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        "a whole number of at least 1",
    ),
    "min_group": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "personal_layers": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "a whole number that is not negative",
    ),
    "measures": (_table_of(lambda one: isinstance(one, Measure)), "a table of measures.Measure, by the names of notes"),
}


def checked_question(algorithm: Any, server: Server, message: Any, past: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """What a further server writes down of a question before it opens anything of it; refuses what was not agreed.

    `past` is what it wrote down of all questions of the run before, with their rounds.
    """
    declared = declaration(algorithm)
    if declared.asks and type(message) not in declared.asks:
        names = " or ".join(kind.__name__ for kind in declared.asks)
        raise CoveyError(f"it was asked with a {type(message).__name__}, expected {names}")
    own = getattr(algorithm, "check_question", None)
    return dict(own(server, message, past)) if own else {}


def carried_on(algorithm: Any, server: Server, state: Any) -> Any:
    """The state that goes into the next round where this one came to nothing; some messages are signed for their round."""
    own = getattr(algorithm, "carry_on", None)
    return own(server, state) if own else state


def counts_models(algorithm: Any) -> bool:
    """Whether it counts its models itself, in its final state."""
    return hasattr(algorithm, "models")


def models_of(algorithm: Any, state: Any, clients: int, clusters: int) -> int:
    """How many models a run has trained: as the algorithm counts them, else by what it declares."""
    if counts_models(algorithm):
        return int(algorithm.models(state))
    return {"one": 1, "own": clients}.get(declaration(algorithm).trains, clusters)


@overload
def wanted(
    algorithm: Algorithm, state: Any, clients: NDArray[np.int64], method: str = "wants"
) -> NDArray[np.int64]: ...
@overload
def wanted(algorithm: Algorithm, state: Any, clients: Iterable[int], method: str = "wants") -> list[int]: ...
def wanted(
    algorithm: Algorithm, state: Any, clients: Iterable[int] | NDArray[np.int64], method: str = "wants"
) -> list[int] | NDArray[np.int64]:
    """The clients that the algorithm's optional `wants` (or `serves`) names; without such a method all. Arrays stay arrays."""
    asked = getattr(algorithm, method, None)
    if isinstance(clients, np.ndarray):
        return clients if asked is None else np.array([i for i in clients.tolist() if asked(state, i)], np.int64)
    numbers = [int(i) for i in clients]
    return numbers if asked is None else [i for i in numbers if asked(state, i)]


def awaited(algorithm: Algorithm, state: Any, encryption: str) -> Messages:
    """The message classes that a client may return in the next round; none: nothing is declared."""
    asked = getattr(algorithm, "awaits", None)
    return tuple(asked(state)) if asked else declaration_under(algorithm, encryption).replies


def own_keys(keys: Mapping[str, Any], client: int) -> dict[str, Any]:
    """What one client holds of `keys["clients"]`: all that is common, and its entry under "own"."""
    if not keys:
        return {}
    common = {name: value for name, value in keys.items() if name != "own"}
    return common | dict(keys.get("own", {}).get(client, {}))


def server_of(algorithm: Algorithm) -> str:
    """The party that clients talk to, as views and keys name it."""
    return declaration(algorithm).server


def public_sealing(declared: Declaration, keys: Mapping[str, Any]) -> Any:
    """What the server of an algorithm that seals sums can check them with, among its own keys."""
    if declared.sealed_with not in keys:
        raise CoveyError(
            f"{declared.name} seals sums, and its {declared.server} holds no key '{declared.sealed_with}' to check them with: "
            f"expected `sealed_with` of the algorithm to name one of its keys ({', '.join(keys) or 'there is none'})"
        )
    return keys[declared.sealed_with]


def make_keys(
    algorithm: Algorithm, setting: Setting, publics: Mapping[int, bytes] | None = None
) -> dict[str, dict[str, Any]]:
    """Key material by party ('clients', 'server', 'csp', …), from the operating system; {} for algorithms without keys.

    `publics`: by client, of keys that clients made themselves, where the algorithm's `keys` can do with them.
    """
    make = getattr(algorithm, "keys", None)
    if publics is None:
        return make(setting) if make else {}
    if make is None or not hasattr(algorithm, "check_keys"):
        raise CoveyError(f"{algorithm.name} has no use for keys that silos made themselves: leave --own out")
    return dict(make(setting, publics))
