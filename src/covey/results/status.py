"""How a party of a deployment is, as it writes it down itself while it runs: `status.json` in its folder.

The coordinator's is about its silos, a silo's about its coordinator. It holds names, counts, times and sentences; no key, no
model, no number of a sample. Times are seconds since 1970 by the clock of who wrote it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from covey.errors import CoveyError

STATUS = "status.json"
SIMULATED = "; a simulated run has none, it is read in its report.html or with `covey ui`"
COORDINATOR = "coordinator"
AWAY, THERE, WORKING, ANSWERED, REFUSED = "away", "there", "working", "answered", "refused"  # states of a peer
WAITING, ROUND, FINISHED, FAILED, STOPPED = (
    "waiting",
    "in a round",
    "finished",
    "failed",
    "stopped",
)  # phases of a party
ENDED = (FINISHED, FAILED, STOPPED)
SILENT_SECONDS = 30.0  # a party writes every 10 s or more often: after so long it has ended, or stands still
LATE, LATE_SECONDS = (
    2.0,
    5.0,
)  # late: it takes more than so many times as long as the slowest of the others, and so long at least
SOON_DAYS = 30.0  # before a certificate expires
DAY = 86400.0
FETCH_SECONDS, FETCH_BYTES = 10.0, 10_000_000
MOST = 20  # refusals that are kept; all are in events.jsonl


@dataclass(frozen=True)
class Peer:
    """Another party, as this one knows it."""

    name: str
    state: str = AWAY
    since: float = 0.0  # of that state
    answered: int = 0  # rounds
    missed: int = 0  # rounds that went on without it
    refused: int = 0
    why: str = ""  # of the last refusal
    seconds: float = 0.0  # that its last answer took
    up: int = 0  # bytes of letters from silos to the coordinator …
    down: int = 0  # … and back
    version: str = ""
    begun: int = 0  # the round whose models it was sent last


@dataclass(frozen=True)
class Refusal:
    when: float
    round: int
    name: str
    why: str


@dataclass(frozen=True)
class Spending:
    """A mechanism's ε so far; None where nothing is guaranteed."""

    mechanism: str
    epsilon: float | None
    delta: float | None
    unit: str


@dataclass(frozen=True)
class Status:
    """See the module's docstring."""

    party: str
    kind: str  # coordinator, silo, second server
    what: str = ""  # the algorithm, as its authors name it
    phase: str = WAITING
    words: str = ""  # on that phase
    round: int = 0  # under way, or the last that was
    rounds: int = 0
    done: int = 0
    begun: float = 0.0
    since: float = 0.0  # the round under way began
    updated: float = 0.0
    seconds: float = 0.0  # of the last finished round
    failures: int = 0  # in a row, of rounds or tries
    alert: str = ""
    peers: tuple[Peer, ...] = ()
    refusals: tuple[Refusal, ...] = ()  # the last, the newest first
    privacy: tuple[Spending, ...] = ()
    budget: float | None = None  # ε that a silo's owner allows
    spent: float | None = None  # of it, over all runs with its keys
    expires: Mapping[str, float] = field(default_factory=dict)  # which certificate -> when
    process: int = 0
    version: str = ""
    bound: int | None = (
        None  # where rounds are asynchronous: how many rounds old a reply may be; None: they wait for all
    )
    staleness: float = 0.0  # of the last round's replies, in rounds: the mean …
    stalest: int = 0  # … and the most
    discarded: int = 0  # replies that were too old, since this process began

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    def is_silent(self, now: float) -> bool:
        """Whether its process has ended without a word, or stands still."""
        return not self.ended and now - self.updated > SILENT_SECONDS

    def behind(self, peer: Peer) -> int | None:
        """Where rounds are asynchronous: how many rounds old the models are that a peer is at work on; None: it is not at work."""
        return None if self.bound is None or peer.state != WORKING else max(0, self.round - peer.begun)

    def late(self, now: float) -> dict[str, float]:
        """Who keeps the round waiting though more than half have answered: name -> for how many seconds.

        Where rounds are asynchronous nobody does, and late is whose reply will be too old.
        """
        if self.bound is not None:
            return {p.name: now - p.since for p in self.peers if (self.behind(p) or 0) > self.bound}
        answered = [peer for peer in self.peers if peer.state == ANSWERED]
        working = [peer for peer in self.peers if peer.state == WORKING]
        if len(answered) < len(working) or not answered or self.is_silent(now):
            return {}
        usual = max(LATE_SECONDS, LATE * max(peer.seconds for peer in answered))
        return {peer.name: now - peer.since for peer in working if now - peer.since > usual}

    def troubles(self, now: float) -> tuple[str, ...]:
        """What a person should see to, in sentences; none: all is well."""
        said = [self.alert] if self.alert else []
        if self.phase == FAILED:
            said.append(f"the {self.kind} has ended: {self.words}")
        if self.is_silent(now):
            said.append(
                f"the {self.kind}'s process has written nothing for {now - self.updated:.0f} s: it has ended, or stands still"
            )
        if self.budget is not None and self.spent is not None and self.spent >= self.budget:
            said.append(f"the privacy budget of ε = {self.budget:g} is spent")
        for name, when in sorted(self.expires.items()):
            days = (when - now) / DAY
            if days < 0:
                said.append(f"{name} ended {-days:.0f} days ago: see `covey keys renew`")
            elif days < SOON_DAYS:
                said.append(f"{name} ends in {days:.0f} days: see `covey keys renew`")
        return tuple(said)

    def json(self) -> dict[str, Any]:
        return asdict(self)


def of_json(content: Any) -> Status:
    """From what `Status.json` gave; fields that this version does not know are left out."""
    try:
        table = _known(Status, content)
        parts = {"peers": Peer, "refusals": Refusal, "privacy": Spending}
        for name, kind in parts.items():
            table[name] = tuple(kind(**_known(kind, one)) for one in table.get(name, ()))
        dates = {str(name): float(when) for name, when in table.get("expires", {}).items()}
        return Status(**{**table, "expires": dates})
    except (TypeError, ValueError, AttributeError, KeyError) as e:
        raise CoveyError(
            f"this is no {STATUS} of this version of covey ({e}): ask the party that wrote it with `covey status`"
        ) from e


def read(folder: Path) -> Status:
    """Of a party's folder: a coordinator's `--out`, a silo's `--state`."""
    path = folder / STATUS
    try:
        return of_json(json.loads(path.read_text("utf-8")))
    except OSError as e:
        raise CoveyError(
            f"{folder} holds no {STATUS}: give the --out of `covey serve`, the --state of `covey join`, or the address of "
            f"--metrics{SIMULATED if (folder / 'result.json').is_file() else ''}"
        ) from e
    except ValueError as e:
        raise CoveyError(f"{path} is damaged: it is no JSON; it is written anew while its party runs") from e


def fetch(address: str) -> Status:
    """Of a party that runs with `--metrics`, on this machine or at the near end of an ssh tunnel."""
    from urllib.error import URLError
    from urllib.request import ProxyHandler, build_opener

    url = f"{address.rstrip('/').removesuffix('/' + STATUS)}/{STATUS}"
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=FETCH_SECONDS) as answer:
            return of_json(json.loads(answer.read(FETCH_BYTES)))
    except (URLError, OSError) as e:
        raise CoveyError(
            f"{url} does not answer ({getattr(e, 'reason', e)}): is the party running with --metrics?"
        ) from e
    except ValueError as e:
        raise CoveyError(
            f"{url} answers with something else than a status: give the address that --metrics named"
        ) from e


def now() -> float:
    return time.time()


TYPES: Mapping[str, Any] = {
    "str": str,
    "int": int,
    "float": int | float,
    "float | None": int | float | None,
    "int | None": int | None,
}


def _known(kind: Any, table: Any) -> dict[str, Any]:
    known = {f.name: f.type for f in fields(kind) if f.name in table}
    for name, type_name in known.items():
        if not isinstance(table[name], TYPES.get(str(type_name), object)):
            raise TypeError(f"{name} is {table[name]!r:.40}")
    return {name: table[name] for name in known}
