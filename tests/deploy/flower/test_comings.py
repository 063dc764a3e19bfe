"""Real processes: silos that are missed, killed, restarted and added. It mostly waits: for a minute, and for one of them."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from covey.deploy import keys
from covey.files import read_state
from support.deployment import rehearsal

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'covey[deploy]'")


def test_silos_come_and_go(deploy: Any) -> None:
    """One seals under keys of its own, then dawdles and is missed; one is killed in mid-round and comes back with its memory; one
    joins later. The one that is killed comes back while the sleeper is waited for.
    """
    experiment = rehearsal(
        "mingledpie",
        encryption="ckks",
        clients=4,
        training={"rounds": 4},
        deployment={"round_seconds": 60.0, "rehearsal": True},  # which nobody takes but the sleeper
    )
    parties = deploy(experiment, silos=3)
    parties.serve()
    parties.join("north")
    parties.rogue("slow", "south")
    parties.rogue("held", "west")
    parties.until(lambda: parties.is_asleep("south") and parties.is_asleep("west"))
    assert parties.records()[0]["participants"] == 2
    assert "under another key" in parties.events()[0]["why"] and parties.events()[0]["refused"] == "south"
    remembered = read_state(parties.folder / "state" / "west" / "state.bin").memory["sets"]
    parties.running["west"].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    parties.join("west")
    keys.add(parties.folder / "keys", "east")
    parties.join("east")
    parties.until(lambda: parties.log("server").count("west is there") == 2)
    print(f"greeted {time.monotonic() - killed:.0f} s after it was killed")
    parties.until(lambda: "east is there" in parties.log("server"))
    parties.until(lambda: len(parties.records()) >= 2)
    second = parties.records()[1]
    assert second["participants"] + second["dropped"] == 3
    assert second["dropped"] in (1, 2)  # without the sleeper; the other takes part if it was quick
    parties.wake("south")
    for name in ("server", *parties.names, "east"):
        parties.wait(name)
    assert any(r["participants"] == 4 for r in parties.records())
    after = read_state(parties.folder / "state" / "west" / "state.bin").memory["sets"]
    kept = [(before, now) for before, now in zip(remembered, after) if before]
    assert kept and all(before == now for before, now in kept)  # no set is drawn twice
    assert [r["round"] for r in parties.records()] == [1, 2, 3, 4]
