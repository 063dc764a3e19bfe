"""Asynchronous rounds with real processes: a silo that is really slow, and a coordinator that is killed while two are at work."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from covey.results import status as of
from support.deployment import rehearsal

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'covey[deploy]'")


def test_a_slow_silo_and_a_coordinator_that_is_killed(deploy: Any) -> None:
    """West answers round 1 only when it is told to. North and south make rounds 1 to 3; then north stands still, too, so round 4
    can end with south's reply and west's old one only. Meanwhile the coordinator is killed and started again.
    """
    experiment = rehearsal(
        "ifca", clients=3, model="softmax", training={"rounds": 6, "epochs": 1}, participation={"buffer": 2}
    )
    parties = deploy(experiment, silos=3)
    parties.serve()
    parties.rogue("tired", "north")
    parties.join("south")
    parties.rogue("late", "west")
    parties.until(lambda: parties.is_asleep("west") and parties.is_asleep("north"))
    parties.until(lambda: len(parties.records()) == 3)
    parties.until(lambda: {peer.name: peer.begun for peer in of.read(parties.folder / "run").peers}.get("west") == 1)
    parties.running["server"].send_signal(signal.SIGKILL)
    parties.running["server"].wait()
    parties.serve()
    parties.until(lambda: "south is there" in parties.log("server").rpartition("going on after round 3")[2])
    parties.wake("west")
    parties.until(lambda: len(parties.records()) >= 4)
    parties.wake("north")
    for name in ("server", *parties.names):
        parties.wait(name)
    records = parties.records()
    assert [r["participants"] for r in records] == [2] * 6
    assert [r["extra"]["stalest"] for r in records[:4]] == [0, 0, 0, 3]
    assert not any(r["extra"]["discarded"] for r in records)
    lines = [json.loads(text) for text in (parties.folder / "run" / "transcript.jsonl").read_text().splitlines()]
    assert next(said["round"] for said in lines if said["from"] == "client:2") == 1
    assert all(parties.model(name).models.isfinite().all() for name in parties.names)
    assert "at most" in parties.log("server")
