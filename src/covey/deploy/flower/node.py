"""A silo's or a further server's end of the line: it finds the coordinator, again and again, and answers its letters.

A life at the coordinator begins with `Fleet.begin` and ends with the first call that fails, since nobody can tell whether a
letter was lost with it: the next life begins as soon as the coordinator can be reached, the coordinator hears of it from its
door, and writes anew what was on its way. So there is one way back from everything: a cut, a pause, a restart of either side,
another address behind the same name.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from covey import files
from covey.deploy.flower.clock import Clock, duration
from covey.deploy.flower.fleet import BEAT_SECONDS, Away, Fleet, Foreign, Forgotten, Unknown
from covey.deploy.flower.process import Tls, quiet
from covey.deploy.membership.standing import AUTHORITY, SERVER, Reminder, Validity, validities
from covey.errors import CoveyError

RETRY_SECONDS = (
    1.0  # between attempts to reach the coordinator, at most; a random part of it, so that not all come at once
)
STRUCK_SECONDS = 60.0  # after which a key that was admitted before and is not any more is taken for struck off
REMIND_SECONDS = 600.0  # between two words on the same trouble
REMEDIES = {
    SERVER: "its owner makes another one with `covey keys renew`, and nothing is to be done here",
    AUTHORITY: "all parties need new keys by then; ask who made these",
}


class Troubles:
    """What is said while the coordinator cannot be reached: once for each reason, again after a while, and when it is over.

    `hear` is called with the reason when it begins, and with no words when it is over.
    """

    def __init__(self, superlink: str, say: Callable[[str], None], hear: Callable[[str], None]) -> None:
        self.superlink, self.say, self.hear = superlink, say, hear
        self._since: float | None = None
        self._said: dict[str, float] = {}

    def meet(self, error: CoveyError, hint: str = "") -> float:
        """Seconds since it began."""
        now = time.monotonic()
        if self._since is None:
            self.hear(str(error))
        self._since = self._since if self._since is not None else now
        kind = type(error).__name__
        if now - self._said.get(kind, float("-inf")) >= REMIND_SECONDS:
            self._said[kind] = now
            self.say(f"no connection to {self.superlink}, trying again: {error}{hint}")
        return now - self._since

    def end(self) -> None:
        if self._said and self._since is not None:
            self.say(f"connected to {self.superlink} after {duration(max(1.0, time.monotonic() - self._since))}")
        self._since, self._said = None, {}
        self.hear("")


def answer_calls(
    home: Path,
    superlink: str,
    tls: Tls | None,
    handle: Callable[[bytes], bytes],
    ended: Callable[[], bool],
    say: Callable[[str], None] = print,
    clock: Clock | None = None,
    hear: Callable[[str], None] = lambda why: None,
) -> None:
    """A node's life: `handle` answers its letters until `ended` says so and the last answer has left.

    Raises a CoveyError where waiting helps nobody: before the first connection, if who answers is not the coordinator that
    these keys are for; later on only if a key that was admitted is so no more. A network that somebody else answers in for a
    while must not end a silo that runs.
    """
    quiet()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = files.lock(home / "node.lock")
    if held is None:
        owner = files.owner(home / "node.lock")
        raise CoveyError(
            f"another covey process{owner} answers from {home.parent}: wait for it, or choose another --state"
        )
    reminder = Reminder(say)
    fleet = Fleet(superlink, tls, clock or Clock(say), lambda shown: reminder.look(lambda: _ends(tls, shown), REMEDIES))
    troubles = Troubles(superlink, say, hear)
    former, met = _Former(home / "node"), False
    try:
        while not ended():
            try:
                with _life(fleet, former):
                    met = True
                    troubles.end()
                    _answer(fleet, handle, ended)
            except Forgotten as e:
                troubles.meet(e)
            except Away as e:
                troubles.meet(e)
            except Foreign as e:
                if not met:
                    raise
                troubles.meet(e)
            except Unknown as e:
                silent = troubles.meet(e, ": it was struck off, or not added yet (server/nodes)")
                if met and silent > STRUCK_SECONDS:
                    raise CoveyError(
                        "the coordinator has struck off this party: it admitted its node key before and does so no more; "
                        "ask its owner, and join with new keys if you are to go on"
                    ) from e
            if not ended():
                time.sleep(random.uniform(0.1, RETRY_SECONDS))
    finally:
        fleet.close()
        held.close()


def _ends(tls: Tls | None, shown: Validity) -> list[Validity]:
    """What a party can see of the certificates that its connection rests on."""
    return [shown, *(validities(tls.ca.parent) if tls is not None else ())]


@contextmanager
def _life(fleet: Fleet, former: _Former) -> Iterator[None]:
    number = fleet.begin(former.number)
    former.keep(number)
    over = threading.Event()
    threading.Thread(target=_beat, args=(fleet, over), daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        with suppress(CoveyError):  # else, and after a cut, the next life says goodbye for this one
            fleet.end(number)
            former.keep(0)
        raise
    finally:  # Flower drops the answers of a node that has said goodbye, so who is finished just goes
        over.set()


def _beat(fleet: Fleet, over: threading.Event) -> None:
    while not over.wait(BEAT_SECONDS):
        with suppress(CoveyError):  # whoever waits for letters finds out, too
            fleet.beat()


def _answer(fleet: Fleet, handle: Callable[[bytes], bytes], ended: Callable[[], bool]) -> None:
    while not ended():
        question = fleet.next_question()
        if question is None:
            continue
        answer: bytes | None = None
        with suppress(CoveyError):  # said to the user by `handle`; the other side learns only that there is no answer
            answer = None if question.data is None else handle(question.data)
        fleet.answer(question, answer)


class _Former:
    """The number of this node's last life, on disk: one that was killed could not say goodbye, and the next does it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def number(self) -> int:
        try:
            return int(self.path.read_text())
        except (OSError, ValueError):
            return 0

    def keep(self, number: int) -> None:
        with suppress(OSError):
            self.path.write_text(str(number))
