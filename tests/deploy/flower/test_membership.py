"""Real processes: a silo that made its own keys comes while the server runs, and another is revoked in the middle of a round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from covey.deploy import keys
from covey.deploy.membership import requests
from covey.deploy.membership.roll import revoke
from support.deployment import rehearsal

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'covey[deploy]'")


def test_silos_come_and_are_revoked_while_the_server_runs(deploy: Any, tmp_path: Path) -> None:
    experiment = rehearsal(
        "fedavg",
        clients=3,
        clusters=1,
        model="softmax",
        training={"rounds": 3},
        deployment={"rehearsal": True, "missing": "wait"},
    )
    parties = deploy(experiment, silos=2)
    parties.serve()
    parties.join("north")
    parties.rogue("held", "south")
    parties.until(lambda: parties.is_asleep("south"))  # in round 2, which waits for it
    request = requests.ask(tmp_path / "keys" / "silos" / "west")
    invitation, _ = keys.approve(tmp_path / "keys", request)
    requests.accept(tmp_path / "keys" / "silos" / "west", invitation.read_bytes())
    parties.join("west")
    parties.until(lambda: "west is there" in parties.log("server"))
    assert len(parties.records()) == 1
    revoke(tmp_path / "keys" / "server", "south")
    for name in ("server", "north", "west"):
        parties.wait(name)
    parties.wake("south")
    assert [r["participants"] for r in parties.records()] == [2, 1, 2]
    assert "south is let in no more: revoked on 20" in parties.log("server")
