"""Real processes: a silo that is killed in the middle of a round of sealed sums. Flower takes half a minute to notice."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from typing import Any

import pytest
import torch

from covey import run
from covey.experiment.participation import Participation
from support.deployment import rehearsal, simulated
from support.processes import Processes

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'covey[deploy]'")


def run_without_east_from_round_2(parties: Processes) -> None:
    """Four silos to the end of the run; one of them is killed in the middle of round 2. It joins before the others, since three
    are enough to begin without it.
    """
    parties.serve()
    parties.rogue("held", "east")
    parties.until(lambda: "east is there" in parties.log("server"))
    for name in ("north", "south", "west"):
        parties.join(name)
    parties.until(lambda: parties.is_asleep("east"))
    parties.running["east"].send_signal(signal.SIGKILL)
    for name in ("server", "north", "south", "west"):
        parties.wait(name)


def test_masked_averages_survive_a_silo_that_is_killed(deploy: Any) -> None:
    """Three of four are enough when the fourth is gone in the middle of a round. As simulated."""
    experiment = rehearsal(
        "fedavg", encryption="secagg", model="softmax", training={"rounds": 3}, deployment={"min_silos": 3}
    )
    parties = deploy(experiment, silos=4)
    run_without_east_from_round_2(parties)
    unopened = [r["extra"]["unopened"] for r in parties.records()]
    assert unopened[1:] == [0.0] * 2 and parties.records()[-1]["participants"] == 3
    # Where a machine is so slow that a silo registers twice, the first round can be lost: then nobody took part in it.
    lost = tuple((1, i) for i in range(4) if unopened[0])
    drops = tuple(sorted({*parties.absences(), *lost}))
    _, uses = simulated(replace(experiment, participation=Participation(drops=drops)))
    for i, name in enumerate(["north", "south", "west"]):
        assert torch.allclose(parties.model(name).models, uses[i].models, atol=1e-5), name


@pytest.mark.slow
@pytest.mark.parametrize("encryption", ["secagg", "threshold"])
def test_noise_in_sealed_sums_where_a_silo_is_killed(deploy: Any, encryption: str) -> None:
    """Client-level DP whose noise is in the sum: three of four shares are the noise that was promised, so no ε is restated, and
    every round in which three are there is opened. Models and ε are the simulation's with the same silo missing.
    """
    experiment = rehearsal(
        "ifca",
        encryption=encryption,
        model="softmax",
        training={"rounds": 6},
        defence={"name": "client_dp", "epsilon": 8.0, "delta": 1e-3, "survivors": 0.75, "quorum": 3},
        deployment={"rehearsal": True, "min_silos": 3},
    )
    parties = deploy(experiment, silos=4)
    run_without_east_from_round_2(parties)
    records, absences = parties.records(), parties.absences()
    assert records[-1]["participants"] == 3 and (6, 3) in absences
    assert [r["extra"]["unopened"] for r in records] == [0.0] * 6
    alike = run(replace(experiment, participation=Participation(drops=absences)), quiet=True)
    for name in ("north", "south", "west"):
        assert torch.allclose(parties.model(name).models, alike.state.state.models, atol=1e-5), name
    sealed = {name: 6 - sum(i == absent for _, absent in absences) for i, name in enumerate(parties.names)}
    epsilons = {}
    for name in ("north", "south", "west"):
        summary = json.loads((parties.folder / "state" / name / "summary.json").read_text())["privacy"]
        (epsilons[name],) = {entry["epsilon"] for entry in summary.values() if entry["rounds"] == sealed[name]}
    worst = max(sealed[name] for name in epsilons)
    (said,) = {entry["epsilon"] for entry in alike.privacy.values()}
    assert all(epsilons[name] == pytest.approx(said, rel=1e-9) for name in epsilons if sealed[name] == worst)
    print(f"{encryption}: absent {absences}, ε {epsilons}, simulated {said}")
