"""Parties apart: every client on a host of its own, every message through its bytes, every reply admitted: as simulated.

What `test_session` does with keys, letters and a coordinator for some protocols, here for all of the field, at a tenth of the time.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from covey import Experiment, run
from covey.algorithms.admission import admit
from covey.algorithms.contract import Server
from covey.engines.prepare import make_host, prepare
from covey.engines.settle import settle
from covey.messages import decode, encode
from support.deployment import rehearsal

FIELD: list[Any] = ["fedavg_ft", "ditto", "fedper", "fedrep", "apfl", "perfedavg", "fesem", "fedgroup"]
FIELD += [{"name": "flhc", "warm_up": 1}, "pacfl", "stocfl", "fedrc", {"name": "flux", "warm_up": 1}]
FIELD += ["fedgwc", {"name": "rr_cluster", "least": 2}, "rdpcfl"]


def apart(experiment: Experiment) -> tuple[Any, list[Any]]:
    """(the final state, what each client predicts with) of parties that share nothing but bytes."""
    experiment, given = settle(experiment, None)
    federation, network, setting = prepare(experiment, given)
    algorithm, everyone = experiment.algorithm, range(setting.clients)
    silos = [make_host(experiment, network, federation, setting, {}, {}) for _ in everyone]
    state = algorithm.start(setting)
    for round in range(1, setting.rounds + 1):
        plan = experiment.training.plan(round)
        replies = []
        for i in everyone:
            got = decode(encode(algorithm.broadcast(state, i)))
            [outcome] = silos[i].run(round, [(i, got, plan)])
            reply = decode(encode(outcome.reply))
            admit(algorithm, state, setting, {}, reply)
            replies.append((i, reply))
        server = Server(round, setting.seed, setting, {}, lambda *_: None, lambda _: nullcontext())
        state = decode(encode(algorithm.aggregate(server, state, iter(replies))))
    plan = experiment.training.plan(setting.rounds)
    calls = [[(i, decode(encode(algorithm.broadcast(state, i))), plan)] for i in everyone]
    return state, [silo.uses(setting.rounds, call)[0] for silo, call in zip(silos, calls)]


def tensors(value: Any) -> list[Tensor]:
    """All tensors of a state, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict | tuple | list):
        return [t for v in (value.values() if isinstance(value, dict) else value) for t in tensors(v)]
    return tensors(list(vars(value).values())) if hasattr(value, "__dict__") else []


@pytest.mark.parametrize("algorithm", FIELD, ids=str)
def test_parties_apart_do_what_the_simulation_does(algorithm: Any) -> None:
    experiment = rehearsal(algorithm, engine={"workers": 1})
    together = run(experiment, quiet=True)
    state, uses = apart(experiment)
    pairs = list(zip(tensors(state), tensors(together.state), strict=True))
    assert pairs
    for ours, theirs in pairs:  # sums over one client or over many at once differ in the last bit
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert all(bool(torch.isfinite(use.models).all()) for use in uses)
