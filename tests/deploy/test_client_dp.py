"""Client-level DP with a trusted server, deployed: a rehearsal is the simulation; for real its noise is secret, and booked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from covey.defences.client_dp.messages import ClippedChange, ClippedChanges, ClippedUpdate
from covey.defences.client_dp.summation import rebounded
from covey.rounds.loop import run
from support.deployment import Deployment, rehearsal

DEFENCE = {"name": "client_dp", "epsilon": 8.0, "delta": 1e-3, "quantile": 0.5}


def test_a_rehearsal_is_the_simulation(tmp_path):
    made = rehearsal("ifca", defence=DEFENCE, model="softmax", training={"rounds": 2})
    deployed = Deployment(tmp_path, made).coordinator().run()
    alike = run(made, quiet=True)
    assert torch.allclose(deployed.state.state.models, alike.state.state.models, atol=1e-5)
    assert deployed.privacy["client_dp"]["epsilon"] == alike.privacy["client_dp"]["epsilon"]
    assert "keyed" in deployed.privacy["client_dp"]["noise"]


def test_for_real_the_servers_noise_is_secret(tmp_path):
    made = rehearsal("ifca", defence=DEFENCE, model="softmax", training={"rounds": 2}, deployment={"rehearsal": False})
    first, second = (Deployment(tmp_path / str(n), made).coordinator().run() for n in range(2))
    assert not torch.allclose(first.state.state.models, second.state.state.models, atol=1e-2)
    entry = first.privacy["client_dp"]
    assert "secret" in entry["noise"] and 7.9 < entry["epsilon"] <= 8.0 + 1e-4 and entry["rounds"] == 2


@pytest.mark.parametrize(
    "lie",
    [
        ClippedChange(torch.full((6,), 1e30), 1e9),
        ClippedUpdate(torch.full((6,), -1e19), 1, -1e9),
        ClippedChanges(torch.full((2, 3), 3e38), torch.tensor([1e30, -1e30]), 7.0),
    ],
)
def test_a_lying_silo_counts_for_no_more_than_an_honest_one(lie):
    counted = rebounded(lie, 0.5)
    change = counted.changes if isinstance(counted, ClippedChanges) else counted.change
    assert 0.49 < float(change.double().norm()) <= 0.5 and abs(counted.within) == 0.5
    if isinstance(counted, ClippedChanges):
        assert float(counted.shares.double().norm()) <= 1 + 1e-6
    honest = replace(lie, within=0.5, **small(lie))
    again = rebounded(honest, 0.5)
    for name, value in vars(again).items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(getattr(honest, name)))


def small(lie):
    if isinstance(lie, ClippedChanges):
        return {"changes": torch.full((2, 3), 0.1), "shares": torch.tensor([0.6, 0.4])}
    return {"change": torch.full((6,), 0.1)}
