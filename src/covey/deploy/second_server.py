"""A second server, where an algorithm has one: its own party, with its own keys, that answers the coordinator's questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from covey import files
from covey.algorithms.contract import Server, declaration
from covey.deploy.agreed import Agreed, digest, experiment_of, setting_of
from covey.deploy.keys import Party
from covey.deploy.letters import Hello, Mailbox, RoundReply, VerifiedLetter, largest_message, report_refusals
from covey.deploy.transcript import Transcript
from covey.errors import CoveyError
from covey.version import __version__

# An honest coordinator asks two in a round, and those again each time that it was restarted in mid-round.
PER_ROUND = 8
ROUND, RESTARTS = 2, 16  # in a run: so many for each round, and so many more


class SecondServer:
    """`handle` takes a letter's bytes and gives the answer's."""

    def __init__(self, party: Party, agreed: Agreed, folder: Path, say: Callable[[str], None] = print) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.say, self.role, self.keys = folder, say, party.role, party.keys
        self.digest = digest(agreed)
        self.experiment = experiment_of(agreed, {"workers": 1})
        declared = declaration(self.experiment.algorithm)
        if party.role not in declared.further:
            raise CoveyError(f"{declared.name} has no second server '{party.role}': there is nothing for it to do")
        self.asks = declared.asks
        self.setting = setting_of(agreed, self.experiment)
        deployment = self.experiment.deployment
        # It gets the rows of all silos in one letter.
        limit = largest_message(self.setting, deployment.max_megabytes) * max(1, self.setting.clients)
        self.mailbox = Mailbox(party.role, party.signing, party.known, deployment.round_seconds + 300, limit)
        (self.server,) = party.known
        self.transcript = Transcript(folder / "transcript.jsonl")
        self.finished = False
        self._asked = self._load()  # round of each question that was answered, or refused after it was begun

    def handle(self, data: bytes) -> bytes:
        with report_refusals(self.folder, self.say):
            return self._answer(self.mailbox.read(data))

    def _answer(self, verified: VerifiedLetter) -> bytes:
        letter, round = verified.letter, verified.round
        if letter.kind == "hello":
            body: Any = Hello(self.digest, __version__, "", self._newest)
        elif letter.kind == "ask":
            body = self._answer_question(verified)
        elif letter.kind == "finish":
            self.finished = True
            self.say("finished")
            body = RoundReply(None, None)
        else:
            raise CoveyError(f"a letter of the kind '{letter.kind}' came, '{self.role}' answers hello, ask and finish")
        return self.mailbox.write(letter.run, letter.kind, verified.sender, round, body, letter.number)[0]

    def _answer_question(self, verified: VerifiedLetter) -> Any:
        round, question = verified.round, verified.letter.body
        self._check_question(round, question)
        self._save(round)  # first: a question is spent, whatever comes of it
        begin = time.perf_counter()
        server = Server(round, self.setting.seed, self.setting, self.keys, _nobody, _untimed)
        answer = self.experiment.algorithm.answer(server, question)
        self.transcript.add(round, verified.sender, self.role, question)
        self.transcript.add(round, self.role, verified.sender, answer)
        files.append_line(self.folder / "notes.jsonl", {"round": round, **server.notes})
        self.say(f"round {round}: answered after {time.perf_counter() - begin:.1f} s")
        return answer

    def _check_question(self, round: int, question: Any) -> None:
        rounds = self.setting.rounds
        if not 1 <= round <= rounds or round < self._newest:
            raise CoveyError(
                f"a question of round {round} came: {rounds} are agreed, and round {self._newest} has come"
            )
        most = ROUND * rounds + RESTARTS
        if self._asked.count(round) >= PER_ROUND or len(self._asked) >= most:
            raise CoveyError(
                f"question {self._asked.count(round) + 1} of round {round} came, and {len(self._asked)} before it in this run: "
                f"{PER_ROUND} are answered in a round and {most} in the run, since every answer tells something of what is opened"
            )
        if self.asks and type(question) not in self.asks:
            names = " or ".join(kind.__name__ for kind in self.asks)
            raise CoveyError(f"it was asked with a {type(question).__name__}, expected {names}")

    @property
    def _newest(self) -> int:
        return max(self._asked, default=0)

    def _load(self) -> list[int]:
        return [int(line["round"]) for line in files.read_lines(self.folder / "rounds.jsonl")]

    def _save(self, round: int) -> None:
        files.append_line(self.folder / "rounds.jsonl", {"round": round})
        self._asked.append(round)


def _nobody(party: str, question: Any) -> Any:
    raise CoveyError(f"a further server asked '{party}': only the coordinator asks")


@contextmanager
def _untimed(name: str) -> Iterator[None]:
    yield
