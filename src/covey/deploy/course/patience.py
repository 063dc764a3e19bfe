"""How long a coordinator waits, what it says meanwhile, and when waiting counts as a failure."""

from __future__ import annotations

import time

from covey.deploy.session import Session
from covey.errors import CoveyError

TRIES = 3  # of a round in which nobody gives a usable answer


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._at

    def shorten(self, seconds: float) -> None:
        """To so many seconds from now, where there are more left."""
        self._at = min(self._at, time.monotonic() + seconds)


class Patience:
    """Of one round: words are said once, each time that a round may take counts as a failed try, and tries are counted."""

    def __init__(self, session: Session, round: int, round_seconds: float) -> None:
        self._session, self._round, self._seconds = session, round, round_seconds
        self._begin, self._overdue, self._announced, self._tries = time.monotonic(), 1, "", 0

    def announce(self, words: str) -> None:
        if words != self._announced:
            self._session.say(f"round {self._round}: {words}")
            self._announced = words

    def look_at_the_clock(self, words: str) -> None:
        if time.monotonic() - self._begin > self._overdue * self._seconds:
            self._overdue += 1
            self._session.warn(self._round, words)

    def count_refusal_of_all(self) -> None:
        """Every silo's answer was refused. They may be asked anew, but not for ever."""
        self._tries += 1
        self._session.warn(self._round, "every silo's answer was refused")
        if self._tries == TRIES:
            raise CoveyError(
                f"round {self._round}: every silo's answer was refused, {TRIES} times; see the reasons above"
            )
