"""What could leak, and who might learn it: the rows and columns of an audit, as attacks and algorithms name them.

A `Leak` says what the question is and in which experiments it has a meaning. One of your own is an instance of your own: an
attack that declares it as its `row` brings it into the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SERVER, SECOND, CLIENT = "server", "second server", "participating client"
COALITION, EAVESDROPPER, SERVERS = "server and client", "eavesdropper", "both servers"
PARTIES = (SERVER, SECOND, CLIENT, COALITION, EAVESDROPPER, SERVERS)
WIRE = (SERVER, EAVESDROPPER)  # who sees what clients send and get


def _always(experiment: Any) -> str:
    return ""


@dataclass(frozen=True)
class Leak:
    name: str
    question: str
    absent: Callable[[Any], str] = _always  # why it has no meaning in this experiment, whoever looks; "": it has
    also: tuple[str, ...] = ()  # its names in older audits
    does: str = ""  # of what is no knowledge: what somebody "can …"; its verdicts speak of harm
    known: Mapping[str, str] = field(
        default_factory=dict, hash=False
    )  # party -> what others' work does that covey has not


@dataclass(frozen=True)
class Given:
    """What a protocol hands a party by itself, which no attack needs to find."""

    leak: Leak
    to: tuple[str, ...]
    why: str


# ---------------------------------------------------------------- the leaks that covey's attacks look for


def _no_clusters(experiment: Any) -> str:
    return _alone(experiment) or ("" if _trains(experiment) == "clusters" else f"{_label(experiment)} has no clusters")


def _no_other_clusters(experiment: Any) -> str:
    clusters = _trains(experiment) == "clusters"
    return _alone(experiment) or ("" if clusters else f"{_label(experiment)} has no other clusters")


def _alone(experiment: Any) -> str:
    return "no model ever leaves a client" if _trains(experiment) == "own" else ""


def _trains(experiment: Any) -> str:
    return str(getattr(experiment.algorithm, "trains", "clusters"))


def _label(experiment: Any) -> str:
    return str(getattr(experiment.algorithm, "label", experiment.algorithm.name))


_MALICIOUS = (
    "a server that departs from the protocol can single out one client in a sealed sum (Pasquini et al. 2022, Boenisch et "
    "al. 2023); covey's servers are curious, not malicious"
)
_MIXED = (
    "an average over few clients still tells of each (Melis et al. 2019); covey has no attack that takes them apart"
)
IDENTITY = Leak(
    "cluster identity", "which cluster a client chose", _no_clusters, known={CLIENT: _MIXED, SERVER: _MALICIOUS}
)
LABELS = Leak(
    "label distribution",
    "which labels a client's data has, and how many of each",
    _alone,
    ("label preference",),
    known={CLIENT: _MIXED, SERVER: _MALICIOUS},
)
PREFERENCE = LABELS  # its name before, for attacks of users' own
PROPERTY = Leak(
    "property",
    "how many of a client's samples have a property that its task is not about, or when it trained on such",
    _alone,
    known={SERVER: _MALICIOUS, CLIENT: _MIXED},
)
CATEGORY = Leak(
    "category",
    "which categories the clients of a cluster hold",
    _alone,
    known={SERVER: _MALICIOUS, CLIENT: "the change of any model tells the labels behind it (Wainakh et al. 2022)"},
)
MEMBERSHIP = Leak(
    "membership",
    "whether a given sample was trained on, and by whom",
    _alone,
    known={
        SERVER: _MALICIOUS,
        CLIENT: "shadows of a whole federation (Nasr et al. 2019) cost many runs; covey has none",
    },
)
CLIENTS = Leak(
    "client membership",
    "whether the data of a given client went into the models",
    _alone,
    known={
        SERVER: _MALICIOUS,
        CLIENT: "shadows of a whole federation with and without a client (as Nasr et al. 2019 for records) cost many runs; covey "
        "has none",
    },
)
RECONSTRUCTION = Leak(
    "reconstruction",
    "what a client's samples look like",
    _alone,
    known={
        SERVER: "models that a server shapes for it give whole batches back (Boenisch et al. 2023); covey's servers send what the "
        "protocol has",
        CLIENT: "averages of few clients are inverted, too (Geiping et al. 2020); covey's attacks read single uploads",
    },
)
MODELS = Leak(
    "other clusters' models",
    "models of clusters that a party is not in",
    _no_other_clusters,
    known={
        SERVER: _MALICIOUS,
        CLIENT: "clients that steer their updates are put where they want (Kim et al. 2023); covey does so for trees only",
    },
)
LINKAGE = Leak(
    "linkage",
    "whose a shuffled row is, or that uploads under two names are one client's",
    _alone,
    ("row linkage",),
    known={SERVER: _MALICIOUS, CLIENT: _MIXED},
)
ISOLATION = Leak(
    "another client's model",
    "what a single other client trained, exactly",
    _alone,
    known={
        SERVER: _MALICIOUS,
        CLIENT: "sums of rounds that differ in few clients give these away (So et al. 2023); covey looks at single rounds",
    },
)
INTEGRITY = Leak(
    "integrity",
    "whether one participant can spoil what others are given",
    _alone,
    known={
        SERVER: "a server that departs from the protocol can send what it likes; covey's servers are curious, not malicious",
        CLIENT: "several poisoners, and poison that knows the aggregation rule (Fang et al. 2020), do more; covey has one client",
    },
    does="spoil what others are given",
)
LEAKS = (
    IDENTITY,
    LABELS,
    PROPERTY,
    CATEGORY,
    MEMBERSHIP,
    CLIENTS,
    RECONSTRUCTION,
    MODELS,
    ISOLATION,
    LINKAGE,
    INTEGRITY,
)  # in the order of an audit's rows
CURRENT = {former: leak.name for leak in LEAKS for former in leak.also}  # a row's name in an older audit -> its name
# What is known of these holds of the party, too.
MEMBERS = {COALITION: (SERVER, CLIENT), SERVERS: (SERVER,), SECOND: (SERVER,)}
_ON_THE_LINE = (
    "who can also change what passes is as strong as a server that departs from the protocol (Pasquini et al. 2022): "
    "signed letters and TLS are against that, and covey's eavesdropper only reads"
)


def known_elsewhere(row: Leak, column: str) -> str:
    """What others' work does that covey has not; "": nothing that we know of."""
    names = (column, *MEMBERS.get(column, ()))
    said = next((row.known[name] for name in names if row.known.get(name)), "")
    return said or (_ON_THE_LINE if column == EAVESDROPPER else "")


DEEDS = {leak.name: leak.does for leak in LEAKS if leak.does}
OWN = Leak("own attacks", "what attacks of one's own look for that do not say in which row they belong")
