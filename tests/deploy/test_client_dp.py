"""Client-level DP with a trusted server, deployed: a rehearsal is the simulation; for real its noise is secret, and booked."""

from __future__ import annotations

import torch

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
