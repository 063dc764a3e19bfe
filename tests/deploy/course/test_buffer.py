"""Asynchronous rounds over silos: against the synchronous ones, a slow silo, too slow a one, restarts, lies; in one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from covey.deploy import keys
from covey.deploy.coordinator import Coordinator
from covey.deploy.course.buffer import Buffer
from covey.deploy.keys import deployed
from covey.deploy.letters import RoundReply, unpack
from covey.deploy.membership.roll import following, revoke
from covey.deploy.session import PendingLetter
from covey.deploy.transport import Handle, InProcess
from covey.deploy.watch.exposition import exposition
from covey.deploy.watch.watch import Watch
from covey.errors import CoveyError
from covey.messages import decode
from covey.report.status import status_lines
from covey.report.terminal import closing_lines
from covey.results.status import WORKING
from covey.rounds.asynchronous import UnderWay
from support.deployment import Deployment, rehearsal


class Slow(InProcess):
    """Some answers take their time: those of silos for which `waits(name, round of the letter)` holds when they are asked for."""

    def __init__(self, handlers: Mapping[str, Handle], waits: Callable[[str, int], bool]) -> None:
        super().__init__(handlers)
        self.waits = waits

    def receive(self, ids: list[str]) -> Iterator[tuple[str, bytes | None]]:
        done = [id for id in ids if not self.waits(self._waiting[id][0], unpack(self._waiting[id][1]).round)]
        yield from super().receive(done)

    def wait(self, seconds: float) -> None:
        pass


def buffered(rounds: int = 5, algorithm: str = "fedavg", **participation: Any) -> Any:
    return rehearsal(algorithm, training={"rounds": rounds, "epochs": 1}, participation=participation, model="softmax")


def final(state: Any) -> torch.Tensor:
    return state.model if hasattr(state, "model") else state.models


def slowed(deployment: Deployment, until: int) -> list[int]:
    """East's first answer takes until this round is under way; the rounds as they end."""
    done: list[int] = [0]
    deployment.office = Slow(
        deployment.office.handlers, lambda name, round: name == "east" and round == 1 and done[-1] < until - 1
    )
    return done


@pytest.mark.parametrize("algorithm", ["fedavg", "ifca"])
def test_a_buffer_of_all_silos_is_the_synchronous_run(tmp_path: Path, algorithm: str) -> None:
    together = Deployment(tmp_path / "together", buffered(3, algorithm)).coordinator().run()
    mixed = Deployment(tmp_path / "mixed", buffered(3, algorithm, buffer=4)).coordinator().run()
    assert torch.equal(final(together.state), final(mixed.state))
    assert [r["accuracy"] for r in together.records] == [r["accuracy"] for r in mixed.records]
    assert all(r["extra"]["stalest"] == 0 and r["participants"] == 4 for r in mixed.records)


@pytest.fixture(scope="module")
def slow_silo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Deployment, Any, Watch]:
    """East answers round 1 in round 4; the others have gone on meanwhile."""
    deployment = Deployment(tmp_path_factory.mktemp("slow"), buffered(5, buffer=2))
    done, coordinator = slowed(deployment, 4), deployment.coordinator()
    result = coordinator.run(lambda round, record: done.append(round))
    return deployment, result, coordinator.watch


def test_a_slow_silo_sets_nobody_s_pace(slow_silo: tuple[Deployment, Any, Watch]) -> None:
    deployment, result, watch = slow_silo
    assert [r["participants"] for r in result.records] == [2] * 5
    # East's reply, and one that had come in round 3 when that round's buffer was full.
    assert result.records[3]["extra"] == {"staleness": 2.0, "stalest": 3.0, "discarded": 0.0}
    assert deployment.parties["east"].state.outcome == "answered" and deployment.parties["east"].finished
    assert watch.status.bound == 10 and watch.status.discarded == 0
    assert any("staleness   replies" in line and "3 at most" in line for line in closing_lines(result))


def test_what_the_operator_sees_of_it(slow_silo: tuple[Deployment, Any, Watch]) -> None:
    status = slow_silo[2].status
    busy = replace(
        status, phase="in a round", round=9, peers=tuple(replace(p, state=WORKING, begun=6) for p in status.peers)
    )
    lines = "\n".join(status_lines(busy, busy.updated))
    assert "3 behind" in lines and "(bound 10)" in lines and not busy.late(busy.updated)
    assert 'covey_peer_behind{peer="east"} 3\n' in exposition(busy, busy.updated)
    assert "covey_max_staleness 10\n" in exposition(busy, busy.updated)
    assert set(replace(busy, round=17).late(busy.updated)) == {"north", "south", "west", "east"}


def test_too_old_a_reply_is_thrown_away_and_its_silo_begins_anew(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, buffered(5, buffer=2, max_staleness=1))
    done, coordinator = slowed(deployment, 4), deployment.coordinator()
    result = coordinator.run(lambda round, record: done.append(round))
    assert [r["extra"]["discarded"] for r in result.records] == [0, 0, 0, 1, 0]
    assert max(r["extra"]["stalest"] for r in result.records) <= 1
    assert any("took longer than 1 rounds" in line for line in deployment.said)
    assert deployment.parties["east"].state.round == 6 and coordinator.watch.status.discarded == 1


def test_a_coordinator_that_is_started_again_goes_on(tmp_path: Path) -> None:
    """In the middle of a round, with east at work since round 1: models and records are those of an undisturbed run."""
    ends = []
    for cut in (False, True):
        deployment = Deployment(tmp_path / str(cut), buffered(5, buffer=2))
        done = slowed(deployment, 4)

        def follow(round: int, record: Any, done: list[int] = done, last: int = 2 if cut else 5) -> None:
            done.append(round)
            if round == last < 5:
                raise KeyboardInterrupt

        coordinator = deployment.coordinator()
        if cut:
            with pytest.raises(KeyboardInterrupt):
                coordinator.run(follow)
            coordinator = deployment.coordinator()
            deployment.parties["east"] = deployment.silo("east")  # and so is the silo
        ends.append(coordinator.run(follow))
    whole, cut_short = ends
    assert torch.equal(final(whole.state), final(cut_short.state))
    assert [r["extra"] for r in whole.records] == [r["extra"] for r in cut_short.records]


def test_a_silo_cannot_choose_how_old_its_reply_is(tmp_path: Path) -> None:
    """East, asked in round 1 and slow, answers as of the round under way; later it sends its first answer once more. Both are
    refused, and nobody else is hurt. One reply of it is in a round at most, however often it sends.
    """
    deployment = Deployment(tmp_path, buffered(6, buffer=2))
    done, coordinator = slowed(deployment, 3), deployment.coordinator()
    kept: list[bytes] = []

    def tamper(name: str, call: bytes, answer: bytes) -> bytes:
        letter, silo = decode(unpack(answer).payload), deployment.parties[name]
        if name != "east" or letter.kind != "round":
            return answer
        kept.append(answer)
        if len(kept) == 1:
            return bytes(silo.mailbox.write(letter.run, "round", letter.receiver, 3, letter.body, letter.answers)[0])
        return kept[0] if len(kept) == 2 else answer

    deployment.office.tamper = tamper
    result = coordinator.run(lambda round, record: done.append(round))
    refused = [line for line in deployment.said if "refused east" in line]
    assert "its letter is of round 3, not 1" in refused[0] and "stale, or a replay" in refused[1], refused
    assert len(result.records) == 6 and all(r["participants"] == 2 for r in result.records)


def test_a_reply_may_be_as_old_as_the_bound_and_not_older() -> None:
    """By hand: a bound of 2, three silos that begin in rounds 1, 1 and 2."""
    buffer = Buffer(2, 2, UnderWay())
    letters = {i: PendingLetter(f"client:{i}", "", "round", max(1, i), i) for i in range(3)}
    for i, sent in letters.items():
        assert buffer.begin(i, sent.round, f"state {sent.round}") == sent.round
    buffer.keep(letters[0], RoundReply(None, None), None)
    buffer.open(3)
    assert not buffer.is_too_old(letters[1], 3) and set(buffer.waiting) == {0}
    assert buffer.begun == {0: 1, 1: 1, 2: 2} and buffer.begin(1, 3, "state 3") == 1 and set(buffer.states) == {1, 2}
    buffer.open(4)
    assert buffer.is_too_old(letters[1], 4) and not buffer.is_too_old(letters[2], 4)
    assert buffer.waiting == {} and buffer.discarded == 1
    assert buffer.begun == {2: 2} and set(buffer.states) == {2}  # older models are kept for nobody


def test_who_is_revoked_while_its_reply_waits_is_in_no_average(tmp_path: Path) -> None:
    """West is revoked when its answer to round 1 has come, and waits since the buffer was full."""
    deployment = Deployment(tmp_path, buffered(3, buffer=2))
    server, agreed = keys.load(tmp_path / "keys" / "server")
    roll = following(server, tmp_path / "keys" / "server", deployment.said.append)
    run = Coordinator(server, agreed, deployment.office, tmp_path / "run", follow=roll, say=deployment.said.append)
    deployment.office.wait = lambda seconds: None  # type: ignore[method-assign]

    def strike(round: int, record: Any) -> None:
        if round == 1:
            assert 2 in run.buffered.buffer.waiting  # type: ignore[union-attr]
            revoke(tmp_path / "keys" / "server", "west")

    result = run.run(strike)
    lines = [json.loads(text) for text in (tmp_path / "run" / "transcript.jsonl").read_text().splitlines()]
    assert not [said for said in lines if said["from"] == "client:2"]
    assert [r["participants"] for r in result.records] == [2, 2, 2]


def test_fewer_silos_than_the_buffer_holds_go_on(tmp_path: Path) -> None:
    """Two of four are gone after round 1, of whom one had answered: rounds go on with who is there, as `missing` says."""
    deployment = Deployment(tmp_path, buffered(3, buffer=3))
    coordinator = deployment.coordinator()
    deployment.office.wait = lambda seconds: None  # type: ignore[method-assign]
    result = coordinator.run(lambda round, record: deployment.office.away.update(("west", "east")))
    assert [r["participants"] for r in result.records] == [3, 3, 2]


@pytest.mark.parametrize("waits", [{"missing": "wait"}, {"min_silos": 4}])
def test_one_silo_cannot_hold_the_others_for_ever(tmp_path: Path, waits: dict[str, Any]) -> None:
    """East answers with junk, and west is revoked after round 1: a buffer of all four, which waits, goes on without them."""
    said = rehearsal(
        "fedavg",
        training={"rounds": 3, "epochs": 1},
        participation={"buffer": 4},
        model="softmax",
        deployment=waits,
    )
    deployment = Deployment(tmp_path, said)
    server, agreed = keys.load(tmp_path / "keys" / "server")
    roll = following(server, tmp_path / "keys" / "server", deployment.said.append)
    run = Coordinator(server, agreed, deployment.office, tmp_path / "run", follow=roll, say=deployment.said.append)
    deployment.office.wait = bounded()  # type: ignore[method-assign]

    def tamper(name: str, call: bytes, answer: bytes) -> bytes:
        return b"junk" if name == "east" and decode(unpack(answer).payload).kind == "round" else answer

    deployment.office.tamper = tamper
    strikes = "missing" in waits  # with min_silos = 4 of three members no round begins
    result = run.run(lambda round, _: revoke(tmp_path / "keys" / "server", "west") if strikes and round == 1 else None)
    assert [r["participants"] for r in result.records] == ([3, 2, 2] if strikes else [3, 3, 3])


def bounded(times: int = 1000) -> Callable[[float], None]:
    """A wait that fails where a run would go on waiting."""
    left = iter(range(times))

    def wait(seconds: float) -> None:
        assert next(left, None) is not None, "waits for ever"

    return wait


def test_what_a_deployment_refuses() -> None:
    with pytest.raises(CoveyError, match="set min_silos to 2 at most"):
        deployed(rehearsal("fedavg", participation={"buffer": 2}, deployment={"min_silos": 3}))
    with pytest.raises(CoveyError, match="it simulates slow clients"):
        deployed(rehearsal("fedavg", participation={"buffer": 2, "delay": 1.0}))
    for encryption in ("secagg",):
        with pytest.raises(CoveyError, match="opens the sum of one round's replies"):
            rehearsal("fedavg", participation={"buffer": 2}, encryption=encryption)
