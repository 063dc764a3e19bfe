"""Further exchanges within a round: what the algorithm asks another server, and what it asks the silos once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covey.algorithms.admission import admit_advice
from covey.algorithms.contract import BadAnswer, Declaration
from covey.deploy.course.exchange import Exchange, Tally
from covey.deploy.course.patience import TRIES, Deadline
from covey.deploy.letters import RoundReply
from covey.deploy.session import PendingLetter
from covey.errors import CoveyError
from covey.messages import size

SLOW_SECONDS = 2.0  # that the others have when enough silos have answered


def ask_server(exchange: Exchange, round: int, tally: Tally, party: str, question: Any) -> Any:
    """Another server's answer, to one letter: it may answer only so many questions in a run. Waits for it for as long as for
    TRIES rounds; what comes and is not its answer costs the round.
    """
    session, server = exchange.session, exchange.declared.server
    exchange.transcript.add(round, server, party, question)
    for _ in range(TRIES):
        letters: dict[str, PendingLetter] = {}
        until = Deadline(exchange.deployment.round_seconds)
        while party not in session.at and not until.is_over:
            session.look_around()
            exchange.pause()
        if party in session.at:
            tally.wire += session.send(letters, party, "ask", round, question)
        for sent, data in exchange.answers(letters, round, until):
            try:
                _, answer = session.open(sent, data)
                check_answer(exchange.declared, party, answer)
            except CoveyError as e:
                raise BadAnswer(f"the answer of '{party}' cannot be used: {e}") from e
            exchange.transcript.add(round, party, server, answer)
            tally.wire += len(data or b"")
            session.watch.answered(party, len(data or b""), further=True)
            return answer
        session.say(f"round {round}: waiting for {party}")
        session.look_around()
        exchange.pause()
    raise BadAnswer(f"'{party}' has not answered")


def check_answer(declared: Declaration, party: str, answer: Any) -> None:
    if declared.answers and type(answer) not in declared.answers:
        names = " or ".join(kind.__name__ for kind in declared.answers)
        raise CoveyError(f"'{party}' answered with a {type(answer).__name__}, expected {names}: see its own log")


def consult(exchange: Exchange, round: int, tally: Tally, questions: Mapping[int, Any], enough: int) -> dict[int, Any]:
    """What silos answer to a further question of the round: of all that are there, or of enough and who else is quick."""
    session, server = exchange.session, exchange.declared.server
    letters: dict[str, PendingLetter] = {}
    for i, question in questions.items():
        if f"client:{i}" in session.at:
            tally.down += size(question)
            exchange.transcript.add(round, server, f"client:{i}", question)
            tally.wire += session.send(letters, f"client:{i}", "consult", round, question)
    answers: dict[int, Any] = {}
    until = Deadline(exchange.deployment.round_seconds)
    for sent, data in exchange.answers(letters, round, until):
        try:
            _, answer = session.open(sent, data)
            if not isinstance(answer, RoundReply):
                raise CoveyError(f"found a {type(answer).__name__}, expected the answer to a question")
            admit_advice(exchange.algorithm, exchange.setting, exchange.keys, answer.reply)
            answers[sent.client] = answer.reply
            exchange.transcript.add(round, sent.role, server, answer.reply)
            tally.up += size(answer.reply)
            tally.wire += len(data or b"")
            session.watch.answered(session.name(sent.role), len(data or b""), further=True)
        except CoveyError as e:
            session.refuse(sent.role, round, str(e))
        if len(answers) == enough:
            until.shorten(SLOW_SECONDS)
    if len(answers) < enough:
        session.say(
            f"round {round}: {len(answers)} silos answered what {enough} must: the round is lost, its models stay"
        )
    return answers
