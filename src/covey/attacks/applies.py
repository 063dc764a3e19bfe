"""What every attack would reveal, from where, and when it applies: the table behind `covey audit`.

Rows are what could leak, columns who might learn it. A rule says in words why its attack cannot read an algorithm's messages
(`fits`) or what the experiment lacks for it (`needs`), and "" where all is well. An attack that could only report that it saw
nothing it can read is not let near a run: its "no leak seen" would sound like safety. `given` says what a protocol hands out
by itself, which no attack needs to find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from covey.experiment.experiment import Experiment
from covey.report.format import pretty

IDENTITY, PREFERENCE, PROPERTY, CATEGORY = "cluster identity", "label preference", "property", "category"
MEMBERSHIP, MODELS, LINKAGE = "membership", "other clusters' models", "row linkage"
ROWS: dict[str, str] = {
    IDENTITY: "which cluster a client chose",
    PREFERENCE: "which set of labels a client's data is from",
    PROPERTY: "when a client trained on samples with a property that its task is not about",
    CATEGORY: "which categories the clients of a cluster hold",
    MEMBERSHIP: "whether a given sample was trained on",
    MODELS: "models of clusters that a party is not in",
    LINKAGE: "whose a shuffled row is, or that two rows of different rounds are one client's",
}
SERVER, SECOND, CLIENT = "server", "second server", "participating client"
COALITION, EAVESDROPPER = "server and client", "eavesdropper"
COLUMNS = (SERVER, SECOND, CLIENT, COALITION, EAVESDROPPER)

ONE_MODEL = ("local", "fedavg", "fedprox", "scaffold", "feddyn")
ALL_MODELS = ("ifca", "fedsoft", "fedem")  # the server sends every client all cluster models, in the clear
SEALABLE = ("mingledpie", "routing")  # every client gets, or rebuilds, all cluster models with the common key

Check = Callable[[Experiment], str]


@dataclass(frozen=True)
class Rule:
    """One attack in the audit."""

    row: str
    columns: tuple[str, ...]
    means: str  # how its score is to be read
    fits: Check  # why it cannot read this algorithm's messages; "": it can
    needs: Check = lambda experiment: ""  # what the experiment lacks for it, in words that a setting answers
    settings: Callable[[Experiment], Mapping[str, Any]] = lambda experiment: {}
    active: bool = False  # it changes what its client sends: nobody else's score counts in that run


def vantage(column: str, experiment: Experiment) -> str:
    """The parties of a column, as views name them; "" where the protocol has no such party."""
    server = str(getattr(experiment.algorithm, "server", "server"))
    second = "csp" if experiment.algorithm.name == "fedcaprivacy" else ""
    client = "client:0"
    return {
        SERVER: server,
        SECOND: second,
        CLIENT: client,
        COALITION: f"{server}+{client}",
        EAVESDROPPER: "eavesdropper",
    }[column]


def absent(row: str, experiment: Experiment) -> str:
    """Why a row has no meaning in this experiment, whoever looks; "" where it has."""
    name = experiment.algorithm.name
    if name == "local":
        return "no model ever leaves a client"
    if row == PREFERENCE and experiment.partition.name != "label_sets":
        return "clients are not drawn from sets of labels: partition is not 'label_sets'"
    if row == IDENTITY and name in ONE_MODEL:
        return f"{pretty(name)} has no clusters"
    if row == MODELS and name in ONE_MODEL:
        return f"{pretty(name)} has no other clusters"
    if row == PROPERTY and (experiment.partition.name != "property" or not experiment.exposure.every):
        return "no property is planted: set partition = 'property', on data with attributes, and exposure.every"
    if row == LINKAGE and name != "fedcaprivacy":
        return "no rows are shuffled here"
    return ""


def given(row: str, column: str, experiment: Experiment) -> str:
    """What the protocol itself hands this party, in words; "" where it does not."""
    name, sealed = experiment.algorithm.name, experiment.encryption != "none"
    words: dict[tuple[str, str], str] = {}
    if name == "sattler":
        words[IDENTITY, SERVER] = "it splits the clients itself"
        words[IDENTITY, EAVESDROPPER] = "every message to a client names its node of the tree"
        words[MODELS, SERVER] = words[MODELS, EAVESDROPPER] = "all models pass in the clear"
    if name == "fedsoft":
        words[IDENTITY, SERVER] = words[IDENTITY, EAVESDROPPER] = "every reply states the client's weights of clusters"
    if name == "pqfed":
        words[IDENTITY, SERVER] = "it selects who trains with whom"
    if name == "fedcaprivacy":
        words[IDENTITY, SERVER] = (
            "it is told the memberships of the rows that it shuffled, and sends models accordingly"
        )
        words[IDENTITY, EAVESDROPPER] = "every package lists its receiver's clusters, where the line is not encrypted"
        words[LINKAGE, SERVER] = "it shuffles the rows itself"
    if name in (*ALL_MODELS, *SEALABLE):
        words[MODELS, CLIENT] = "every client gets all cluster models" + (", sealed under the key it has" * sealed)
    if name in ALL_MODELS or (name in SEALABLE and not sealed):
        words[MODELS, SERVER] = words[MODELS, EAVESDROPPER] = "all cluster models pass in the clear"
    return words.get((row, column), "")


def implies(row: str, column: str, experiment: Experiment) -> tuple[str, ...]:
    """Parties whose leaks are this one's too, because it sees at least as much of what the attacks there read."""
    if column == COALITION:
        return (SERVER, CLIENT)
    if column not in (SERVER, EAVESDROPPER):
        return ()
    plain = experiment.encryption == "none" and experiment.algorithm.name != "fedcaprivacy"  # whose rows are blinded
    if row == MEMBERSHIP and plain:
        return (CLIENT,)  # that attack reads models, and all of them pass these two in the clear
    if row == CATEGORY and experiment.algorithm.name in (*ONE_MODEL[1:], *ALL_MODELS):
        return (CLIENT,)  # that attack reads the broadcast models and public samples only
    return ()


def _all(*checks: Check) -> Check:
    """The first obstacle."""
    return lambda experiment: next((words for check in checks if (words := check(experiment))), "")


def _runs(names: tuple[str, ...], why: str) -> Check:
    return lambda e: "" if e.algorithm.name in names else why


def _rounds(least: int) -> Check:
    return lambda e: "" if e.training.rounds >= least else f"needs {least} rounds, found {e.training.rounds}"


def _whatever(e: Experiment) -> str:
    return ""


def _public(e: Experiment) -> str:
    return "" if getattr(e.partition, "public", 0) else "needs samples that no client holds: set partition.public"


def _joiners(e: Experiment) -> str:
    last = e.participation.joined(e.training.rounds, e.clients)
    late = 0 < e.participation.initial < last
    return "" if late else "needs clients that join later: set participation.initial, join and join_every"


def _attacked_rounds(e: Experiment) -> dict[str, Any]:
    """Up to five rounds, spread, of those whose result is sent to somebody; a long run keeps the attack's own rhythm."""
    last = e.training.rounds - 1
    if last >= 20:
        return {}
    count = min(5, last)
    return {"rounds": sorted({1 + round(i * (last - 1) / max(count - 1, 1)) for i in range(count)})}


def _from_attacker(e: Experiment) -> dict[str, Any]:
    return {"vantage": f"client:{e.partition.attacker}"}


def _colluders(e: Experiment) -> dict[str, Any]:
    first = e.participation.initial
    return {"first": first, "colluders": e.participation.joined(e.training.rounds, e.clients) - first}


_SETS = _runs(("ifca", *SEALABLE), "no reply holds an identity or a set of them, and that is all this attack reads")
_WHOLE = _runs(
    ("fedavg", "fedprox", "feddyn", "ifca", "fedsoft", *SEALABLE), "no reply is a model that A2 could retrain"
)
_SUCCESSIVE = _runs(ALL_MODELS, "category inference reads plain models of all clusters, sent to all")
_UPDATES = _runs(
    ("fedavg", "fedprox", "feddyn", *ALL_MODELS), "property inference reads plain models, sent and returned"
)
_TREE = _runs(("sattler",), "acquisition walks down Sattler's tree, and there is none")
_CLOUD = _runs(("fedcaprivacy",), "there is no second server that opens rows")
_NOISY = _runs(("pqfed",), "clients send no features")
_GUESS = "share of clients whose cluster is guessed right; 1 is all"
_LINK = "share of rows matched to the same client's row of the round before; 1 is all"
_NAMED = "share of rows whose sender is named rightly; 1 is all"
_AUC = "0.5 tells nothing, 1 everything"
_POWER = "share of a client's samples recognised at this rate of false alarms; 1 is all"
_LABELS = "share of clients whose set of labels is guessed right; 1 is all"
_F1 = "F1 of the categories said to be in a cluster; naming all of them scores too, so only what is above the control counts"
_OBTAINED = "share of the cluster models that the colluders obtain; 1 is all"
_WATCHED = (SERVER, EAVESDROPPER)

APPLIES: dict[str, Rule] = {
    "a1": Rule(IDENTITY, _WATCHED, _GUESS, _SETS),
    "a1_prior": Rule(IDENTITY, _WATCHED, _GUESS, _SETS),
    "a1_intersection": Rule(IDENTITY, _WATCHED, _GUESS, _SETS),
    "a1_bayes": Rule(IDENTITY, _WATCHED, _GUESS, _SETS),
    "coalition": Rule(IDENTITY, (COALITION,), _GUESS, _SETS),
    "a2": Rule(PREFERENCE, _WATCHED, _LABELS, _WHOLE, _public),
    "property": Rule(PROPERTY, (CLIENT,), _AUC, _UPDATES, _rounds(3), _from_attacker),
    "property_active": Rule(PROPERTY, (CLIENT,), _AUC, _UPDATES, _rounds(3), _from_attacker, active=True),
    "category": Rule(CATEGORY, (CLIENT,), _F1, _SUCCESSIVE, _all(_public, _rounds(2)), _attacked_rounds),
    "membership": Rule(MEMBERSHIP, _WATCHED, _POWER, _NOISY),
    "membership_l1": Rule(MEMBERSHIP, _WATCHED, _POWER, _NOISY),
    "membership_ratio": Rule(MEMBERSHIP, _WATCHED, _POWER, _NOISY, _public),
    "loss_membership": Rule(MEMBERSHIP, (CLIENT,), _AUC, _whatever),  # it opens what its own client can open
    "acquisition": Rule(MODELS, (CLIENT,), _OBTAINED, _TREE, _joiners, _colluders, active=True),
    "naming": Rule(LINKAGE, (SECOND,), _NAMED, _CLOUD),
    "naming_histogram": Rule(LINKAGE, (SECOND,), _NAMED, _CLOUD),
    "linkage": Rule(LINKAGE, (SECOND,), _LINK, _CLOUD, _rounds(2)),
    "linkage_profile": Rule(LINKAGE, (SECOND,), _LINK, _CLOUD, _rounds(2)),
    "linkage_graph": Rule(LINKAGE, (SECOND,), _LINK, _CLOUD, _rounds(2)),
    "linkage_blocks": Rule(LINKAGE, (SECOND,), _LINK, _CLOUD, _rounds(2)),
}
