"""The coordinator: the algorithm's server, over real silos.

The rounds are the simulation's: broadcast, replies, aggregate. What differs is that silos come, go, dawdle and err. A round
ends when every silo that was asked has answered, or has been gone or silent for too long and enough others have (see
`Deployment`). Replies are checked before the algorithm sees them; what is refused counts as not sent, and each reason is said
once. A reply on which the algorithm breaks is left out, and sums that the silos cannot open are taken back (`course/doubts.py`).
State is on disk after every round: started again in the same folder, the coordinator goes on where it was.

Where rounds are asynchronous (`participation.buffer`) a round ends with so many replies, whoever they are from and whichever
round's models they were trained from (`course/buffer.py`): nobody who is slow is waited for.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from covey import roles
from covey.algorithms.admission import admit, admit_advice
from covey.algorithms.contract import BadAnswer, Server, carried_on, declaration, wanted
from covey.algorithms.sums.openings import is_together
from covey.compression.replies import unpack
from covey.crypto.noise.source import SecretNoise
from covey.data.names import SILOS
from covey.deploy.agreed import Agreed, digest, experiment_of, network_of, setting_of
from covey.deploy.course import doubts
from covey.deploy.course.buffer import Buffer
from covey.deploy.course.doubts import Doubts
from covey.deploy.keys import silos_needed
from covey.deploy.letters import Mailbox, Refused, RoundReply, Spent, largest_message
from covey.deploy.membership.records import Party
from covey.deploy.membership.roll import Roll
from covey.deploy.session import PendingLetter, Session
from covey.deploy.transcript import Transcript
from covey.deploy.transport import Mail
from covey.deploy.watch.watch import Watch, spendings
from covey.engines.evaluation import reported_accuracies, reported_metrics
from covey.engines.prepare import device_of
from covey.errors import CoveyError, printable
from covey.experiment.participation import POISSON
from covey.files import append_line
from covey.ledger.pricing import price
from covey.measures import STALENESS, STALEST
from covey.messages import same, size, to_device
from covey.metrics.metric import chosen
from covey.results.folder import RunFolder
from covey.rounds.asynchronous import Arrivals, UnderWay, rebased
from covey.rounds.record import timed
from covey.rounds.result import Result, summarise

POLL_SECONDS = 1.0  # between looks at the mail where nothing rings
LAST_SECONDS = 30.0
SLOW_SECONDS = 2.0  # that the others have when enough silos have answered a further question
TRIES = 3  # of a round in which nobody gives a usable answer
ABSENT_SECONDS = 60.0  # after which who is waited for is said to be, perhaps, not running


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


class Coordinator:
    """See the module's docstring."""

    def __init__(
        self,
        party: Party,
        agreed: Agreed,
        mail: Mail,
        out: Path,
        *,
        follow: Callable[[], Roll] | None = None,
        say: Callable[[str], None] = print,
        command: str = "",
        watch: Watch | None = None,
    ) -> None:
        self.watch = watch or Watch()
        self.out, self.say, self.command, self.keys = out, say, command, party.keys
        self.experiment = experiment_of(agreed, {"workers": 1})
        self.algorithm = self.experiment.algorithm
        self.setting, self.digest = setting_of(agreed, self.experiment), digest(agreed)
        self.deployment = self.experiment.deployment
        self.metrics = chosen(network_of(agreed).task, self.experiment.evaluation.metrics)
        self.declared = declaration(self.algorithm)
        self.role, self.further = self.declared.server, self.declared.further
        limit = largest_message(self.setting, self.deployment.max_megabytes, self.declared.rounds_sent)
        if self.further:  # which return the rows of all silos in one letter
            limit *= max(1, self.setting.clients)
        seconds = self.deployment.round_seconds
        mailbox = Mailbox(self.role, party.signing, party.known, seconds + 300, limit)
        self.session = Session(
            party, mail, mailbox, self.digest, out / "events.jsonl", seconds, follow, say, self.watch
        )
        self.session.run = secrets.token_hex(8)
        self.transcript = Transcript(out / "transcript.jsonl")
        self.records: list[dict[str, Any]] = []
        self.spends: list[tuple[int, int, Any]] = []  # round, client, event: of noise that the server adds
        self._secret_notes = {name for name, measure in self.declared.measures.items() if measure.secret}
        self._least = silos_needed(self.declared, party.keys)
        self.doubts = Doubts()
        part = self.experiment.participation
        self.buffer = Buffer(part.buffer, part.max_staleness, UnderWay()) if part.buffer else None
        self._gathered = False  # since this process began
        self._met = set[int]()  # silos, since then
        self._patient = time.monotonic() + seconds  # until when others may come
        self._lost = 0  # rounds in a row that another server's answers cost
        bound = part.max_staleness if part.buffer else None
        self.watch.describe(
            what=self.declared.label or self.declared.name, rounds=self.experiment.training.rounds, bound=bound
        )

    def run(self, progress: Callable[[int, dict[str, Any]], None] = lambda done, record: None) -> Result:
        state, done = self._begin()
        for round in range(done + 1, self.experiment.training.rounds + 1):
            self.gather()
            self.watch.begins(round)
            state, record = self._round(state, round)
            self.records.append(record)
            # State first: a crash between the two redoes nothing and loses only a line, which the checkpoint still has.
            self._save(state, round)
            RunFolder(self.out).write_records(self.records)
            progress(round, record)
        self._look_for_the_last()
        state, reported = self._finish(state)
        if reported["accuracy"] is not None or "metrics" in reported:
            self.records[-1] |= reported
            RunFolder(self.out).write_records(self.records)
        stand_in = "" if self.experiment.dataset == SILOS else "a rehearsal: samples of a public dataset"
        return summarise(
            self.experiment, self.records, [], self.spends, {}, state, RunFolder(self.out), self.command, stand_in
        )

    def _begin(self) -> tuple[Any, int]:
        folder = RunFolder(self.out)
        if not folder.begun:
            folder.write_config(self.experiment)
            self._save(self.algorithm.start(self.setting), 0)
        content, _ = folder.load()
        if content.get("agreed") != self.digest:
            raise CoveyError(f"{self.out} holds a run of other keys or another experiment: choose another --out")
        self.session.run, done = content["run"], int(content["round"])
        self.records, self.doubts = content["records"], content.get("doubts", Doubts())
        self.spends = content.get("spends", [])
        if self.buffer is not None:
            way = to_device(content.get("way", UnderWay()), device_of(self.experiment))
            self.buffer = Buffer(self.buffer.size, self.buffer.bound, way)
        self.watch.describe(done=done, round=done)
        if done:
            self.say(f"going on after round {done}")
        return to_device(content["state"], device_of(self.experiment)), done

    def _save(self, state: Any, done: int) -> None:
        content = {
            "run": self.session.run,
            "agreed": self.digest,
            "round": done,
            "state": state,
            "doubts": self.doubts,
            "records": self.records,
            "spends": self.spends,
            "way": None if self.buffer is None else self.buffer.way,
        }
        RunFolder(self.out).save(content, {})

    def _round(self, state: Any, round: int) -> tuple[Any, dict[str, Any]]:
        if self.buffer is not None:
            return self._buffered_round(self.buffer, state, round)
        seconds: dict[str, float] = defaultdict(float)
        part = self.experiment.participation
        # Amplification by sampling is for those who cannot foresee the sample.
        hidden = part.sampling == POISSON and not self.deployment.rehearsal
        drawn, _ = part.participants(secrets.randbits(63) if hidden else self.setting.seed, round, self.setting.clients)
        present = [int(i) for i in drawn if f"client:{i}" in self.session.at]
        asked = doubts.asked(self.doubts, wanted(self.algorithm, state, present), self._least)
        begin, resent = time.perf_counter(), self.session.resent
        tally = self._ask_silos(state, round, asked)
        seconds["silos"] = time.perf_counter() - begin
        server, came_to = self._desk(round, tally, seconds), ""
        with timed(seconds, "aggregate"):
            if tally.is_setback and self.doubts.before is not None:
                state, tally.replies = self._go_back(server), {}
                came_to = "the sums of the round before do not open"
            else:
                before, state = state, self._aggregate(server, state, round, tally)
                if state is before:  # fewer helped to open its sums than must, or they were withheld
                    self.doubts = doubts.after_idle(self.doubts)
                else:
                    self.doubts = doubts.after_round(self.doubts, before, tally.replies)
                if self._lost:
                    came_to = "another server's answer could not be used"
                elif same(before, state):
                    came_to = "its answers did not suffice, and the models stay as they are"
                self._judge(server)
        self.spends.extend((round, client, event) for client, event in server.events)
        seconds["aggregate"] -= sum(s for p, s in seconds.items() if p not in ("aggregate", "silos"))
        self._tell(round, time.perf_counter() - begin, asked, tally, came_to)
        return state, self._record(round, tally, asked, seconds, came_to, resent, server.notes)

    def _buffered_round(self, buffer: Buffer, state: Any, round: int) -> tuple[Any, dict[str, Any]]:
        """Of the first replies that come, whichever round's models they were trained from."""
        seconds: dict[str, float] = defaultdict(float)
        begin, resent = time.perf_counter(), self.session.resent
        tally, arrivals, asked = self._ask_buffered(buffer, state, round)
        seconds["silos"] = time.perf_counter() - begin
        server = self._desk(round, tally, seconds)
        with timed(seconds, "aggregate"):
            self._rebase(tally, arrivals, state, round)
            before, state = state, self._aggregate(server, state, round, tally)
        self.spends.extend((round, client, event) for client, event in server.events)
        seconds["aggregate"] -= sum(s for p, s in seconds.items() if p not in ("aggregate", "silos"))
        came_to = "its answers did not suffice, and the models stay as they are" if same(before, state) else ""
        ages = arrivals.ages(round)
        self.watch.describe(staleness=ages[STALENESS], stalest=int(ages[STALEST]))
        self.watch.discard(buffer.discarded)
        self._tell(round, time.perf_counter() - begin, sorted(tally.replies), tally, came_to)
        record = self._record(round, tally, asked, seconds, came_to, resent, {**server.notes, **ages})
        return state, record | {"dropped": len(tally.failed) + buffer.discarded}

    def _rebase(self, tally: Tally, arrivals: Arrivals, state: Any, round: int) -> None:
        """Replies to older models as replies to this round's. One on which the algorithm breaks is left out."""
        power = self.experiment.participation.staleness_power
        for client, one in sorted(tally.replies.items()):
            try:
                ((_, reply),) = rebased(iter([(client, one.reply)]), arrivals, self.algorithm, state, round, power)
                tally.replies[client] = replace(one, reply=reply)
            except CoveyError:
                raise
            except Exception as e:
                del tally.replies[client]
                self.session.refuse(
                    f"client:{client}", round, f"the algorithm breaks on its reply ({type(e).__name__})"
                )

    def _record(
        self,
        round: int,
        tally: Tally,
        asked: list[int],
        seconds: Mapping[str, float],
        came_to: str,
        resent: int,
        notes: Mapping[str, Any],
    ) -> dict[str, Any]:
        return {
            "round": round,
            "participants": len(tally.replies),
            "dropped": len(asked) - len(tally.replies),
            "lost": self._lost_so_far() + bool(came_to),
            "seconds": dict(seconds),
            "bytes": {"up": tally.up / max(len(tally.replies), 1), "down": tally.down / max(len(asked), 1)},
            "wire": tally.wire + self.session.resent - resent,
            **self._reported(tally.replies),
            "clustering": None,
            "clusters": None,
            "extra": {name: value for name, value in notes.items() if name not in self._secret_notes},
        }

    def _tell(self, round: int, seconds: float, asked: list[int], tally: Tally, came_to: str) -> None:
        """The operator: how a round has ended; `came_to` says why it came to nothing."""
        names = {i: self.session.name(f"client:{i}") for i in asked}
        if came_to:
            self._warn(round, came_to)
        missed = [name for i, name in names.items() if i not in tally.replies]
        over = self.watch.ends(round, seconds, [names[i] for i in tally.replies], missed, not came_to)
        if over:
            self.say(over)

    def _warn(self, round: int, why: str) -> None:
        """Counts a round, or a try of one, that came to nothing; an alert from the third in a row on."""
        if alert := self.watch.failed(round, why):
            self.say(alert)
            append_line(self.out / "events.jsonl", {"round": round, "alert": alert})

    @property
    def spending(self) -> dict[str, Any]:
        """What the server's own noise has cost so far, for the operator."""
        spends = list(self.spends)
        return {"privacy": spendings(price(spends))} if spends else {}

    def _lost_so_far(self) -> int:
        """Rounds that changed no model, or were taken back: fewer silos than must were in them, say, or helped to open them."""
        return int(self.records[-1].get("lost", 0)) if self.records else 0

    def _desk(self, round: int, tally: Tally, seconds: dict[str, float]) -> Server:
        ask, phase = partial(self._ask_further, round, tally), partial(timed, seconds)
        desk = Server(round, self.setting.seed, self.setting, self.keys, ask, phase)
        # Where the server itself adds noise, that must not follow from a seed that everybody has.
        secret = None if self.deployment.rehearsal else SecretNoise()
        return replace(desk, consult=partial(self._consult, round, tally), run=self.session.run, secret=secret)

    def _aggregate(self, server: Server, state: Any, round: int, tally: Tally) -> Any:
        """The next state. A reply that passed every check and on which the algorithm breaks nevertheless is left out.

        What the algorithm refuses in words (a CoveyError) is its verdict on the round, not a broken reply.
        """

        def attempt(senders: Sequence[int]) -> Any:
            desk = replace(server, notes={}, events=[])
            after = self.algorithm.aggregate(desk, state, iter([(i, tally.replies[i].reply) for i in senders]))
            if _is_finite(state) and not _is_finite(after):  # numbers that were finite, and whose sum is not
                raise OverflowError
            server.notes.update(desk.notes)
            server.events[:] = desk.events
            return after

        senders = sorted(tally.replies)
        try:
            after = attempt(senders)
            self._lost = 0
            return after
        except BadAnswer as e:
            return self._lose(server, state, tally, str(e))
        except CoveyError:
            raise
        except Exception as e:
            if self.further:  # it broke on a reply or on an answer, nobody can say which: none is asked for twice
                return self._lose(server, state, tally, f"the algorithm breaks on what came ({type(e).__name__})")
            culprits = _culprits(senders, lambda chosen: _breaks(attempt, chosen))
            for i in culprits or senders:
                del tally.replies[i]
                self.session.refuse(f"client:{i}", round, f"the algorithm breaks on its reply ({type(e).__name__})")
            return attempt(sorted(tally.replies)) if tally.replies else state

    def _judge(self, server: Server) -> None:
        """Takes over what the algorithm has seen of the round's replies, and says it."""
        before = self.doubts
        self.doubts = doubts.after_judgement(before, server.suspected, server.blamed, server.cleared)
        gone = [i for i in self.doubts.left_out if i not in before.left_out]
        if gone or server.suspected:
            names = ", ".join(self.session.name(f"client:{i}") for i in gone or self.doubts.suspects)
            words = f"left out from now on: {names}" if gone else f"one of {names}"
            self.say(f"round {server.round}: the replies do not add up, the models stay as they are; {words}")

    def _lose(self, server: Server, state: Any, tally: Tally, why: str) -> Any:
        """A round that comes to nothing by another server's fault: the state stays. After TRIES in a row the run ends."""
        round = server.round
        self._lost += 1
        tally.replies.clear()
        self.session.refuse(", ".join(self.further), round, why)
        if self._lost >= TRIES:
            raise CoveyError(
                f"round {round}: {TRIES} rounds in a row were lost since another server's answers could not be used, lastly: "
                f"{printable(why, 300)}; see to that server, then start the coordinator again"
            )
        self.say(f"round {round}: lost, the models stay as they are")
        return carried_on(self.algorithm, server, state)

    def _go_back(self, server: Server) -> Any:
        state, round = self.doubts.before, server.round
        together = is_together(self.experiment.encryption)
        self.doubts = doubts.after_setback(self.doubts, 0 if together else self.deployment.max_refusals)
        names = ", ".join(self.session.name(f"client:{i}") for i in self.doubts.suspects or self.doubts.left_out)
        whose = "one of" if self.doubts.suspects else "left out from now on:"
        self.say(f"round {round}: the sums of the round before do not open, back to those before them; {whose} {names}")
        return carried_on(self.algorithm, server, state)

    def gather(self) -> None:
        """Waits until enough silos, and every further server, are there.

        Before the first round that is every silo, unless the experiment says fewer. A coordinator that was started again
        waits for all of them, too, but not longer than for a round: one may have left for good. Where rounds are asynchronous it
        waits for nobody who may be at work, and cannot come before that is done.
        """
        announced, until = False, time.monotonic() + self.deployment.round_seconds
        hinted = time.monotonic() + ABSENT_SECONDS
        while True:
            self.session.look_around()
            silos = {role for role in self.session.at if role.startswith("client:")}
            absent = [r for r in self.further if r not in self.session.at]
            patient = not self.records or (not self._gathered and not self.buffer and time.monotonic() < until)
            expected = self.deployment.min_silos or max(1, len(self.session.party.silos) if patient else 1)
            expected = max(expected, self._least)  # a round with fewer would change nothing
            if len(silos) >= expected and not absent:
                self._gathered = True
                return
            if not announced:
                names = [n for n, i in sorted(self.session.party.silos.items()) if f"client:{i}" not in silos]
                words = f"waiting for {', '.join([*names, *absent])}"
                self.say(words)
                self.watch.waits(words)
                announced = True
            if time.monotonic() > hinted:
                hinted = math.inf
                names = [n for n, i in sorted(self.session.party.silos.items()) if f"client:{i}" not in silos]
                self.say(
                    f"still waiting for {', '.join([*names, *absent])}: if its `covey join` has ended, its last line there says "
                    "why (its data could not be read as the experiment says, for example), and nothing of that comes here"
                )
            self.session.mail.wait(POLL_SECONDS)

    def _ask_silos(self, state: Any, round: int, asked: list[int]) -> Tally:
        """Letters to all, answers of as many as the experiment wants. A silo that errs is not asked again."""
        tally = Tally()
        outgoing = {i: self.algorithm.broadcast(state, i) for i in asked}
        for i, broadcast in outgoing.items():
            tally.down += size(broadcast)
            self.transcript.add(round, self.role, f"client:{i}", broadcast)
        tries, begin, overdue, announced = 0, time.monotonic(), 1, ""
        while True:
            open_letters: dict[str, PendingLetter] = {}  # to those who are late already, anew: theirs may be lost
            waiting = [
                i
                for i in asked
                if i not in tally.replies and i not in tally.failed and f"client:{i}" in self.session.at
            ]
            for i in waiting:
                tally.wire += self.session.send(open_letters, f"client:{i}", "round", round, outgoing[i])
            self._await(open_letters, round, state, tally)
            self.session.follow_the_roll()  # who was revoked since it answered is in no sum
            tally.replies = {i: one for i, one in tally.replies.items() if self.session.is_member(f"client:{i}")}
            missing = [
                i
                for i in asked
                if i not in tally.replies and i not in tally.failed and self.session.is_member(f"client:{i}")
            ]
            enough = max(1, self.deployment.min_silos)
            if tally.is_setback and self.doubts.before is not None and not missing:
                break
            if tally.failed and not tally.replies and not missing:
                tries += 1
                self._warn(round, "every silo's answer was refused")
                if tries == TRIES:
                    raise CoveyError(
                        f"round {round}: every silo's answer was refused, {TRIES} times; see the reasons above"
                    )
                tally.failed.clear()
                tally.refusing.clear()
            elif not missing or (self.deployment.missing == "go_on" and len(tally.replies) >= enough):
                break
            if missing:
                words = f"still waiting for {', '.join(self.session.name(f'client:{i}') for i in missing)}"
                if words != announced:
                    self.say(f"round {round}: {words}")
                    announced = words
                if (
                    time.monotonic() - begin > overdue * self.deployment.round_seconds
                ):  # each time counts as a failed try
                    overdue += 1
                    self._warn(round, words)
            self.session.look_around()
            self.session.mail.wait(POLL_SECONDS)
        for i in sorted(tally.replies):
            self.transcript.add(round, f"client:{i}", self.role, tally.came[i])
        return tally

    def _await(self, letters: dict[str, PendingLetter], round: int, state: Any, tally: Tally) -> None:
        """Until every letter is answered, its silo is gone, or the round's time is up."""
        until = time.monotonic() + self.deployment.round_seconds
        looked = 0.0
        while letters and time.monotonic() < until:
            for id, data in self.session.mail.receive(list(letters)):
                self._take(letters.pop(id), data, round, state, tally)
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                self.session.drop_the_gone(letters, round)
            if letters:
                self.session.mail.wait(POLL_SECONDS)

    def _ask_buffered(self, buffer: Buffer, state: Any, round: int) -> tuple[Tally, Arrivals, list[int]]:
        """(the replies that this round takes, of which rounds' models they are, to whom this round's were sent).

        Who is idle is sent this round's models, who was lost sight of the same letter again. The round ends when the buffer is
        full, or when nobody is at work any more and enough have answered.
        """
        tally, asked = Tally(), list[int]()
        buffer.open(round)
        tries, begin, overdue, looked, announced = 0, time.monotonic(), 1, 0.0, ""
        while True:
            present = sorted(int(r.removeprefix("client:")) for r in self.session.at if r.startswith("client:"))
            for i in buffer.unasked(wanted(self.algorithm, state, present)):
                if i in tally.failed or not self.session.is_member(f"client:{i}"):
                    continue
                again, begun = i in buffer.begun, buffer.begin(i, round, state)
                broadcast = self.algorithm.broadcast(buffer.states[begun], i)
                tally.down += size(broadcast)
                if not again:
                    asked.append(i)
                    self.transcript.add(begun, self.role, f"client:{i}", broadcast)
                tally.wire += self.session.send(buffer.letters, f"client:{i}", "round", begun, broadcast)
            for id, data in self.session.mail.receive(list(buffer.letters)):
                self._put(buffer, buffer.letters.pop(id), data, round, tally)
            if time.monotonic() - looked > POLL_SECONDS:
                looked = time.monotonic()
                self.session.drop_the_gone(buffer.letters, round)
            if len(buffer.waiting) >= buffer.size or not buffer.letters:
                self.session.follow_the_roll()  # who was revoked since it answered is in no average
            buffer.remain(lambda i: self.session.is_member(f"client:{i}"))
            enough = len(buffer.waiting) >= max(1, self.deployment.min_silos)
            idle = not buffer.letters and not buffer.unasked(i for i in present if i not in tally.failed)
            idle = idle and not self._unmet
            goes_on = enough and self.deployment.missing == "go_on"
            # Nobody is left to wait for: one refused or revoked silo must not hold all others for ever.
            settled = bool(buffer.waiting) and self._all_have_answered(buffer, state, tally)
            if len(buffer.waiting) >= buffer.size or (idle and (goes_on or settled)):
                break
            if idle and tally.failed and not buffer.waiting:
                tries += 1
                self._warn(round, "every silo's answer was refused")
                if tries == TRIES:
                    raise CoveyError(
                        f"round {round}: every silo's answer was refused, {TRIES} times; see the reasons above"
                    )
                tally.failed.clear()
            words = f"{len(buffer.waiting)} of {buffer.size} replies, {len(buffer.letters)} silos at work"
            if time.monotonic() - begin > overdue * self.deployment.round_seconds:  # each time counts as a failed try
                overdue += 1
                self._warn(round, words)
            if idle and words != announced:
                self.say(f"round {round}: waiting for silos: {words}")
                announced = words
            if idle:
                self.session.look_around()
            self.session.mail.wait(POLL_SECONDS)
        taken, arrivals = buffer.take()
        for i, one in sorted(taken.items()):
            tally.replies[i], tally.came[i] = one.answer, one.came
            tally.up += size(one.came)
            self.transcript.add(one.begun, f"client:{i}", self.role, one.came)
        return tally, arrivals, asked

    def _all_have_answered(self, buffer: Buffer, state: Any, tally: Tally) -> bool:
        """Whether of every silo that is let in and wanted, there or not, an answer waits or was refused in this round."""
        members = sorted(i for i in self.session.party.silos.values() if self.session.is_member(f"client:{i}"))
        return all(i in buffer.waiting or i in tally.failed for i in wanted(self.algorithm, state, members))

    def _put(self, buffer: Buffer, sent: PendingLetter, data: bytes | None, round: int, tally: Tally) -> None:
        """An answer into the buffer, if all is well with it and it is not too old."""
        client = int(sent.role.removeprefix("client:"))
        if buffer.is_too_old(sent, round):
            buffer.discard(client)
            self.session.refuse(
                sent.role,
                round,
                f"its answer took longer than {buffer.bound} rounds (participation.max_staleness): it begins anew",
            )
            return
        try:
            answer, came = self._admitted(sent, data, buffer.states[sent.round], tally)
            buffer.keep(sent, answer, came)
            tally.wire += len(data or b"")
            self.watch.answered(self.session.name(sent.role), len(data or b""))
        except CoveyError as e:
            buffer.fail(client)
            tally.failed.add(client)
            self.session.refuse(sent.role, sent.round, str(e))

    def _take(self, sent: PendingLetter, data: bytes | None, round: int, state: Any, tally: Tally) -> None:
        """A silo's answer into the tally, if all is well with it."""
        client = int(sent.role.removeprefix("client:"))
        try:
            tally.replies[client], tally.came[client] = self._admitted(sent, data, state, tally)
            tally.up += size(tally.came[client])
            tally.wire += len(data or b"")
            self.watch.answered(self.session.name(sent.role), len(data or b""))
        except CoveyError as e:
            tally.failed.add(client)
            self.session.refuse(sent.role, round, str(e))

    def _admitted(self, sent: PendingLetter, data: bytes | None, state: Any, tally: Tally) -> tuple[RoundReply, Any]:
        """A silo's answer with its reply unpacked and checked, and the reply as it crossed the wire."""
        client = int(sent.role.removeprefix("client:"))
        _, answer = self.session.open(sent, data)
        if isinstance(answer, Refused):
            tally.refusing.add(client)
            raise CoveyError("it could not work with what it was sent; its own log says why")
        if isinstance(answer, Spent):
            raise CoveyError("its privacy budget is spent: it answers no further round")
        if not isinstance(answer, RoundReply):
            raise CoveyError(f"found a {type(answer).__name__}, expected the reply to a round")
        sent_to = self.algorithm.broadcast(state, client)
        reply = unpack(self.experiment.compression, self.setting, sent_to, answer.reply)
        admit(self.algorithm, state, self.setting, self.keys, reply)
        return self._checked(answer, reply), answer.reply

    def _ask_further(self, round: int, tally: Tally, party: str, question: Any) -> Any:
        """Another server's answer, to one letter: it may answer only so many questions in a run. Waits for it for as long as for
        TRIES rounds; what comes and is not its answer costs the round.
        """
        self.transcript.add(round, self.role, party, question)
        for _ in range(TRIES):
            letters: dict[str, PendingLetter] = {}
            until = time.monotonic() + self.deployment.round_seconds
            while party not in self.session.at and time.monotonic() < until:
                self.session.look_around()
                self.session.mail.wait(POLL_SECONDS)
            if party in self.session.at:
                tally.wire += self.session.send(letters, party, "ask", round, question)
            while letters and time.monotonic() < until:
                for id, data in self.session.mail.receive(list(letters)):
                    try:
                        _, answer = self.session.open(letters.pop(id), data)
                        self._check_answer(party, answer)
                    except CoveyError as e:
                        raise BadAnswer(f"the answer of '{party}' cannot be used: {e}") from e
                    self.transcript.add(round, party, self.role, answer)
                    tally.wire += len(data or b"")
                    self.watch.answered(party, len(data or b""), further=True)
                    return answer
                self.session.drop_the_gone(letters, round)
                self.session.mail.wait(POLL_SECONDS)
            self.say(f"round {round}: waiting for {party}")
            self.session.look_around()
            self.session.mail.wait(POLL_SECONDS)
        raise BadAnswer(f"'{party}' has not answered")

    def _consult(self, round: int, tally: Tally, questions: Mapping[int, Any], enough: int) -> dict[int, Any]:
        """What silos answer to a further question of the round: of all that are there, or of enough and who else is quick."""
        letters: dict[str, PendingLetter] = {}
        for i, question in questions.items():
            if f"client:{i}" in self.session.at:
                tally.down += size(question)
                self.transcript.add(round, self.role, f"client:{i}", question)
                tally.wire += self.session.send(letters, f"client:{i}", "consult", round, question)
        answers: dict[int, Any] = {}
        until = time.monotonic() + self.deployment.round_seconds
        while letters and time.monotonic() < until:
            for id, data in self.session.mail.receive(list(letters)):
                sent = letters.pop(id)
                try:
                    _, answer = self.session.open(sent, data)
                    if not isinstance(answer, RoundReply):
                        raise CoveyError(f"found a {type(answer).__name__}, expected the answer to a question")
                    admit_advice(self.algorithm, self.setting, self.keys, answer.reply)
                    answers[int(sent.role.removeprefix("client:"))] = answer.reply
                    self.transcript.add(round, sent.role, self.role, answer.reply)
                    tally.up += size(answer.reply)
                    tally.wire += len(data or b"")
                    self.watch.answered(self.session.name(sent.role), len(data or b""), further=True)
                except CoveyError as e:
                    self.session.refuse(sent.role, round, str(e))
                if len(answers) == enough:
                    until = min(until, time.monotonic() + SLOW_SECONDS)
            self.session.drop_the_gone(letters, round)
            if letters:
                self.session.mail.wait(POLL_SECONDS)
        if len(answers) < enough:
            self.say(
                f"round {round}: {len(answers)} silos answered what {enough} must: the round is lost, its models stay"
            )
        return answers

    def _check_answer(self, party: str, answer: Any) -> None:
        expected = self.declared.answers
        if expected and type(answer) not in expected:
            names = " or ".join(kind.__name__ for kind in expected)
            raise CoveyError(f"'{party}' answered with a {type(answer).__name__}, expected {names}: see its own log")

    def _look_for_the_last(self) -> None:
        """A coordinator that is started again after the last round still hands models to silos that have none yet, and where
        rounds are asynchronous to those that were at work all the time.
        """
        until = time.monotonic() + LAST_SECONDS
        while (not self._gathered and time.monotonic() < until) or (self.buffer and self._unmet):
            self.session.look_around()
            self.session.mail.wait(POLL_SECONDS)

    @property
    def _unmet(self) -> set[int]:
        """Silos that have not been there since this process began, as long as they may still come: one that was at work when it
        did cannot be there before that is done.
        """
        self._met.update(int(role.removeprefix("client:")) for role in self.session.at if role.startswith("client:"))
        return set() if time.monotonic() > self._patient else set(self.session.party.silos.values()) - self._met

    def _checked(self, answer: RoundReply, reply: Any) -> RoundReply:
        """An answer with its reply unpacked, and of what it reports only what can be."""
        given = answer.metrics if isinstance(answer.metrics, dict) else {}
        known = {m.name: given[m.name] for m in self.metrics if _is_number(given.get(m.name))}
        return RoundReply(reply, answer.accuracy if _is_share(answer.accuracy) else None, known)

    def _reported(self, replies: Mapping[int, RoundReply]) -> dict[str, Any]:
        """The part of a record that silos chose to report."""
        shares = [one.accuracy for one in replies.values() if one.accuracy is not None]
        values = {i: one.metrics for i, one in replies.items() if one.metrics}
        record: dict[str, Any] = {"accuracy": reported_accuracies(shares) if shares else None}
        return record | ({"metrics": reported_metrics(self.metrics, self.setting.clients, values)} if values else {})

    def _finish(self, state: Any) -> tuple[Any, dict[str, Any]]:
        """The last models go out. Who is not there gets its own when coordinator and silo are started again.

        Where they do not open, the models before them go out, once.
        """
        last = self.experiment.training.rounds + 1
        refusing, reported = self._hand_out(state, last)
        if len(refusing) > len(reported) and self.doubts.before is not None:
            state = self._go_back(self._desk(last, Tally(), defaultdict(float)))
            self._save(state, last - 1)
            _, reported = self._hand_out(state, last + 1)
        return state, self._reported(reported)

    def _hand_out(self, state: Any, round: int) -> tuple[list[str], dict[int, RoundReply]]:
        """(who refused the last models, what the others say about theirs)."""
        letters: dict[str, PendingLetter] = {}
        clients = [int(r.removeprefix("client:")) for r in self.session.at if r.startswith("client:")]
        served = wanted(self.algorithm, state, sorted(clients), "serves")
        for i in clients:
            last = self.algorithm.broadcast(state, i) if i in served else None
            self.session.send(letters, f"client:{i}", "finish", round, last)
        for party in self.further:
            if party in self.session.at:
                self.session.send(letters, party, "finish", round, None)
        # Where rounds are asynchronous somebody is at work on an older round's models still, and gets the last ones after that.
        patience = self.deployment.round_seconds if self.buffer else min(self.deployment.round_seconds, 120.0)
        until, refusing = time.monotonic() + patience, list[str]()
        reported: dict[int, RoundReply] = {}
        while letters and time.monotonic() < until:
            for id, data in self.session.mail.receive(list(letters)):
                sent = letters.pop(id)
                try:
                    _, answer = self.session.open(sent, data)
                    if isinstance(answer, Refused):
                        refusing.append(sent.role)
                        raise CoveyError("it could not open its last model; its own log says why")
                    if isinstance(answer, RoundReply) and sent.role not in self.further:
                        reported[int(sent.role.removeprefix("client:"))] = self._checked(answer, None)
                    self.watch.answered(self.session.name(sent.role), len(data or b""), further=True)
                except CoveyError as e:
                    self.session.refuse(sent.role, round, str(e))
            self.session.drop_the_gone(letters, round)
            if letters:
                self.session.mail.wait(POLL_SECONDS)
        return refusing, reported


def _culprits(senders: list[int], breaks: Callable[[list[int]], bool]) -> list[int]:
    """Those on whose reply alone the algorithm breaks, if that is not all; else one without whom it does not."""
    alone = [i for i in senders if breaks([i])]
    if 0 < len(alone) < len(senders) and not breaks([i for i in senders if i not in alone]):
        return alone
    return next(([i] for i in senders if len(senders) > 1 and not breaks([j for j in senders if j != i])), [])


def _breaks(attempt: Callable[[Sequence[int]], Any], senders: list[int]) -> bool:
    try:
        attempt(senders)
    except CoveyError:
        return False
    except Exception:
        return True
    return False


def _is_finite(state: Any) -> bool:
    try:
        roles.refuse_infinite(state)
    except CoveyError:
        return False
    return True


def _is_share(value: Any) -> bool:
    return isinstance(value, float) and 0 <= value <= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)
