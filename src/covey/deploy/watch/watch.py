"""What happens to a party while it runs, gathered: its status, on disk every second where it changes, and events for the journal.

It only listens. Whatever goes wrong in it (a full disk) ends nothing and changes nothing.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey import files
from covey.deploy.watch.journal import Journal
from covey.errors import CoveyError, printable
from covey.results.status import (
    ANSWERED,
    AWAY,
    ENDED,
    FAILED,
    FINISHED,
    MOST,
    REFUSED,
    ROUND,
    STATUS,
    STOPPED,
    THERE,
    WAITING,
    WORKING,
    Peer,
    Refusal,
    Spending,
    Status,
    now,
    read,
)
from covey.version import __version__

WRITE_SECONDS, ALIVE_SECONDS = 1.0, 10.0  # between writings: where something changed, and where nothing did
PRICE_SECONDS = 30.0  # between two pricings of what was spent
ALERT = 3  # failures in a row
WORDS = 400  # letters of a reason
Prices = Callable[[], Mapping[str, Any]]


class Watch:
    """Safe to tell from several threads. Without a folder nothing is written."""

    def __init__(
        self, status: Status | None = None, journal: Journal | None = None, folder: Path | None = None
    ) -> None:
        moment = now()
        self.journal = journal or Journal(quiet=True)
        self._path = None if folder is None else folder / STATUS
        self._status = replace(
            status or Status("", ""), begun=moment, updated=moment, process=os.getpid(), version=__version__
        )
        self._lock, self._changed, self._over = threading.Lock(), threading.Event(), threading.Event()
        self._prices: Prices | None = None
        self._priced = 0.0
        self._writer: threading.Thread | None = None
        if folder is not None:
            with contextlib.suppress(CoveyError):  # what it has counted before it was started again
                before = read(folder)
                self._status = replace(self._status, peers=_absent(before.peers), refusals=before.refusals)

    @property
    def status(self) -> Status:
        """As it is now, for who asks while this process runs."""
        with self._lock:
            return replace(self._status, updated=now())

    def begin(self, prices: Prices | None = None) -> Watch:
        """Writes from now on; `prices` gives what has been spent, and is asked seldom."""
        self._prices = prices
        if self._path is not None:
            self._writer = threading.Thread(target=self._write_on, name="covey-status", daemon=True)
            self._writer.start()
        return self

    def expect(self, names: Iterable[str]) -> None:
        """The parties that there should be, those that left for good not among them."""
        with self._lock:
            known, wanted = {peer.name: peer for peer in self._status.peers}, list(names)
            if [peer.name for peer in self._status.peers] != wanted:
                self._set(peers=tuple(known.get(name, Peer(name, since=now())) for name in wanted))

    def describe(self, **facts: Any) -> None:
        """Fields of the status that nothing happens to."""
        with self._lock:
            self._set(**facts)

    def met(self, name: str, version: str = "") -> None:
        version = printable(version, WORDS)
        self._move(name, THERE, version=version)
        self.journal.event("there", peer=name, version=version)

    def left(self, name: str, why: str = "gone") -> None:
        self._move(name, AWAY)
        self.journal.event("left", peer=name, why=printable(why, WORDS))

    def waits(self, words: str) -> None:
        with self._lock:
            self._set(phase=WAITING, words=printable(words, WORDS))
        self.journal.event("waiting", text=printable(words, WORDS))

    def begins(self, round: int) -> None:
        with self._lock:
            idle = tuple(replace(p, state=THERE) if p.state in (ANSWERED, REFUSED) else p for p in self._status.peers)
            self._set(phase=ROUND, words="", round=round, since=now(), peers=idle)
        self.journal.event("round begins", round=round)

    def asked(self, name: str, down: int, round: int) -> None:
        """A letter of this round to a party is on its way."""
        with self._lock:
            peer = self._peer(name)
            first = peer.state != WORKING
            self._put(
                replace(peer, state=WORKING, since=now() if first else peer.since, down=peer.down + down, begun=round)
            )

    def answered(self, name: str, up: int, further: bool = False) -> None:
        """Its answer to the round; with `further` to another letter, after or beside it."""
        with self._lock:
            peer, moment = self._peer(name), now()
            took = peer.seconds if further or peer.state != WORKING else moment - peer.since
            done = replace(peer, state=ANSWERED, since=moment, seconds=took, up=peer.up + up)
            self._put(done if further else replace(done, answered=peer.answered + 1))
        self.journal.event("answered", peer=name, round=self._status.round, seconds=took, bytes=up, further=further)

    def refused(self, name: str, round: int, why: str) -> None:
        why = printable(why, WORDS)
        with self._lock:
            kept = (Refusal(now(), round, name, why), *self._status.refusals)[:MOST]
            self._set(refusals=kept)
            if any(peer.name == name for peer in self._status.peers):
                peer = self._peer(name)
                self._put(replace(peer, state=REFUSED, since=now(), refused=peer.refused + 1, why=why))
        self.journal.event("refused", peer=name, round=round, why=why)

    def discard(self, replies: int) -> None:
        """Replies that were too old."""
        with self._lock:
            self._set(discarded=self._status.discarded + replies)

    def failed(self, round: int, why: str) -> str:
        """A round, or a try of one, came to nothing. A sentence from the third in a row on, once."""
        why = printable(why, WORDS)
        with self._lock:
            failures = self._status.failures + 1
            alert = f"ALERT: round {round}: {failures} failures in a row, lastly: {why}" if failures >= ALERT else ""
            new = bool(alert) and not self._status.alert
            self._set(failures=failures, alert=alert)
        self.journal.event("failed", round=round, failures=failures, why=why)
        if new:
            self.journal.event("alert", round=round, text=alert)
        return alert if new else ""

    def ends(self, round: int, seconds: float, answered: Iterable[str], missed: Iterable[str], well: bool) -> str:
        """A round is over. A sentence where the trouble is over that there was an alert about."""
        gone = set(missed)
        with self._lock:
            over, failures = well and bool(self._status.alert), self._status.failures
            for peer in self._status.peers:
                if peer.name in gone:
                    self._put(replace(peer, missed=peer.missed + 1))
            self._set(done=round, seconds=seconds, **({"failures": 0, "alert": ""} if well else {}))
        self.journal.event(
            "round ends", round=round, seconds=seconds, answered=sorted(answered), missed=sorted(gone), well=well
        )
        return f"round {round}: works again, after {failures} failures in a row" if over else ""

    def turn(self, round: int, outcome: str, seconds: float, down: int, up: int) -> None:
        """Of a silo or a further server: a letter came, and an answer leaves; of no bytes where the letter itself was refused."""
        with self._lock:
            (peer,), status = self._status.peers, self._status
            news = (round, outcome) != (status.round, status.words)
            answered = news and outcome == ANSWERED and round <= status.rounds  # the last letter is no round
            peer = replace(peer, up=peer.up + up, down=peer.down + down, refused=peer.refused + (up == 0))
            if news:
                refused = peer.refused + (up > 0 and outcome == REFUSED)
                peer = replace(peer, answered=peer.answered + answered, refused=refused, seconds=seconds)
            self._put(peer)
            done = min(max(status.done, round), status.rounds) if outcome == ANSWERED else status.done
            self._set(phase=ROUND if round else WAITING, words=outcome, round=round, done=done)
        if news or up == 0:
            self.journal.event("turn", round=round, outcome=outcome if up else REFUSED, seconds=seconds, bytes=up)

    def over(self, error: BaseException | None = None) -> None:
        """The last word: how it ended."""
        phase = FINISHED if error is None else FAILED if isinstance(error, Exception) else STOPPED  # by a signal
        words = printable(str(error) or type(error).__name__, WORDS) if phase == FAILED else ""
        with self._lock:
            if self._status.phase not in ENDED:
                self._set(phase=phase, words=words)
        self.journal.event("ends", phase=phase, text=words)
        self._over.set()
        if self._writer is not None:
            self._writer.join(timeout=5.0)
            self._price()
            self._write()

    def _move(self, name: str, state: str, **more: Any) -> None:
        with self._lock:
            self._put(replace(self._peer(name), state=state, since=now(), **more))

    def _peer(self, name: str) -> Peer:
        return next((peer for peer in self._status.peers if peer.name == name), Peer(name))

    def _put(self, one: Peer) -> None:
        peers = self._status.peers
        known = any(peer.name == one.name for peer in peers)
        self._set(peers=tuple(one if p.name == one.name else p for p in peers) if known else (*peers, one))

    def _set(self, **facts: Any) -> None:
        self._status = replace(self._status, **facts)
        self._changed.set()

    def _write_on(self) -> None:
        written = -math.inf  # the first one at once: rounds may take less than a second
        while True:
            if self._changed.is_set() or time.monotonic() - written > ALIVE_SECONDS:
                self._changed.clear()
                if time.monotonic() - self._priced > PRICE_SECONDS:
                    self._price()
                self._write()
                written = time.monotonic()
            if self._over.wait(WRITE_SECONDS):
                return

    def _price(self) -> None:
        if self._prices is None:
            return
        self._priced = time.monotonic()
        with contextlib.suppress(Exception):  # a status without an ε is better than none
            self.describe(**self._prices())

    def _write(self) -> None:
        assert self._path is not None
        with contextlib.suppress(CoveyError, OSError):  # a full disk is said by who needs it
            files.write_json(self._path, self.status.json())


def spendings(priced: Mapping[str, Mapping[str, Any]]) -> tuple[Spending, ...]:
    """What the ledger's `price` says, as far as an operator wants it."""
    return tuple(
        Spending(name, entry.get("epsilon"), entry.get("delta"), str(entry.get("unit", "")))
        for name, entry in sorted(priced.items())
    )


def _absent(peers: Sequence[Peer]) -> tuple[Peer, ...]:
    return tuple(replace(peer, state=AWAY, since=now()) for peer in peers)
