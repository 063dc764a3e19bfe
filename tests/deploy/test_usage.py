"""Keys remember what they were used for: a restored or a new --state folder answers nothing again, and no count begins anew."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.algorithms.fedcaprivacy.two_servers import CoveredMeans, CoveredRound
from covey.crypto.blinded import blinded
from covey.data.own.silo import read_folder
from covey.deploy import keys
from covey.deploy.letters import RoundReply
from covey.deploy.second_server import SecondServer
from covey.deploy.silo import Silo
from covey.deploy.usage import NAME, Usage, Used
from covey.errors import CoveyError
from covey.files import write_state
from support.deployment import Deployment, rehearsal


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noised")
    Deployment(folder, noised())
    return folder


def noised() -> Any:
    return rehearsal(
        "ifca",
        defence={"name": "ldp", "epsilon": 5.0},
        training={"rounds": 4, "epochs": 1},
        deployment={"rehearsal": False},
    )


class Party:
    """North, with real keys, and a coordinator that writes it letters of its choice."""

    def __init__(self, prepared: Path, folder: Path) -> None:
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
        self.folder, self.deployment = folder, Deployment.opened(folder, noised())
        self.coordinator = self.deployment.coordinator()
        self.state, _ = self.coordinator._begin()

    def joined(self, state: str) -> Silo:
        at = self.folder / "keys" / "silos" / "north"
        party, agreed = keys.load(at)
        samples = read_folder(self.folder / "data" / "north", agreed)
        return Silo(party, agreed, samples[:4], self.folder / state, say=self.deployment.said.append, keys=at)

    def ask(self, silo: Silo, round: int) -> Any:
        session = self.coordinator.session
        letter = session.mailbox.write(session.run, "round", "client:0", round, self.state)[0]
        return session.mailbox.read(silo.handle(letter)).letter.body


def test_a_restored_state_answers_nothing_again(prepared: Path, tmp_path: Path) -> None:
    """Before, it answered round 2 again, with other noise than its ledger had."""
    party = Party(prepared, tmp_path)
    silo = party.joined("state")
    assert isinstance(party.ask(silo, 1), RoundReply)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    first = party.ask(silo, 2)
    with pytest.raises(CoveyError, match=r"have answered round 2 .* has come to round 1"):
        party.joined("copy")
    again = party.ask(party.joined("state"), 2)  # the real one repeats its bytes
    assert np.array_equal(again.reply.model.numpy(), first.reply.model.numpy())


def test_two_folders_at_once_answer_a_round_once(prepared: Path, tmp_path: Path) -> None:
    """Two processes with the same keys, as two coordinators or a mistake would have it."""
    party = Party(prepared, tmp_path)
    one, other = party.joined("state"), party.joined("other")
    assert isinstance(party.ask(one, 1), RoundReply)
    with pytest.raises(CoveyError, match="has come to round 0"):
        party.ask(other, 1)


def test_processes_with_the_same_keys_see_each_other(tmp_path: Path) -> None:
    """Both opened before either was used; before, each knew only what it had written itself."""
    one, other = Usage(tmp_path), Usage(tmp_path)
    one.begin("run", 1)
    with pytest.raises(CoveyError, match="another process has begun round 1"):
        other.begin("run", 1)
    one.begin("run", 1, again=True)  # stopped in the middle of it
    one.advise("run", 1)
    with pytest.raises(CoveyError, match="answered 1 further questions"):
        other.advise("run", 1)
    one.ask(1)
    with pytest.raises(CoveyError, match="have been asked 1 questions"):
        other.check_questions(0)
    one.refuse(2)
    other.refuse(1)
    assert Usage(tmp_path).used.refusals == 2
    held = subprocess.Popen(
        [sys.executable, "-c", f"from covey import files; from pathlib import Path; f = files.lock(Path({str(tmp_path / NAME)!r})"
         ".with_suffix('.lock')); print('held', flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert held.stdout is not None and held.stdout.readline() == "held\n"
    with pytest.raises(CoveyError, match="another process uses the keys"):
        one.begin("run", 2)
    held.communicate("\n")
    one.begin("run", 2)


def test_a_new_folder_is_for_a_new_run_and_keeps_the_refusals(prepared: Path, tmp_path: Path) -> None:
    party = Party(prepared, tmp_path)
    assert isinstance(party.ask(party.joined("state"), 1), RoundReply)
    write_state(tmp_path / "keys" / "silos" / "north" / NAME, Used({"r": 1}, {"r": 1}, refusals=2))
    fresh = party.joined("new")
    assert fresh.state.refusals == 2
    party.coordinator.session.run = "another"
    assert isinstance(party.ask(fresh, 1), RoundReply)


def test_a_state_that_was_copied_in_mid_round_is_seen(tmp_path: Path) -> None:
    usage = Usage(tmp_path)
    usage.begin("run", 3)
    Usage(tmp_path).check_state("run", 3, answered=False)  # killed at work: the same words are answered
    usage.answer("run", 3)
    Usage(tmp_path).check_state("run", 3, answered=True)
    with pytest.raises(CoveyError, match="an old copy"):
        Usage(tmp_path).check_state("run", 3, answered=False)
    usage.advise("run", 1)
    Usage(tmp_path).check_advice("run", 1)
    with pytest.raises(CoveyError, match="answered 1 further questions"):
        Usage(tmp_path).check_advice("run", 0)  # a copy from before it helped to open this round's sums
    (tmp_path / NAME).write_bytes(b"CVY1")
    with pytest.raises(CoveyError, match="make new keys"):
        Usage(tmp_path)
    Usage(None).check_state("run", 0, answered=False)


def test_a_second_server_counts_over_folders(tmp_path: Path) -> None:
    table = {"name": "fedcaprivacy", "min_size": 2, "threads": 1}
    deployment = Deployment(tmp_path, rehearsal(table, encryption="bfv", deployment={"rehearsal": False}))
    coordinator, at = deployment.coordinator(), tmp_path / "keys" / "csp"
    sealer, d = blinded.sealer(coordinator.keys["csp"]), coordinator.setting.start.shape[1]
    rows = sealer.cover([sealer.seal(np.ones(d))] * 4, blinded.draw_cover(sealer, d, False, None))

    def joined(state: str) -> SecondServer:
        party, agreed = keys.load(at)
        return SecondServer(party, agreed, tmp_path / state, say=deployment.said.append, keys=at)

    session = coordinator.session
    letter = session.mailbox.write("run", "ask", "csp", 1, CoveredRound(rows, 2, None, []))[0]
    assert isinstance(session.mailbox.read(joined("one").handle(letter)).letter.body, CoveredMeans)
    assert len(joined("one")._diary.questions) == 1
    with pytest.raises(CoveyError, match="have been asked 1 questions, and this --state folder knows of 0"):
        joined("two")
