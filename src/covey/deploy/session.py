"""Who is there, and the letters to and from them.

Silos come and go: every node that appears is greeted, and counts once it has answered with a letter that only the party it
claims to be can have written. What is wrong with a letter is said once per party and reason; all cases are in events.jsonl.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey import files
from covey.deploy.letters import ANYONE, Hello, Mailbox
from covey.deploy.membership.records import Party
from covey.deploy.membership.roll import Roll
from covey.deploy.transport import Mail
from covey.deploy.watch.watch import Watch
from covey.errors import CoveyError, printable
from covey.messages import check_fields
from covey.version import __version__

HELLO_SECONDS = 30.0  # for the answer to a greeting
GREET_SECONDS = 10.0  # between greetings of one node
RESENT = 20  # times that one letter is written anew in a round, before its party counts as gone
GONE_SECONDS = 10.0  # a party whose node Flower has not listed for so long is gone
STRANGER = "a node"
WORDS = 400  # letters of a reason


@dataclass
class PendingLetter:
    """A letter on its way."""

    role: str
    number: str
    kind: str
    round: int
    node: int
    body: Any = None
    missed: float = 0.0  # since when its node is not listed, or has lost it
    lost: bool = False  # its party has begun anew since it was sent, or it was given up on its way
    resent: int = 0

    @property
    def client(self) -> int:
        """The silo's number."""
        return int(self.role.removeprefix("client:"))


class Session:
    """See the module's docstring."""

    def __init__(
        self,
        party: Party,
        mail: Mail,
        mailbox: Mailbox,
        agreed: str,
        events: Path,
        round_seconds: float,
        follow: Callable[[], Roll] | None,
        say: Callable[[str], None],
        watch: Watch,
    ) -> None:
        self.watch = watch
        self.party, self.mail, self.mailbox, self.agreed = party, mail, mailbox, agreed
        self.events, self.round_seconds, self.say = events, round_seconds, say
        self.follow = follow  # who is let in now: silos are added, revoked and given other keys while we run
        self.run = ""  # which the coordinator sets when it begins one, or goes on
        self._former: dict[str, str] = {}  # names of those that were let in once
        self.at: dict[str, int] = {}  # role -> node that answered to it
        self._greeted: dict[int, float] = {}  # node -> when
        self._met: dict[int, float] = {}  # node -> when the greeting was sent that it has answered
        self._hellos: dict[str, PendingLetter] = {}
        self._said: set[tuple[str, str]] = set()
        self.resent = 0  # bytes of letters that had to be written twice

    def look_around(self) -> None:
        """Lets added silos in and shuts revoked ones out, greets new nodes, reads their answers, forgets those who left."""
        self.follow_the_roll()
        self.watch.expect(self.expected)
        self._forget(self.mail.begun())
        present = self.mail.present()
        for role in [r for r, node in self.at.items() if node not in present]:
            self.say(f"{self.name(role)} is gone")
            self.watch.left(self.name(role))
            del self.at[role]
        self._meet(present)

    def is_member(self, role: str) -> bool:
        """Whether a party may take part; without a roll, all may that have keys."""
        return self.follow is None or role in self.party.known

    def follow_the_roll(self) -> None:
        if self.follow is None:
            return
        roll = self.follow()
        for role in sorted(set(self.party.known) - set(roll.party.known)):
            name = self._former[role] = self.name(role)
            since = roll.revoked.get(name, "")
            words = f"it is let in no more{since and f': revoked on {since}'}"
            self.say(words.replace("it", name, 1))
            files.append_line(self.events, {"round": 0, "revoked": name, "since": since})
            self.watch.refused(name, 0, words)
            self.at.pop(role, None)
        self.party = roll.party
        self.watch.expect(self.expected)
        self.mailbox.learn(self.party.known)
        self.mail.strike(roll.struck, roll.nodes)
        for name, public in roll.nodes.items():
            self.mail.admit(name, public)

    def _meet(self, present: set[int]) -> None:
        """Greets whom we do not know yet, and reads their answers."""
        self._greet(present - set(self.at.values()))
        for id, answer in self.mail.receive(list(self._hellos)):
            sent = self._hellos.pop(id)
            try:
                self._welcome(sent, answer)
            except CoveyError as e:
                self.refuse(self._owner(sent.node), 0, str(e))

    def _owner(self, node: int) -> str:
        """Whose node this is, where the carrier knows: who cannot be read has not said who it is."""
        return next((n for n, i in self.mail.nodes.items() if i == node and self.mail.authenticated), STRANGER)

    def _forget(self, begun: Mapping[int, float]) -> list[str]:
        """Nodes that were started again are strangers until they have answered a new greeting; whose they were. Who was greeted
        after it had begun is no stranger: on a busy machine the word of its beginning comes after its answer.
        """
        never = -math.inf
        anew = {node for node, since in begun.items() if since > self._greeted.get(node, self._met.get(node, never))}
        self._hellos = {id: sent for id, sent in self._hellos.items() if sent.node not in anew}
        self._greeted = {node: when for node, when in self._greeted.items() if node not in anew}
        roles = [role for role, node in self.at.items() if node in anew]
        for role in roles:
            self.say(f"{self.name(role)} was started again")
            self.watch.left(self.name(role), "started again")
            del self.at[role]
        return roles

    def _greet(self, nodes: set[int]) -> None:
        """Once, and again where the greeting was lost or refused: its party may have been started anew since."""
        lost = self.mail.undelivered()
        self._hellos = {id: sent for id, sent in self._hellos.items() if sent.node in nodes and id not in lost}
        self._greeted = {node: when for node, when in self._greeted.items() if node in nodes}
        waiting = {sent.node for sent in self._hellos.values()}
        for node in nodes - waiting:
            if time.monotonic() - self._greeted.get(node, -GREET_SECONDS) >= GREET_SECONDS:
                self._greeted[node] = time.monotonic()
                data, number = self.mailbox.write(self.run, "hello", ANYONE, 0, None)
                self._hellos[self.mail.send(node, data, HELLO_SECONDS)] = PendingLetter(
                    STRANGER, number, "hello", 0, node
                )

    def _welcome(self, sent: PendingLetter, data: bytes | None) -> None:
        sender, hello = self.open(sent, data)
        if isinstance(hello, Hello):
            check_fields(hello)
        if not isinstance(hello, Hello) or hello.agreed != self.agreed:
            raise CoveyError(f"{self.name(sender)} was given another experiment or other start models")
        if hello.run not in ("", self.run):
            raise CoveyError(f"{self.name(sender)} takes part in another run ({hello.run[:40]})")
        if self.mail.authenticated and self.mail.nodes.get(self.name(sender)) != sent.node:
            raise CoveyError(f"{self.name(sender)} answers from a node that is not its own")
        if self.at.get(sender) != sent.node:
            version = "" if hello.version == __version__ else f" (covey {hello.version[:40]}, here {__version__})"
            self.say(f"{self.name(sender)} is there{version}")
            self.watch.met(self.name(sender), hello.version[:40])
        self.at[sender] = sent.node
        self._met[sent.node] = self._greeted[sent.node]

    def send(
        self, letters: dict[str, PendingLetter], role: str, kind: str, round: int, body: Any, resent: int = 0
    ) -> int:
        """Posts a letter and adds it to `letters`, by the id under which its answer comes; its length in bytes."""
        data, number = self.mailbox.write(self.run, kind, role, round, body)
        node = self.at[role]
        # Flower keeps it longer than we wait: lateness is ours to judge, and an expired message looks like an error.
        letters[self.mail.send(node, data, 2 * self.round_seconds + 60)] = PendingLetter(
            role, number, kind, round, node, body, resent=resent
        )
        self.watch.asked(self.name(role), len(data), round)
        return len(data)

    def open(self, sent: PendingLetter, data: bytes | None) -> tuple[str, Any]:
        """(sender, body) of an answer that fits the question."""
        if data is None:
            raise CoveyError("it answered with an error; its own log says which")
        verified = self.mailbox.read(data)
        letter = verified.letter
        if sent.role not in (verified.sender, STRANGER):
            raise CoveyError(f"{self.name(verified.sender)} answered in its place")
        if (letter.run, letter.kind, letter.answers) != (self.run, sent.kind, sent.number):
            raise CoveyError("its letter answers another one: stale, or a replay")
        if verified.round != sent.round:
            raise CoveyError(f"its letter is of round {verified.round}, not {sent.round}")
        return verified.sender, letter.body

    @property
    def expected(self) -> list[str]:
        """Names of all parties that this one's folder admits, the silos in their order."""
        silos = sorted(self.party.silos.items(), key=lambda item: item[1])
        return [*(name for name, _ in silos), *(r for r in self.party.known if not r.startswith("client:"))]

    def name(self, role: str) -> str:
        number = role.removeprefix("client:")
        return next((n for n, i in self.party.silos.items() if str(i) == number), self._former.get(role, role))

    def refuse(self, role: str, round: int, why: str) -> None:
        """Said once per party and reason; every case is in events.jsonl."""
        name, why = self.name(role), printable(why, WORDS)  # a silo's own words may stand in it
        files.append_line(self.events, {"round": round, "refused": name, "why": why})
        self.watch.refused(name, round, why)
        if (name, why) not in self._said:
            self._said.add((name, why))
            self.say(f"round {round}: refused {name}: {why}")

    def warn(self, round: int, why: str) -> None:
        """Counts a round, or a try of one, that came to nothing; an alert from the third in a row on."""
        if alert := self.watch.failed(round, why):
            self.say(alert)
            files.append_line(self.events, {"round": round, "alert": alert})

    def drop_the_gone(self, letters: dict[str, PendingLetter], round: int) -> None:
        """Takes letters out whose parties have not been there for a while. One that has begun anew (it was started again, or its
        connection was lost) gets its letter once more when it has been greeted: asked the same, a silo answers the same. A
        question to another server is not repeated, since each counts. Who comes in the meantime is greeted; who is revoked in
        the meantime is waited for no longer.
        """
        self.follow_the_roll()
        for id in [id for id, sent in letters.items() if not self.is_member(sent.role)]:
            del letters[id]
        restarted = self._forget(self.mail.begun())
        present, undelivered = self.mail.present(), self.mail.undelivered()
        self._meet(present)
        for id, sent in list(letters.items()):
            node = self.at.get(sent.role, sent.node)
            sent.lost = sent.lost or sent.role in restarted or node != sent.node or id in undelivered
            if sent.lost and sent.kind == "ask":
                del letters[id]
            elif sent.lost and sent.role in self.at and node in present and sent.resent < RESENT:
                del letters[id]
                self.resent += self.send(letters, sent.role, sent.kind, sent.round, sent.body, sent.resent + 1)
            else:
                sent.missed = 0.0 if sent.node in present and not sent.lost else sent.missed or time.monotonic()
                if sent.missed and time.monotonic() - sent.missed > GONE_SECONDS:
                    self.say(f"round {round}: {self.name(sent.role)} is gone")
                    self.watch.left(self.name(sent.role))
                    self.at.pop(sent.role, None)
                    del letters[id]
