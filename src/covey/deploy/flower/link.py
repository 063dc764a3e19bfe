"""The coordinator's end of the line: a door to the network, a SuperLink behind it, and what to do when either fails.

Nothing that arrives, and nothing that happens to Flower, ends the coordinator. A SuperLink that ended, hangs, has forgotten our
run (after a pause of this machine) or one of our silos (Flower never takes a key back that was once struck off) is started
again: silos find the same address, and letters that were on their way are written anew by whoever waits for their answers.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from covey.deploy.flower.process import DoorProcess, Tls, listening, quiet
from covey.deploy.flower.superlink import SuperLink
from covey.deploy.membership.certificates import check_server
from covey.errors import CoveyError

T = TypeVar("T")
LOOK_SECONDS = 5.0  # between looks into Flower's books
FAILURES = 5  # calls in succession that a SuperLink may fail
POSTED = 10_000  # messages whose answers may still come
STARTS = 5  # of a SuperLink in succession, before we give up


class GivenUp(CoveyError):
    """Flower cannot be started on this machine any more."""


class Link:
    """Nodes, and the messages to and from them. Only the constructor raises, and `CoveyError` where no start succeeds."""

    def __init__(
        self,
        home: Path,
        host: str,
        port: int,
        tls: Tls | None,
        nodes: dict[str, bytes],
        say: Callable[[str], None] = print,
    ) -> None:
        quiet()
        self.home, self.say, self.authenticated = home, say, tls is not None
        self.nodes: dict[str, int] = {}  # name -> Flower's node id
        self._keys = dict(nodes) if self.authenticated else {}
        self._struck: dict[bytes, str] = {}  # keys that passed once -> since when and why they do not
        self._posted: dict[str, None] = {}  # messages that this SuperLink holds, the oldest first
        # From the door: something came; keys whose nodes began, and when.
        self._news, self._begun = threading.Event(), deque[tuple[bytes, float]]()
        self._looked, self._failures, self._tls = 0.0, 0, tls
        self._certificate = self._certificate_state()
        self._listener = listening(host, port)
        self._door: DoorProcess | None = None
        self._superlink: SuperLink | None = None
        try:
            self._stand()
            self._begin()
            self._open()
        except BaseException:
            self.close()
            raise

    def strike(self, keys: Mapping[bytes, str], kept: Mapping[str, bytes]) -> None:
        """From now on these keys do not pass the door and are told why, nor do any but those kept, by name.

        A key that was replaced may be in no record of ours: the authority is on another machine, and sends the new one only.
        """
        gone = [name for name, key in self._keys.items() if kept.get(name) != key or key in keys]
        if self.authenticated and (gone or dict(keys) != self._struck):
            self._struck = dict(keys)
            for name in gone:  # Flower keeps it in its books, where it does no harm: it never takes a key back
                del self._keys[name]
                self.nodes.pop(name, None)
            self._open()

    def admit(self, name: str, public: bytes) -> None:
        """From now on this key passes the door, under a node number that only it gets."""
        if self.authenticated and name not in self.nodes:
            self._keys[name] = public
            number = self._attempt(lambda superlink: superlink.register(name, public), None)
            if number is not None:
                self.nodes[name] = number
                self._open()

    def present(self) -> set[int]:
        """Nodes of ours that Flower believes to be there; one that was killed stays for up to a minute."""
        self._take_over_certificate()
        if self.authenticated and time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            registered = self._attempt(SuperLink.registered, None)
            struck = [] if registered is None else [n for n, i in self.nodes.items() if i not in registered]
            if struck:
                self._renew(f"it has struck off {', '.join(sorted(struck))}")
        nobody: set[int] = set()
        online = self._attempt(SuperLink.online, nobody)
        return online & set(self.nodes.values()) if self.authenticated else online

    def _take_over_certificate(self) -> None:
        """A certificate that was renewed is shown from the next connection on; nobody is disconnected."""
        state = self._certificate_state()
        if state == self._certificate or self._tls is None or self._tls.certificate is None or self._tls.key is None:
            return
        self._certificate = state
        try:
            check_server(self._tls.certificate.read_bytes(), self._tls.key.read_bytes(), self._tls.ca.read_bytes())
        except (OSError, CoveyError) as e:  # also while one of the two is copied: the other changes the state again
            self.say(f"the certificate that was shown so far stays: {e}")
            return
        if self._door is not None:
            self._door.renew()
            self.say("the server's certificate was renewed, and is shown from now on")

    def _certificate_state(self) -> list[tuple[int, int]]:
        files = [] if self._tls is None else [self._tls.certificate, self._tls.key]
        states = [path.stat() for path in files if path is not None and path.is_file()]
        return [(state.st_mtime_ns, state.st_size) for state in states]

    def begun(self) -> dict[int, float]:
        """Nodes that have been started since this was asked last, and when: what was sent to them before is lost."""
        numbers = {self._keys[name]: number for name, number in self.nodes.items() if name in self._keys}
        words = [self._begun.popleft() for _ in range(len(self._begun))]
        return {numbers[key]: since for key, since in words if key in numbers}

    def wait(self, seconds: float) -> None:
        """Until a node begins or has sent an answer, or so long."""
        self._news.wait(seconds)
        self._news.clear()

    def send(self, node: int, data: bytes, seconds: float) -> str:
        """Posts bytes to a node; the id by which its reply is found. What could not be posted is never answered."""
        id = self._attempt(lambda superlink: superlink.push(node, data, seconds), "")
        if id:
            self._posted[id] = None
            if len(self._posted) > POSTED:  # nobody waits for the oldest any more
                del self._posted[next(iter(self._posted))]
            if self._door is not None:
                self._door.posted(next((self._keys[name] for name, n in self.nodes.items() if n == node), b""))
        return id or f"lost-{secrets.token_hex(8)}"

    def receive(self, ids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """The replies that have come for these messages: (id of the message, bytes, or None where a node failed)."""
        lost = self.undelivered()
        wanted = [id for id in ids if id in self._posted and id not in lost]
        if wanted:
            nothing: list[tuple[str, bytes | None]] = []
            for id, data in self._attempt(lambda superlink: list(superlink.replies(wanted)), nothing):
                self._posted.pop(id, None)
                yield id, data

    def undelivered(self) -> set[str]:
        """Messages that Flower has given up; not what it lost when it was started again, since nodes have other numbers then."""
        return set() if self._superlink is None else set(self._superlink.undelivered)

    def close(self) -> None:
        if self._door is not None:
            self._door.stop()
        self._listener.close()
        if self._superlink is not None:
            self._superlink.close()

    def _attempt(self, call: Callable[[SuperLink], T], otherwise: T) -> T:
        """What Flower answers; `otherwise` where it fails, which starts it again if it has to be."""
        try:
            if self._door is None or not self._door.alive():
                self._open()
            if self._superlink is None or self._superlink.lost.is_set():
                self._renew("it has forgotten the run")
            assert self._superlink is not None
            self._superlink.process.alive()
            answer = call(self._superlink)
            self._failures = 0
            return answer
        except GivenUp:
            raise
        except CoveyError as e:
            self._renew(str(e))
        except Exception as e:  # whatever Flower's client raises: it is Flower's state that is wrong, not ours
            self._failures += 1
            status = getattr(getattr(e, "response", None), "status_code", None)
            what = f"{type(e).__name__}{'' if status is None else f' {status}'}"
            if status is None or status in (401, 403) or self._failures >= FAILURES:
                self._renew(what)
            else:
                self.say(f"Flower's SuperLink failed a call: {what}")
        return otherwise

    def _renew(self, why: str) -> None:
        self.say(f"starting Flower's SuperLink again: {ascii(why)[1:-1]}")
        if self._superlink is not None:
            self._superlink.close()
        for attempt in range(1, STARTS + 1):
            try:
                self._begin()
                break
            except Exception as e:
                if attempt == STARTS:
                    raise GivenUp(f"Flower's SuperLink failed to start {STARTS} times: {e}; start again") from e
                time.sleep(attempt)
        self._open()

    def _begin(self) -> None:
        self._superlink, self._posted, self._failures = None, {}, 0
        self._looked = time.monotonic()
        self._superlink = SuperLink(self.home)
        self.nodes = {name: self._superlink.register(name, public) for name, public in self._keys.items()}

    def _open(self) -> None:
        """The door, as open as it should be now."""
        door = self._stand()
        nodes = {self._keys[name]: number for name, number in self.nodes.items()} if self.authenticated else None
        door.tell(self._superlink.port if self._superlink else 0, nodes, self._struck)

    def _stand(self) -> DoorProcess:
        """The door's process, which lets nobody in before it is told whom."""
        if self._door is None or not self._door.alive():
            self._door = DoorProcess.start(self._listener, self._tls, self.home, self._hear)
        return self._door

    def _hear(self, words: dict[str, str]) -> None:
        """What the door says, in a thread of its own."""
        if "begins" in words:
            self._begun.append((words["begins"].encode(), float(words["since"])))
        self._news.set()
