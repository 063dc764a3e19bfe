"""The coordinator's time, as its answers give it.

Signatures and letters carry times, and Flower refuses one that is 5 s ahead of its own clock or 305 s behind it. TLS minds
only whether a certificate is valid today. So a silo keeps the coordinator's time in all that it sends there and gets from
there, and says where that is another than its own. Whoever can answer in the coordinator's name over TLS can shift it: what
depends on it is how old a letter of the coordinator's may be, and a round is answered once whatever its letter's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

EXACT_SECONDS = 3.0  # below that, a date in whole seconds and the way of an answer say nothing
SAY_SECONDS = 60.0  # from here on the owner is told


class Clock:
    """Seconds since 1970, by the coordinator's clock once it has answered."""

    def __init__(self, say: Callable[[str], None] = lambda text: None, local: Callable[[], float] = time.time) -> None:
        self.ahead = 0.0  # of this machine's clock
        self._say, self._local, self._said = say, local, 0.0

    def now(self) -> float:
        return self._local() - self.ahead

    def hear(self, date: str | None, asked: float) -> None:
        """The date of an answer to what was asked at this time of ours."""
        try:
            theirs = parsedate_to_datetime(date or "").timestamp() + 0.5
        except ValueError:
            return
        ahead = (asked + self._local()) / 2 - theirs
        slack = EXACT_SECONDS + (self._local() - asked) / 2
        self.ahead = 0.0 if abs(ahead) < slack else self.ahead if abs(ahead - self.ahead) < slack else ahead
        if abs(self.ahead - self._said) >= SAY_SECONDS:
            self._said = self.ahead
            side = "ahead of" if self.ahead > 0 else "behind"
            self._say(
                f"this machine's clock is {duration(self.ahead)} {side} the coordinator's; letters keep the coordinator's time; "
                "set both clocks (NTP): certificates expire by them"
                if self.ahead
                else "this machine's clock is that of the coordinator again"
            )

    def asked(self) -> float:
        return self._local()


def duration(seconds: float) -> str:
    """As people say it: "12 minutes"."""
    size = abs(seconds)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if size >= 2 * length or unit == "second":
            return f"{size / length:.0f} {unit}s"
    return ""
