"""Letters to silos, and their answers: checked before the algorithm sees them, counted, and written down.

What is refused counts as not sent; each reason is said once (`Session.refuse`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from covey.algorithms.admission import admit
from covey.algorithms.contract import Declaration, Setting, declaration
from covey.compression.replies import unpack
from covey.deploy.course.patience import Deadline
from covey.deploy.letters import Refused, RoundReply, Spent
from covey.deploy.session import PendingLetter, Session
from covey.deploy.transcript import Transcript
from covey.engines.evaluation import reported_accuracies, reported_metrics
from covey.errors import CoveyError
from covey.experiment.deployment import Deployment
from covey.experiment.experiment import Experiment
from covey.messages import size
from covey.metrics.metric import Metric

POLL_SECONDS = 1.0  # between looks at the mail where nothing rings


@dataclass
class Tally:
    """What a round's letters have brought so far."""

    replies: dict[int, RoundReply] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    refusing: set[int] = field(default_factory=set)  # of those: who say that they cannot work with what they were sent
    came: dict[int, Any] = field(default_factory=dict)  # the algorithm's replies as they crossed the wire
    up: int = 0
    down: int = 0
    wire: int = 0

    @property
    def is_setback(self) -> bool:
        """Whether more than half of those that answered refuse what they were sent."""
        return len(self.refusing) > len(self.replies)

    def forget_refusals(self) -> None:
        """Whoever's answer was refused may be asked anew."""
        self.failed.clear()
        self.refusing.clear()


@dataclass(frozen=True)
class Exchange:
    """See the module's docstring. Silos are numbers here; the session knows their names and nodes."""

    session: Session
    experiment: Experiment
    setting: Setting
    keys: dict[str, Any]
    metrics: tuple[Metric, ...]
    transcript: Transcript

    @property
    def algorithm(self) -> Any:
        return self.experiment.algorithm

    @property
    def deployment(self) -> Deployment:
        return self.experiment.deployment

    @cached_property
    def declared(self) -> Declaration:
        return declaration(self.algorithm)

    @property
    def present(self) -> list[int]:
        """Silos that are there."""
        return sorted(int(role.removeprefix("client:")) for role in self.session.at if role.startswith("client:"))

    def is_member(self, client: int) -> bool:
        return self.session.is_member(f"client:{client}")

    def name(self, client: int) -> str:
        return self.session.name(f"client:{client}")

    def pause(self) -> None:
        """Until the mail rings, at most for a while."""
        self.session.mail.wait(POLL_SECONDS)

    def answers(
        self, letters: dict[str, PendingLetter], round: int, until: Deadline
    ) -> Iterator[tuple[PendingLetter, bytes | None]]:
        """What comes, until every letter is answered, its party is gone, or the time is up."""
        looked = 0.0
        while letters and not until.is_over:
            for id, data in self.session.mail.receive(list(letters)):
                yield letters.pop(id), data
            if time.monotonic() - looked > POLL_SECONDS:
                looked = time.monotonic()
                self.session.drop_the_gone(letters, round)
            if letters:
                self.pause()

    def take(self, sent: PendingLetter, data: bytes | None, round: int, state: Any, tally: Tally) -> None:
        """A silo's answer into the tally, if all is well with it."""
        try:
            tally.replies[sent.client], tally.came[sent.client] = self.admitted(sent, data, state, tally)
            tally.up += size(tally.came[sent.client])
        except CoveyError as e:
            tally.failed.add(sent.client)
            self.session.refuse(sent.role, round, str(e))

    def admitted(self, sent: PendingLetter, data: bytes | None, state: Any, tally: Tally) -> tuple[RoundReply, Any]:
        """A silo's answer with its reply unpacked and checked, and the reply as it crossed the wire."""
        _, answer = self.session.open(sent, data)
        if isinstance(answer, Refused):
            tally.refusing.add(sent.client)
            raise CoveyError("it could not work with what it was sent; its own log says why")
        if isinstance(answer, Spent):
            raise CoveyError("its privacy budget is spent: it answers no further round")
        if not isinstance(answer, RoundReply):
            raise CoveyError(f"found a {type(answer).__name__}, expected the reply to a round")
        sent_to = self.algorithm.broadcast(state, sent.client)
        reply = unpack(self.experiment.compression, self.setting, sent_to, answer.reply)
        admit(self.algorithm, state, self.setting, self.keys, reply)
        checked = self.checked(answer, reply)
        tally.wire += len(data or b"")
        self.session.watch.answered(self.session.name(sent.role), len(data or b""))
        return checked, answer.reply

    def checked(self, answer: RoundReply, reply: Any) -> RoundReply:
        """An answer with its reply unpacked, and of what it reports only what can be."""
        given = answer.metrics if isinstance(answer.metrics, dict) else {}
        known = {m.name: given[m.name] for m in self.metrics if _is_number(given.get(m.name))}
        return RoundReply(reply, answer.accuracy if _is_share(answer.accuracy) else None, known)

    def reported(self, replies: Mapping[int, RoundReply]) -> dict[str, Any]:
        """The part of a record that silos chose to report."""
        shares = [one.accuracy for one in replies.values() if one.accuracy is not None]
        values = {i: one.metrics for i, one in replies.items() if one.metrics}
        record: dict[str, Any] = {"accuracy": reported_accuracies(shares) if shares else None}
        return record | ({"metrics": reported_metrics(self.metrics, self.setting.clients, values)} if values else {})


def _is_share(value: Any) -> bool:
    return isinstance(value, float) and 0 <= value <= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)
