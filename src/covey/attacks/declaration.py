"""What an attack says about itself, so that nobody needs to know it by name.

An audit asks what an attack reads and from where it looks, runs it where some declared message of the protocol carries that,
and says otherwise what is missing. Class variables, all of them optional for an attack of one's own:

    label      its name for people
    row        the leak that it looks for, `covey.leaks`; an attack without one is audited in a row of its own
    seen_from  the parties that may make it, as an audit's columns name them
    reads      what it must find in the protocol's messages, all of it; each a `Reads`
    means      how its score is to be read, in words
    controls   the names of its controls: attackers that ignore the observation
    active     whether it changes what its client sends: nobody else's score counts in that run
    own_rows   whether it needs the data of its own client: then nobody else can make it who sees the same
    lacks      classmethod(experiment) -> what the experiment lacks for it, in words that a setting answers; "": nothing
    audited    classmethod(experiment) -> the settings that an audit gives it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from covey import roles
from covey.leaks import PARTIES, Leak

# By clients, by clients, of a further server, of clients within a round: as algorithms declare it.
GOT, RETURNED, ASKED, CONSULTED = "sends", "replies", "asks", "consults"
_WORDS = {
    GOT: "message to a client",
    RETURNED: "reply",
    ASKED: "message to a second server",
    CONSULTED: "further question to a client",
}


@dataclass(frozen=True)
class Reads:
    """One thing that an attack must find: a field of one of these roles, or a message of one of these classes."""

    what: tuple[type, ...]
    among: str = RETURNED
    sealed: bool = False  # it can use what stands inside something sealed: it holds the key, or tries its luck

    def missing(self, algorithm: Any) -> str:
        """Why no message that an algorithm (or its declaration) names has it, in words; "": one has."""
        kinds: tuple[type, ...] = getattr(algorithm, self.among, ())
        wanted = tuple(kind for kind in self.what if issubclass(kind, roles.Role))
        classes = tuple(kind for kind in self.what if not issubclass(kind, roles.Role))
        if any(issubclass(kind, classes) or roles.carries(kind, *wanted, sealed=self.sealed) for kind in kinds):
            return ""
        verb = "carries" if wanted else "is"
        words = [role.words for role in wanted] + [f"a {kind.__name__}" for kind in classes]
        listed = " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
        return f"no {_WORDS[self.among]} {verb} {listed}, and that is all this attack reads"


def _nothing_lacks(experiment: Any) -> str:
    return ""


def _as_it_is(experiment: Any) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Declaration:
    """What an attack says about itself, with what holds where it says nothing."""

    name: str
    label: str = ""
    title: str = ""
    row: Leak | None = None
    seen_from: tuple[str, ...] = ()
    reads: tuple[Reads, ...] = ()
    means: str = ""
    controls: tuple[str, ...] = ()
    active: bool = False
    own_rows: bool = True  # what does not say that it needs none is not believed to need none
    lacks: Callable[[Any], str] = _nothing_lacks
    audited: Callable[[Any], Mapping[str, Any]] = _as_it_is

    def unreadable(self, algorithm: Any) -> str:
        """Why it cannot read this algorithm's messages; "": it can."""
        return next((words for one in self.reads if (words := one.missing(algorithm))), "")

    def overheard(self) -> bool:
        """Whether whoever sees what clients get in the clear can make it as well as a client."""
        return not self.active and not self.own_rows and all(one.among == GOT for one in self.reads)


def declaration(attack: Any) -> Declaration:
    """Of an attack, or of its class."""
    names = Declaration.__dataclass_fields__
    declared = {name: getattr(attack, name) for name in names if hasattr(attack, name)}
    declared["active"] = bool(declared.get("active") or hasattr(attack, "replaces"))
    return Declaration(**{**declared, "label": declared.get("label") or declared["name"].replace("_", " ")})


def misdeclared(attack: Any) -> str:
    """What an attack, or its class, declares that nobody can read, in one sentence; "": nothing."""
    name = getattr(attack, "name", None)
    if not isinstance(name, str) or not name:
        kind = attack if isinstance(attack, type) else type(attack)
        return f"attack {kind.__name__}: name is {name!r}, expected a word"
    for field, (fits, expected) in _EXPECTED.items():
        if hasattr(attack, field) and not fits(getattr(attack, field)):
            return f"attack '{name}': {field} is {getattr(attack, field)!r}, expected {expected}"
    if not isinstance(attack, type) and not isinstance(getattr(attack, "vantage", None), str):
        return (
            f"attack '{name}': vantage is {getattr(attack, 'vantage', None)!r}, expected a party, for example 'server'"
        )
    return ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _each(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple | list) and all(map(fits, value))


_TEXT = (_is_text, "a text")
_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "label": _TEXT,
    "title": _TEXT,
    "means": _TEXT,
    "row": (lambda value: value is None or isinstance(value, Leak), "a covey.leaks.Leak"),
    "seen_from": (_each(lambda one: one in PARTIES), f"a tuple of {', '.join(map(repr, PARTIES))}"),
    "reads": (_each(lambda one: isinstance(one, Reads)), "a tuple of covey.attacks.declaration.Reads"),
    "controls": (_each(_is_text), "a tuple of texts"),
    "lacks": (callable, "a classmethod of the experiment"),
    "audited": (callable, "a classmethod of the experiment"),
}


def lacks_public(experiment: Any) -> str:
    public = getattr(experiment.partition, "public", 0)
    return "" if public else "needs samples that no client holds: set partition.public"


def lacks_rounds(experiment: Any, least: int) -> str:
    rounds = experiment.training.rounds
    return "" if rounds >= least else f"needs {least} rounds, found {rounds}"
