"""A second server, where an algorithm has one: its own party, with its own keys, that answers the coordinator's questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from covey import files
from covey.algorithms.contract import Server, checked_question, declaration
from covey.deploy.agreed import Agreed, digest, experiment_of, setting_of
from covey.deploy.letters import Hello, Mailbox, RoundReply, VerifiedLetter, largest_message, report_refusals
from covey.deploy.membership.records import Party
from covey.deploy.transcript import Transcript
from covey.deploy.usage import Usage
from covey.errors import CoveyError
from covey.results.status import ANSWERED
from covey.version import __version__

# An honest coordinator asks two in a round, and those again each time that it was restarted in mid-round.
PER_ROUND = 8
ROUND, RESTARTS = 2, 16  # in a run: so many for each round, and so many more
FAILED = "failed"


class SecondServer:
    """`handle` takes a letter's bytes and gives the answer's. What it was asked is on disk before it opens anything of it."""

    def __init__(
        self,
        party: Party,
        agreed: Agreed,
        folder: Path,
        say: Callable[[str], None] = print,
        *,
        keys: Path | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.say, self.role, self.keys = folder, say, party.role, party.keys
        self.digest = digest(agreed)
        self.experiment = experiment_of(agreed, {"workers": 1})
        declared = declaration(self.experiment.algorithm)
        if party.role not in declared.further:
            raise CoveyError(f"{declared.name} has no second server '{party.role}': there is nothing for it to do")
        self.setting = setting_of(agreed, self.experiment)
        deployment = self.experiment.deployment
        # It gets the rows of all silos in one letter.
        limit = largest_message(self.setting, deployment.max_megabytes) * max(1, self.setting.clients)
        self.mailbox = Mailbox(party.role, party.signing, party.known, deployment.round_seconds + 300, limit)
        (self.server,) = party.known
        self.transcript = Transcript(folder / "transcript.jsonl")
        self.finished = False
        self._diary = Diary(folder / "rounds.jsonl")
        self.usage = Usage(None if deployment.rehearsal else keys)
        self.usage.check_questions(len(self._diary.questions))

    def handle(self, data: bytes) -> bytes:
        with report_refusals(self.folder, self.say):
            return self.mailbox.answer(data, self._answer, self.say)

    @property
    def latest(self) -> tuple[int, str]:
        """The last round of which something was asked, and what came of it."""
        return self._diary.newest, ANSWERED if self._diary.newest else ""

    @property
    def spending(self) -> dict[str, Any]:
        """It adds no noise of its own."""
        return {}

    @property
    def stopped(self) -> str:
        """Why this server answers no more, in words for its owner; empty: it does."""
        failures = self._diary.failures
        if failures < self.experiment.deployment.max_refusals:
            return ""
        return (
            f"stopped for good: {failures} questions of the coordinator could not be answered with this server's secret key, and "
            "every further failure would tell more of that key; ask the coordinator what happened, then make new keys for all "
            "with `covey keys make` and begin a new run from a new --state folder"
        )

    @property
    def told_bits(self) -> float | None:
        """Bits of its key that its answers of this run say at most; None: the algorithm does not say."""
        own = getattr(self.experiment.algorithm, "answers_tell", None)
        most = self.experiment.deployment.max_refusals
        return own(self.setting, questions_of(self.setting.rounds), most) if own else None

    def _answer(self, verified: VerifiedLetter) -> bytes:
        letter, round = verified.letter, verified.round
        if letter.kind == "hello":
            body: Any = Hello(self.digest, __version__, "", self._diary.newest)
        elif letter.kind == "ask":
            body = self._answer_question(verified)
        elif letter.kind == "finish":
            self.finished = True
            self.say("finished")
            body = RoundReply(None, None)
        else:
            raise CoveyError(
                f"a letter of the kind '{letter.kind[:40]}' came, '{self.role}' answers hello, ask and finish"
            )
        return self.mailbox.write(letter.run, letter.kind, verified.sender, round, body, letter.number)[0]

    def _answer_question(self, verified: VerifiedLetter) -> Any:
        round, question = verified.round, verified.letter.body
        self._check_round(round)
        server = Server(round, self.setting.seed, self.setting, self.keys, _nobody, _untimed)
        facts = checked_question(self.experiment.algorithm, server, question, self._diary.questions)
        self.usage.check_questions(len(self._diary.questions))  # as they stand now: another process may have answered
        self._diary.write({"round": round, **facts})  # first: a question is spent, whatever comes of it
        self.usage.ask(len(self._diary.questions))
        begin = time.perf_counter()
        try:
            answer = self.experiment.algorithm.answer(server, question)
        except Exception:  # also a mistake of ours: what it depended on, nobody knows
            self._diary.write({"round": round, FAILED: 1})
            if self.stopped:
                self.say(self.stopped)
            raise
        self.transcript.add(round, verified.sender, self.role, question)
        self.transcript.add(round, self.role, verified.sender, answer)
        files.append_line(self.folder / "notes.jsonl", {"round": round, **server.notes})
        self.say(f"round {round}: answered after {time.perf_counter() - begin:.1f} s")
        return answer

    def _check_round(self, round: int) -> None:
        rounds, newest, asked = self.setting.rounds, self._diary.newest, self._diary.questions
        if self.stopped:
            raise CoveyError(self.stopped)
        if not 1 <= round <= rounds or round < newest:
            raise CoveyError(f"a question of round {round} came: {rounds} are agreed, and round {newest} has come")
        most, before = questions_of(rounds), sum(one["round"] == round for one in asked)
        if before >= PER_ROUND or len(asked) >= most:
            raise CoveyError(
                f"question {before + 1} of round {round} came, and {len(asked)} before it in this run: "
                f"{PER_ROUND} are answered in a round and {most} in the run, since every answer tells something of what is opened"
            )


class Diary:
    """What a second server was asked, a line for each question, and one more for each that it failed on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = [{k: int(v) for k, v in line.items()} for line in files.read_lines(path)]
        self.questions = [line for line in lines if FAILED not in line]
        self.failures = len(lines) - len(self.questions)

    @property
    def newest(self) -> int:
        return max((one["round"] for one in self.questions), default=0)

    def write(self, line: dict[str, int]) -> None:
        files.append_line(self.path, line, sync=True)
        if FAILED in line:
            self.failures += 1
        else:
            self.questions.append(line)


def questions_of(rounds: int) -> int:
    """How many are answered in a run."""
    return ROUND * rounds + RESTARTS


def _nobody(party: str, question: Any) -> Any:
    raise CoveyError(f"a further server asked '{party}': only the coordinator asks")


@contextmanager
def _untimed(name: str) -> Iterator[None]:
    yield
