"""Until when certificates hold: for owners, who are reminded, and for `covey status`.

What ends in less than WARN_DAYS is said when a party starts and once a day while it runs. Node and signing keys do not end by
themselves; they are revoked or renewed.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from covey.errors import CoveyError

WARN_DAYS = 30
DAY = 86400.0
SERVER, AUTHORITY = "the server's certificate", "the authority's certificate"
REMEDIES = {
    SERVER: "`covey keys renew` makes another one, and silos need not be told",
    AUTHORITY: "make new keys for all with `covey keys make`, and begin a new run with them",
}


@dataclass(frozen=True)
class Validity:
    """Until when something holds."""

    what: str
    until: float  # seconds since 1970

    def days(self, now: float) -> float:
        return (self.until - now) / DAY


def validities(folder: Path) -> list[Validity]:
    """Of the certificates in a party's folder."""
    files = {SERVER: folder / "server.crt", AUTHORITY: folder / "ca.crt"}
    return [Validity(what, _end(path)) for what, path in files.items() if path.is_file()]


class Reminder:
    """Says, at once and then once a day, what ends soon."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.time, first: float = 0.0) -> None:
        self._say, self._now, self._next = say, now, first

    def look(self, read: Callable[[], Iterable[Validity]], remedies: dict[str, str] | None = None) -> None:
        """`read` is asked once a day."""
        now = self._now()
        if now < self._next:
            return
        self._next = now + DAY
        for one in read():
            if one.days(now) < WARN_DAYS:
                self._say(f"{_ending(one, now)}: {(remedies or REMEDIES)[one.what]}")


def _ending(one: Validity, now: float) -> str:
    days = one.days(now)
    if days < 0:
        return f"{one.what} has ended on {_date(one.until)}"
    return f"{one.what} ends on {_date(one.until)}, in {days:.0f} days"


def _date(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d}"


def _end(path: Path) -> float:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError) as e:
        raise CoveyError(f"{path} is no certificate ({e}): copy it again from where the keys were made") from e
