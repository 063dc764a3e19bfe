"""Letters that every silo gets: a round's models, answered by as many as the experiment wants, and at the end the last ones."""

from __future__ import annotations

from typing import Any

from covey.algorithms.contract import wanted
from covey.deploy.course.exchange import Exchange, Tally
from covey.deploy.course.patience import Deadline, Patience
from covey.deploy.letters import Refused, RoundReply
from covey.deploy.session import PendingLetter
from covey.errors import CoveyError
from covey.messages import size


def ask_silos(exchange: Exchange, state: Any, round: int, asked: list[int], can_go_back: bool) -> Tally:
    """Letters to all, answers of as many as the experiment wants. A silo that errs is not asked again.

    Where more than half refuse what they were sent and there is a state to go back to, the round ends.
    """
    session, deployment = exchange.session, exchange.deployment
    tally, patience = Tally(), Patience(session, round, deployment.round_seconds)
    outgoing = {i: exchange.algorithm.broadcast(state, i) for i in asked}
    for i, broadcast in outgoing.items():
        tally.down += size(broadcast)
        exchange.transcript.add(round, exchange.declared.server, f"client:{i}", broadcast)
    while True:
        letters: dict[str, PendingLetter] = {}  # to those who are late already, anew: theirs may be lost
        for i in _open(asked, tally):
            if f"client:{i}" in session.at:
                tally.wire += session.send(letters, f"client:{i}", "round", round, outgoing[i])
        for sent, data in exchange.answers(letters, round, Deadline(deployment.round_seconds)):
            exchange.take(sent, data, round, state, tally)
        session.follow_the_roll()  # who was revoked since it answered is in no sum
        tally.replies = {i: one for i, one in tally.replies.items() if exchange.is_member(i)}
        missing = [i for i in _open(asked, tally) if exchange.is_member(i)]
        if tally.is_setback and can_go_back and not missing:
            break
        if tally.failed and not tally.replies and not missing:
            patience.count_refusal_of_all()
            tally.forget_refusals()
        elif not missing or (deployment.missing == "go_on" and len(tally.replies) >= max(1, deployment.min_silos)):
            break
        if missing:
            words = f"still waiting for {', '.join(exchange.name(i) for i in missing)}"
            patience.announce(words)
            patience.look_at_the_clock(words)
        session.look_around()
        exchange.pause()
    for i in sorted(tally.replies):
        exchange.transcript.add(round, f"client:{i}", exchange.declared.server, tally.came[i])
    return tally


def _open(asked: list[int], tally: Tally) -> list[int]:
    """Those of whom neither a reply nor a refused answer has come."""
    return [i for i in asked if i not in tally.replies and i not in tally.failed]


def hand_out(exchange: Exchange, state: Any, round: int, seconds: float) -> tuple[list[str], dict[int, RoundReply]]:
    """The last models: (who refused them, what the others say about theirs)."""
    session, further = exchange.session, exchange.declared.further
    letters: dict[str, PendingLetter] = {}
    served = wanted(exchange.algorithm, state, exchange.present, "serves")
    for i in exchange.present:
        last = exchange.algorithm.broadcast(state, i) if i in served else None
        session.send(letters, f"client:{i}", "finish", round, last)
    for party in further:
        if party in session.at:
            session.send(letters, party, "finish", round, None)
    refusing, reported = list[str](), dict[int, RoundReply]()
    for sent, data in exchange.answers(letters, round, Deadline(seconds)):
        try:
            _, answer = session.open(sent, data)
            if isinstance(answer, Refused):
                refusing.append(sent.role)
                raise CoveyError("it could not open its last model; its own log says why")
            if isinstance(answer, RoundReply) and sent.role not in further:
                reported[sent.client] = exchange.checked(answer, None)
            session.watch.answered(session.name(sent.role), len(data or b""), further=True)
        except CoveyError as e:
            session.refuse(sent.role, round, str(e))
    return refusing, reported
