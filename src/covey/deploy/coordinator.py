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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from covey.algorithms.contract import BadAnswer, Server, carried_on, declaration, wanted
from covey.algorithms.sums.openings import is_together
from covey.crypto.noise.source import SecretNoise
from covey.data.names import SILOS
from covey.deploy.agreed import Agreed, digest, experiment_of, network_of, setting_of
from covey.deploy.course import doubts
from covey.deploy.course.asking import ask_silos, hand_out
from covey.deploy.course.buffered import BufferedRounds
from covey.deploy.course.culprits import culprits, is_finite
from covey.deploy.course.doubts import Doubts
from covey.deploy.course.exchange import Exchange, Tally
from covey.deploy.course.patience import TRIES
from covey.deploy.course.questions import ask_server, consult
from covey.deploy.keys import silos_needed
from covey.deploy.letters import Mailbox, largest_message
from covey.deploy.membership.records import Party
from covey.deploy.membership.roll import Roll
from covey.deploy.session import Session
from covey.deploy.transcript import Transcript
from covey.deploy.transport import Mail
from covey.deploy.watch.watch import Watch, spendings
from covey.engines.prepare import device_of
from covey.errors import CoveyError, printable
from covey.experiment.participation import POISSON
from covey.ledger.pricing import price
from covey.measures import STALENESS, STALEST
from covey.messages import same, to_device
from covey.metrics.metric import chosen
from covey.results.folder import RunFolder
from covey.rounds.asynchronous import UnderWay
from covey.rounds.record import timed
from covey.rounds.result import Result, summarise

LAST_SECONDS = 30.0  # in which silos may come for the last models
ANSWER_SECONDS = 120.0  # at most, for what they say about these
ABSENT_SECONDS = 60.0  # after which who is waited for is said to be, perhaps, not running


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
        self.exchange = Exchange(
            self.session,
            self.experiment,
            self.setting,
            party.keys,
            chosen(network_of(agreed).task, self.experiment.evaluation.metrics),
            Transcript(out / "transcript.jsonl"),
        )
        self.records: list[dict[str, Any]] = []
        self.spends: list[tuple[int, int, Any]] = []  # round, client, event: of noise that the server adds
        self._secret_notes = {name for name, measure in self.declared.measures.items() if measure.secret}
        self._least = silos_needed(self.declared, party.keys)
        self.doubts = Doubts()
        part = self.experiment.participation
        self.buffered = BufferedRounds(self.exchange, UnderWay()) if part.buffer else None
        self._gathered = False  # since this process began
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
        if self.buffered is not None:
            way = to_device(content.get("way", UnderWay()), device_of(self.experiment))
            self.buffered = BufferedRounds(self.exchange, way)
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
            "way": None if self.buffered is None else self.buffered.buffer.way,
        }
        RunFolder(self.out).save(content, {})

    def _round(self, state: Any, round: int) -> tuple[Any, dict[str, Any]]:
        if self.buffered is not None:
            return self._buffered_round(self.buffered, state, round)
        seconds: dict[str, float] = defaultdict(float)
        part = self.experiment.participation
        # Amplification by sampling is for those who cannot foresee the sample.
        hidden = part.sampling == POISSON and not self.deployment.rehearsal
        drawn, _ = part.participants(secrets.randbits(63) if hidden else self.setting.seed, round, self.setting.clients)
        present = [int(i) for i in drawn if f"client:{i}" in self.session.at]
        asked = doubts.asked(self.doubts, wanted(self.algorithm, state, present), self._least)
        begin, resent = time.perf_counter(), self.session.resent
        tally = ask_silos(self.exchange, state, round, asked, self.doubts.before is not None)
        seconds["silos"] = time.perf_counter() - begin
        server, came_to = self._server(round, tally, seconds), ""
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

    def _buffered_round(self, buffered: BufferedRounds, state: Any, round: int) -> tuple[Any, dict[str, Any]]:
        """Of the first replies that come, whichever round's models they were trained from."""
        seconds: dict[str, float] = defaultdict(float)
        begin, resent = time.perf_counter(), self.session.resent
        tally, arrivals, asked = buffered.ask(state, round)
        seconds["silos"] = time.perf_counter() - begin
        server = self._server(round, tally, seconds)
        with timed(seconds, "aggregate"):
            buffered.rebase(tally, arrivals, state, round)
            before, state = state, self._aggregate(server, state, round, tally)
        self.spends.extend((round, client, event) for client, event in server.events)
        seconds["aggregate"] -= sum(s for p, s in seconds.items() if p not in ("aggregate", "silos"))
        came_to = "its answers did not suffice, and the models stay as they are" if same(before, state) else ""
        ages = arrivals.ages(round)
        self.watch.describe(staleness=ages[STALENESS], stalest=int(ages[STALEST]))
        self.watch.discard(buffered.buffer.discarded)
        self._tell(round, time.perf_counter() - begin, sorted(tally.replies), tally, came_to)
        record = self._record(round, tally, asked, seconds, came_to, resent, {**server.notes, **ages})
        return state, record | {"dropped": len(tally.failed) + buffered.buffer.discarded}

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
            **self.exchange.reported(tally.replies),
            "clustering": None,
            "clusters": None,
            "extra": {name: value for name, value in notes.items() if name not in self._secret_notes},
        }

    def _tell(self, round: int, seconds: float, asked: list[int], tally: Tally, came_to: str) -> None:
        """The operator: how a round has ended; `came_to` says why it came to nothing."""
        names = {i: self.session.name(f"client:{i}") for i in asked}
        if came_to:
            self.session.warn(round, came_to)
        missed = [name for i, name in names.items() if i not in tally.replies]
        over = self.watch.ends(round, seconds, [names[i] for i in tally.replies], missed, not came_to)
        if over:
            self.say(over)

    @property
    def spending(self) -> dict[str, Any]:
        """What the server's own noise has cost so far, for the operator."""
        spends = list(self.spends)
        return {"privacy": spendings(price(spends))} if spends else {}

    def _lost_so_far(self) -> int:
        """Rounds that changed no model, or were taken back: fewer silos than must were in them, say, or helped to open them."""
        return int(self.records[-1].get("lost", 0)) if self.records else 0

    def _server(self, round: int, tally: Tally, seconds: dict[str, float]) -> Server:
        ask, phase = partial(ask_server, self.exchange, round, tally), partial(timed, seconds)
        server = Server(round, self.setting.seed, self.setting, self.keys, ask, phase)
        # Where the server itself adds noise, that must not follow from a seed that everybody has.
        secret = None if self.deployment.rehearsal else SecretNoise()
        consults = partial(consult, self.exchange, round, tally)
        return replace(server, consult=consults, run=self.session.run, secret=secret)

    def _aggregate(self, server: Server, state: Any, round: int, tally: Tally) -> Any:
        """The next state. A reply that passed every check and on which the algorithm breaks nevertheless is left out.

        What the algorithm refuses in words (a CoveyError) is its verdict on the round, not a broken reply.
        """

        def attempt(senders: Sequence[int]) -> Any:
            trial = replace(server, notes={}, events=[])
            after = self.algorithm.aggregate(trial, state, iter([(i, tally.replies[i].reply) for i in senders]))
            if is_finite(state) and not is_finite(after):  # numbers that were finite, and whose sum is not
                raise OverflowError
            server.notes.update(trial.notes)
            server.events[:] = trial.events
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
            for i in culprits(senders, attempt) or senders:
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
            patient = not self.records or (not self._gathered and not self.buffered and time.monotonic() < until)
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
            self.exchange.pause()

    def _look_for_the_last(self) -> None:
        """A coordinator that is started again after the last round still hands models to silos that have none yet, and where
        rounds are asynchronous to those that were at work all the time.
        """
        until = time.monotonic() + LAST_SECONDS
        while (not self._gathered and time.monotonic() < until) or (self.buffered and self.buffered.unmet):
            self.session.look_around()
            self.exchange.pause()

    def _finish(self, state: Any) -> tuple[Any, dict[str, Any]]:
        """The last models go out. Who is not there gets its own when coordinator and silo are started again.

        Where they do not open, the models before them go out, once.
        """
        last = self.experiment.training.rounds + 1
        # Where rounds are asynchronous somebody is at work on an older round's models still, and gets the last ones after that.
        seconds = self.deployment.round_seconds
        seconds = seconds if self.buffered else min(seconds, ANSWER_SECONDS)
        refusing, reported = hand_out(self.exchange, state, last, seconds)
        if len(refusing) > len(reported) and self.doubts.before is not None:
            state = self._go_back(self._server(last, Tally(), defaultdict(float)))
            self._save(state, last - 1)
            _, reported = hand_out(self.exchange, state, last + 1, seconds)
        return state, self.exchange.reported(reported)
