"""Who is let in while a server runs: revoked in the middle of a round, added, and what is taken for no change at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey.deploy import keys
from covey.deploy.agreed import samples_at
from covey.deploy.coordinator import Coordinator
from covey.deploy.letters import unpack
from covey.deploy.membership.roll import following, read_roll, revoke, server_folder
from covey.errors import CoveyError
from covey.messages import decode
from support.deployment import Deployment, rehearsal


def coordinator(deployment: Deployment) -> Coordinator:
    """One that looks who is let in, as `covey serve` does."""
    server = deployment.folder / "keys" / "server"
    party, agreed = keys.load(server)
    say = deployment.said.append
    return Coordinator(
        party, agreed, deployment.office, deployment.folder / "run", follow=following(party, server, say), say=say
    )


def in_round(call: bytes, round: int) -> bool:
    return unpack(call).round == round and decode(unpack(call).payload).kind == "round"


@pytest.mark.parametrize("answered", [False, True], ids=["before its answer", "after its answer"])
def test_a_silo_is_revoked_in_the_middle_of_a_round(answered: bool, tmp_path: Path) -> None:
    """The round, which waits for all, goes on without it, and so do all others; an answer that had come is in no sum."""
    deployment = Deployment(tmp_path, rehearsal("ifca", deployment={"rehearsal": True, "missing": "wait"}))
    server, seen = tmp_path / "keys" / "server", list[str]()

    def tamper(name: str, call: bytes, answer: bytes) -> bytes:
        seen.append(name)
        if in_round(call, 1) and name == "east" and not answered:
            deployment.office.away.add("north")  # from now on it does not answer
        if in_round(call, 2) and name == "south" and not (server / "revoked").exists():
            revoke(server, "north")
        return answer

    deployment.office.tamper = tamper
    result = coordinator(deployment).run()
    assert [r["participants"] for r in result.records] == [4, 3, 3]
    assert seen.count("north") == (3 if answered else 2)  # greeted, round 1, and round 2 if it was quick
    assert any(said.startswith("north is let in no more: revoked on 20") for said in deployment.said)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [e["revoked"] for e in events] == ["north"]
    with pytest.raises(CoveyError, match=r"revoked on .* already"):
        revoke(server, "north")
    assert read_roll(keys.load(server)[0], server).revoked.keys() == {"north"}


def test_a_silo_that_is_added_while_the_server_runs(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("ifca"), silos=3)

    def tamper(name: str, call: bytes, answer: bytes) -> bytes:
        if in_round(call, 1) and "east" not in deployment.parties:
            keys.add(tmp_path / "keys", "east")
            folder = tmp_path / "keys" / "silos" / "east"
            party, agreed = keys.load(folder)
            (tmp_path / "data" / "east").symlink_to(tmp_path / "data" / "north")
            deployment.parties["east"] = deployment.silo("east")
            deployment.office.handlers["east"] = deployment.parties["east"].handle
            assert party.role == "client:3" and len(samples_at(tmp_path / "data" / "east", agreed)[1])
        return answer

    deployment.office.tamper = tamper
    result = coordinator(deployment).run()
    assert [r["participants"] for r in result.records] == [3, 4, 4]


def test_a_roll_that_cannot_be_read_shuts_nobody_out(tmp_path: Path) -> None:
    keys.make(rehearsal("ifca", model="softmax"), ["north", "south"], [], tmp_path / "keys")
    server, said = tmp_path / "keys" / "server", list[str]()
    now = following(keys.load(server)[0], server, said.append)
    first = now()
    assert now() is first  # nothing is read where nothing has changed
    whole = (server / "nodes" / "north.bin").read_bytes()
    (server / "nodes" / "north.bin").write_bytes(whole[:-3])  # it is being copied
    assert now() is first and now() is first and len(said) == 1 and "stays as it was" in said[0]
    (server / "nodes" / "north.bin").write_bytes(whole)
    assert now().nodes == first.nodes
    (server / "nodes").rename(server / "away")
    assert now().nodes == first.nodes and "is not there" in said[-1]
    (server / "away").rename(server / "nodes")
    for path in (server / "nodes").glob("north.*"):  # as before there was `covey keys revoke`
        path.unlink()
    assert set(now().nodes) == {"south"} and now().struck == {}


def test_only_a_server_revokes_and_only_silos(tmp_path: Path) -> None:
    fedca: Any = rehearsal({"name": "fedcaprivacy", "min_size": 2}, encryption="none", model="softmax")
    keys.make(fedca, ["north", "south", "west", "east"], [], tmp_path / "keys")
    assert (
        server_folder(tmp_path / "keys") == tmp_path / "keys" / "server" == server_folder(tmp_path / "keys" / "server")
    )
    with pytest.raises(CoveyError, match="another party's folder"):
        server_folder(tmp_path / "keys" / "silos" / "north")
    with pytest.raises(CoveyError, match="holds no server's folder"):
        server_folder(tmp_path)
    with pytest.raises(CoveyError, match="a further server, without which no round ends"):
        revoke(tmp_path / "keys" / "server", "csp")


def test_who_is_revoked_stays_out(tmp_path: Path) -> None:
    """When its files come back with a copy of the folder, and when another party's file is damaged at that moment."""
    keys.make(rehearsal("ifca", model="softmax"), ["north", "south", "west"], [], tmp_path / "keys")
    server, said = tmp_path / "keys" / "server", list[str]()
    now = following(keys.load(server)[0], server, said.append)
    first, copy = now(), shutil.copytree(server, tmp_path / "copy")
    (server / "nodes" / "south.pub").write_bytes(b"half of a key")
    revoke(server, "north")
    damaged = now()
    assert damaged.nodes == {name: first.nodes[name] for name in ("south", "west")} and "stays as it was" in said[-1]
    assert set(damaged.party.silos) == {"south", "west"} and "client:0" not in damaged.party.known
    assert first.nodes["north"] in damaged.struck and "north" in damaged.revoked
    shutil.copytree(
        copy, server, dirs_exist_ok=True
    )  # `covey keys renew` where the authority is, and the folder copied whole
    for roll in (now(), read_roll(keys.load(server)[0], server)):  # running, and started again
        assert roll.nodes == damaged.nodes and roll.struck == damaged.struck and roll.party.silos == damaged.party.silos
    with pytest.raises(CoveyError, match=r"revoked on .* already"):
        revoke(server, "north")
