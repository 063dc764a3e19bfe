"""A second server that lies, errs or is away: it costs rounds and is told; three in a row end the run in one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.algorithms.fedcaprivacy.exchanges import SPARE, answers_tell
from covey.algorithms.fedcaprivacy.two_servers import CoveredMeans, CoveredRound, CoveredSums
from covey.crypto.blinded import blinded
from covey.deploy import keys
from covey.deploy.coordinator import Coordinator
from covey.deploy.course.exchange import Exchange
from covey.deploy.course.questions import ask_server
from covey.deploy.letters import Letter, unpack
from covey.deploy.second_server import SecondServer, questions_of
from covey.errors import CoveyError
from covey.messages import decode
from support.deployment import Deployment, rehearsal


def two_servers(folder: Path, rounds: int = 4, **algorithm: Any) -> Deployment:
    table = {"name": "fedcaprivacy", "min_size": 2, "threads": 1, **algorithm}
    return Deployment(folder, rehearsal(table, encryption="bfv", training={"rounds": rounds, "epochs": 1}))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    two_servers(folder)
    return folder


@pytest.fixture
def deployment(prepared: Path, tmp_path: Path) -> Deployment:
    """With keys and data made before, and state of its own."""
    for name in ("keys", "data"):
        (tmp_path / name).symlink_to(prepared / name)
    table = {"name": "fedcaprivacy", "min_size": 2, "threads": 1}
    return Deployment.opened(tmp_path, rehearsal(table, encryption="bfv", training={"rounds": 4, "epochs": 1}))


def lie(deployment: Deployment, change: Callable[[int, Any], Any]) -> None:
    """From now on the CSP's answers are what `change` makes of them, well signed."""
    csp = deployment.parties["csp"]

    def tamper(sender: str, call: bytes, answer: bytes) -> bytes | None:
        letter: Letter = decode(unpack(answer).payload)
        if sender != "csp" or letter.kind != "ask":
            return answer
        round = unpack(answer).round
        body = change(round, letter.body)
        if body is None:
            return None
        written: bytes = csp.mailbox.write(letter.run, "ask", letter.receiver, round, body, letter.answers)[0]
        return written

    deployment.office.tamper = tamper


LIES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda answer: None,
    "another kind": lambda answer: CoveredSums([b""]),
    "a text": lambda answer: "\x1b[2Jx",
    "no memberships": lambda answer: replace(answer, memberships=None),
    "nobody's cluster": lambda answer: replace(answer, memberships=answer.memberships * 0),
    "more clusters": lambda answer: replace(answer, memberships=np.ones((4, 9), np.uint8), models=answer.models * 5),
    "other numbers": lambda answer: replace(answer, memberships=answer.memberships.astype(np.float64) * np.nan),
    "no means": lambda answer: replace(answer, models=[]),
    "means that are none": lambda answer: replace(answer, models=[b"x" * 40 for _ in answer.models]),
    "means of another key": lambda answer: replace(answer, models=[one[:-8] for one in answer.models]),
}


def test_a_bad_answer_costs_its_round(tmp_path: Path) -> None:
    """Every lie in a round of its own, in one run that goes on: two rounds with lies, then an honest one."""
    lies = {3 * (n // 2) + n % 2 + 2: words for n, words in enumerate(LIES)}  # rounds 2, 3, 5, 6, 8 …
    deployment = two_servers(tmp_path, max(lies) + 1)
    lie(deployment, lambda round, answer: LIES[lies[round]](answer) if round in lies else answer)
    result = deployment.coordinator().run()
    assert {record["round"]: record["participants"] for record in result.records} == {
        round: 0 if round in lies else 4 for round in range(1, max(lies) + 2)
    }
    events = [json.loads(line) for line in (deployment.folder / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["round"] for event in events if event["refused"] == "csp"] == sorted(lies)
    assert any("round 2: refused csp" in said for said in deployment.said)
    assert not any("\x1b" in said for said in deployment.said)
    assert (deployment.folder / "state" / "north" / "model.bin").is_file()


def test_three_in_a_row_end_the_run_in_one_sentence(deployment: Deployment) -> None:
    lie(deployment, lambda round, answer: replace(answer, models=[]))
    with pytest.raises(CoveyError, match=r"round 3: 3 rounds in a row were lost.*see to that server"):
        deployment.coordinator().run()
    deployment.office.tamper = lambda name, call, answer: answer
    assert [record["participants"] for record in deployment.coordinator().run().records] == [0, 0, 4, 4]


def test_a_silo_that_answers_in_its_place_costs_a_round(deployment: Deployment) -> None:
    silo = deployment.parties["north"]

    def forge(sender: str, call: bytes, answer: bytes) -> bytes:
        letter: Letter = decode(unpack(answer).payload)
        if sender != "csp" or unpack(answer).round != 1 or letter.kind != "ask":
            return answer
        forged: bytes = silo.mailbox.write(letter.run, "ask", letter.receiver, 1, letter.body, letter.answers)[0]
        return forged

    deployment.office.tamper = forge
    assert [record["participants"] for record in deployment.coordinator().run().records] == [0, 4, 4, 4]
    assert any("answered in its place" in said for said in deployment.said)


def test_one_that_leaves_in_mid_round_costs_it(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = deployment.coordinator()
    monkeypatch.setattr("covey.deploy.course.exchange.POLL_SECONDS", 0.001)
    object.__setattr__(coordinator.deployment, "round_seconds", 0.05)

    def leaves(exchange: Exchange, round: int, tally: Any, party: str, question: Any) -> Any:
        if round == 2:
            deployment.office.away.add("csp")
        try:
            return ask_server(exchange, round, tally, party, question)
        finally:
            deployment.office.away.discard("csp")

    monkeypatch.setattr("covey.deploy.coordinator.ask_server", leaves)
    assert [record["participants"] for record in coordinator.run().records] == [4, 0, 4, 4]
    assert any("'csp' has not answered" in said for said in deployment.said)


# ---------------------------------------------------------------- what it is asked


def asking(deployment: Deployment) -> tuple[Callable[[int, Any], Any], list[bytes]]:
    """(ask the CSP whatever one likes, honest covered rows)."""
    coordinator: Coordinator = deployment.coordinator()
    session, sealer = coordinator.session, blinded.sealer(coordinator.keys["csp"])
    d = coordinator.setting.start.shape[1]
    cover = blinded.draw_cover(sealer, d, False, None)
    rows = sealer.cover([sealer.seal(np.full(d, n / 4)) for n in range(4)], cover)

    def ask(round: int, question: Any) -> Any:
        written = session.mailbox.write("run", "ask", "csp", round, question)[0]
        return session.mailbox.read(deployment.parties["csp"].handle(written)).letter.body

    return ask, rows


def restarted(deployment: Deployment) -> SecondServer:
    party, agreed = keys.load(deployment.folder / "keys" / "csp")
    return SecondServer(party, agreed, deployment.folder / "csp", say=deployment.said.append)


def test_rows_are_clustered_on_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a BS could have rows clustered in every round, twice: n · k bits each time."""
    monkeypatch.setattr("covey.algorithms.fedcaprivacy.exchanges.SPARE", 1)
    deployment = two_servers(tmp_path, rounds=9, every=4)  # rounds 1, 5 and 9
    ask, rows = asking(deployment)
    known = np.eye(2, dtype=np.uint8)[[0, 0, 1, 1]]
    anew, as_before = CoveredRound(rows, 2, None, []), CoveredRound(rows, 2, known, [])
    assert isinstance(ask(1, anew), CoveredMeans) and isinstance(ask(2, as_before), CoveredMeans)
    assert isinstance(ask(2, anew), CoveredMeans)  # the one that restarts need
    deployment.parties["csp"] = restarted(deployment)
    for round in (3, 4, 4):
        with pytest.raises(CoveyError, match="out of turn, as 1 times before"):
            ask(round, anew)
        assert isinstance(ask(round, as_before), CoveredMeans)
    assert isinstance(ask(5, anew), CoveredMeans)


def test_what_it_cannot_open_stops_it(deployment: Deployment) -> None:
    """Before, every question of a run could be one more failure to watch."""
    ask, rows = asking(deployment)
    bad = [row[:-8] + (2**63).to_bytes(8, "little") for row in rows]
    for _ in range(3):
        with pytest.raises(CoveyError):
            ask(1, CoveredRound(bad, 2, None, []))
        deployment.parties["csp"] = restarted(deployment)
    assert "make new keys" in deployment.parties["csp"].stopped
    with pytest.raises(CoveyError, match="stopped for good"):
        ask(1, CoveredRound(rows, 2, None, []))


def test_a_question_is_on_disk_before_anything_is_opened(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, rows = asking(deployment)
    csp, seen = deployment.parties["csp"], list[str]()
    answer = type(csp.experiment.algorithm).answer

    def watched(self: Any, server: Any, message: Any) -> Any:
        seen.append((deployment.folder / "csp" / "rounds.jsonl").read_text())
        return answer(self, server, message)

    monkeypatch.setattr(type(csp.experiment.algorithm), "answer", watched)
    ask(1, CoveredRound(rows, 2, None, []))
    assert seen == ['{"round":1,"clustered":1,"out_of_turn":0}\n']


def test_the_bits_of_a_run_are_counted() -> None:
    """The figures of docs/deployment/trust.md: α = .1 and R = 100 have 25 clusterings with seed 0; n = 10, k = 4."""
    from covey.algorithms.contract import servers_draw
    from covey.algorithms.fedcaprivacy.fedcaprivacy import FedCAPrivacy

    clusterings = sum(FedCAPrivacy().clusters_in(r, servers_draw(0, r, "coin")) for r in range(1, 101))
    bits = answers_tell(clusterings + SPARE, questions_of(100), 10, 4, 3)
    assert bits == pytest.approx((clusterings + SPARE) * 40 + (216 - clusterings - SPARE) * 20 + 20.7, abs=0.5)
    assert bits < 4096 * math.log2(3)
