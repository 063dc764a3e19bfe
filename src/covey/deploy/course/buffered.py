"""Rounds of whoever answers first: asks who is idle, keeps what comes in the buffer, ends the round when the buffer is full."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from covey.algorithms.contract import wanted
from covey.deploy.course.buffer import Buffer
from covey.deploy.course.exchange import POLL_SECONDS, Exchange, Tally
from covey.deploy.course.patience import Deadline, Patience
from covey.deploy.session import PendingLetter
from covey.errors import CoveyError
from covey.messages import size
from covey.rounds.asynchronous import Arrivals, UnderWay, rebased


class BufferedRounds:
    """Over one buffer; `way` is what a checkpoint has kept of it."""

    def __init__(self, exchange: Exchange, way: UnderWay) -> None:
        part = exchange.experiment.participation
        self.exchange, self.buffer = exchange, Buffer(part.buffer, part.max_staleness, way)
        self._met = set[int]()  # silos, since this process began
        self._others = Deadline(exchange.deployment.round_seconds)  # until when others may come

    @property
    def unmet(self) -> set[int]:
        """Silos that have not been there since this process began, as long as they may still come: one that was at work when it
        did cannot be there before that is done.
        """
        self._met.update(self.exchange.present)
        return set() if self._others.is_over else set(self.exchange.session.party.silos.values()) - self._met

    def ask(self, state: Any, round: int) -> tuple[Tally, Arrivals, list[int]]:
        """(the replies that this round takes, of which rounds' models they are, to whom this round's were sent).

        Who is idle is sent this round's models, who was lost sight of the same letter again. The round ends when the buffer is
        full, or when nobody is at work any more and enough have answered.
        """
        exchange, buffer, session = self.exchange, self.buffer, self.exchange.session
        tally, asked, looked = Tally(), list[int](), 0.0
        patience = Patience(session, round, exchange.deployment.round_seconds)
        buffer.open(round)
        while True:
            present = exchange.present
            asked += self._send(state, round, present, tally)
            for id, data in session.mail.receive(list(buffer.letters)):
                self._put(buffer.letters.pop(id), data, round, tally)
            if time.monotonic() - looked > POLL_SECONDS:
                looked = time.monotonic()
                session.drop_the_gone(buffer.letters, round)
            if len(buffer.waiting) >= buffer.size or not buffer.letters:
                session.follow_the_roll()  # who was revoked since it answered is in no average
            buffer.remain(exchange.is_member)
            idle = not buffer.letters and not buffer.unasked(i for i in present if i not in tally.failed)
            idle = idle and not self.unmet
            if len(buffer.waiting) >= buffer.size or (idle and self._may_end(state, tally)):
                break
            if idle and tally.failed and not buffer.waiting:
                patience.count_refusal_of_all()
                tally.forget_refusals()
            words = f"{len(buffer.waiting)} of {buffer.size} replies, {len(buffer.letters)} silos at work"
            patience.look_at_the_clock(words)
            if idle:
                patience.announce(f"waiting for silos: {words}")
                session.look_around()
            exchange.pause()
        taken, arrivals = buffer.take()
        for i, one in sorted(taken.items()):
            tally.replies[i], tally.came[i] = one.answer, one.came
            tally.up += size(one.came)
            exchange.transcript.add(one.begun, f"client:{i}", exchange.declared.server, one.came)
        return tally, arrivals, asked

    def _send(self, state: Any, round: int, present: list[int], tally: Tally) -> list[int]:
        """Models to all who are idle; who of them got this round's for the first time."""
        exchange, buffer, first = self.exchange, self.buffer, list[int]()
        for i in buffer.unasked(wanted(exchange.algorithm, state, present)):
            if i in tally.failed or not exchange.is_member(i):
                continue
            again, begun = i in buffer.begun, buffer.begin(i, round, state)
            broadcast = exchange.algorithm.broadcast(buffer.states[begun], i)
            tally.down += size(broadcast)
            if not again:
                first.append(i)
                exchange.transcript.add(begun, exchange.declared.server, f"client:{i}", broadcast)
            tally.wire += exchange.session.send(buffer.letters, f"client:{i}", "round", begun, broadcast)
        return first

    def _put(self, sent: PendingLetter, data: bytes | None, round: int, tally: Tally) -> None:
        """An answer into the buffer, if all is well with it and it is not too old."""
        buffer, session = self.buffer, self.exchange.session
        if buffer.is_too_old(sent, round):
            buffer.discard(sent.client)
            session.refuse(
                sent.role,
                round,
                f"its answer took longer than {buffer.bound} rounds (participation.max_staleness): it begins anew",
            )
            return
        try:
            buffer.keep(sent, *self.exchange.admitted(sent, data, buffer.states[sent.round], tally))
        except CoveyError as e:
            buffer.fail(sent.client)
            tally.failed.add(sent.client)
            session.refuse(sent.role, sent.round, str(e))

    def _may_end(self, state: Any, tally: Tally) -> bool:
        """Of a round in which nobody is at work: whether enough have answered to go on, or nobody is left to wait for. One refused
        or revoked silo must not hold all others for ever.
        """
        deployment, waiting = self.exchange.deployment, self.buffer.waiting
        enough = len(waiting) >= max(1, deployment.min_silos)
        if enough and deployment.missing == "go_on":
            return True
        members = sorted(i for i in self.exchange.session.party.silos.values() if self.exchange.is_member(i))
        awaited = wanted(self.exchange.algorithm, state, members)
        return bool(waiting) and all(i in waiting or i in tally.failed for i in awaited)

    def rebase(self, tally: Tally, arrivals: Arrivals, state: Any, round: int) -> None:
        """Replies to older models as replies to this round's. One on which the algorithm breaks is left out."""
        exchange, power = self.exchange, self.exchange.experiment.participation.staleness_power
        for client, one in sorted(tally.replies.items()):
            try:
                ((_, reply),) = rebased(iter([(client, one.reply)]), arrivals, exchange.algorithm, state, round, power)
                tally.replies[client] = replace(one, reply=reply)
            except CoveyError:
                raise
            except Exception as e:
                del tally.replies[client]
                why = f"the algorithm breaks on its reply ({type(e).__name__})"
                exchange.session.refuse(f"client:{client}", round, why)
