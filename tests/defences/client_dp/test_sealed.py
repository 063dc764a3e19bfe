"""Shares of noise inside sealed sums: the sum is exact, its noise what was agreed, whoever is false or gone; what is refused."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.admission import admit
from covey.algorithms.contract import Server, make_keys
from covey.audit.canaries.clients import Circle as Clients
from covey.audit.canaries.clients import circle_of, finished
from covey.crypto.noise.source import KeyedNoise
from covey.defences.client_dp.sealed import Circle
from covey.defences.client_dp.summation import STREAM
from covey.defences.contract import Terms
from covey.deploy.letters import unpack
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.ledger.clients import sums_epsilon
from covey.ledger.events import ClientRelease
from covey.ledger.pricing import price
from covey.messages import decode
from covey.rounds.loop import run
from support.deployment import Deployment, rehearsal, simulated


def sealed(algorithm: Any = "ifca", more: Any = None, **defence: Any) -> Experiment:
    table = {
        "clients": 8,
        "clusters": 2,
        "encryption": "threshold",
        "model": "softmax",
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 2, "epochs": 1, "batch_size": 20, "lr": 0.1},
        "engine": {"workers": 1},
        "evaluation": {"every": 50, "samples": 50},
    }
    table |= {"algorithm": algorithm, "defence": {"name": "client_dp", "epsilon": 4.0, "delta": 1e-3, **defence}}
    return Experiment.of(table, **(more or {}))


BY_CLIENT = {"name": "fedavg", "weighting": "clients"}


@pytest.mark.parametrize("algorithm", [BY_CLIENT, "ifca", "scaffold"], ids=str)
def test_the_epsilon_that_is_asked_for_holds_against_the_server_and_all_but_a_quorum(algorithm: Any) -> None:
    result = run(sealed(algorithm, quantile=0.5), quiet=True)
    entry = result.privacy["client_dp"]
    assert 3.98 < entry["epsilon"] <= 4.0 and entry["unit"] == "client" and entry["total"]["sums"] == 2
    assert entry["against"].startswith("the server and up to 4 clients together")
    assert "there or zeros" in entry["adjacency"] and "takes part is seen by the server" in entry["caveat"]
    assert [r["extra"]["unopened"] for r in result.records] == [0.0, 0.0]


def test_under_masks_it_is_the_same_guarantee() -> None:
    """Two thirds open there, so more clients may be corrupted, and the noise is more; IFCA's clusters are not shown."""
    result = run(sealed(more={"encryption": "secagg"}), quiet=True)
    entry = result.privacy["client_dp"]
    assert 3.98 < entry["epsilon"] <= 4.0 and entry["against"].startswith("the server and up to 5 clients together")
    assert [r["extra"]["unopened"] for r in result.records] == [0.0, 0.0]
    lost = run(sealed(more={"encryption": "secagg", "participation": {"drops": [[1, 3]], "vanish": 0.1}}), quiet=True)
    assert [r["extra"]["unopened"] for r in lost.records] == [1.0, 0.0]


def test_two_runs_of_a_seed_are_the_same_and_processes_change_nothing() -> None:
    one, two = (run(sealed(more={"engine": {"workers": n}}), quiet=True) for n in (1, 2))
    assert torch.equal(one.state.state.models, two.state.state.models)


def test_with_little_noise_it_learns_what_the_trusted_server_learns() -> None:
    many = {"noise_multiplier": 1e-3, "histogram": 0.1}
    alone = run(sealed(**many), quiet=True).state.state.models
    trusted = run(sealed(more={"encryption": "none"}, **many), quiet=True).state.state.models
    assert torch.allclose(alone, trusted, atol=5e-3)


def planted(encryption: str = "threshold", **defence: Any) -> Clients:
    return circle_of(sealed(more={"encryption": encryption}, **defence), False)


@pytest.mark.parametrize("encryption", ["threshold", "secagg"])
def test_the_opened_sum_is_all_contributions_and_all_shares_exactly(encryption: str) -> None:
    """One round by hand: the canary's bound in block 0, and the shares of the two honest clients, drawn again from their keys."""
    circle = planted(encryption, noise_multiplier=2.0, histogram=0.2)
    summation = circle.protected.summation
    shares = summation.shares(circle.keys["server"]["sealing"])
    shown = circle.sums(3, 0, [])
    width = circle.setting.start.shape[1] + 2
    noise = sum(
        shares.seal(np.zeros(2 * width), KeyedNoise((circle.setting.seed, 3, i)).stream(STREAM)) * shares.step
        for i in (0, 1)
    ).reshape(2, width)
    amounts = summation.amounts
    assert shown[0] - noise[0, 0] * amounts.changes == pytest.approx(1.0, abs=1e-5)
    assert shown[1] - noise[1, 0] * amounts.changes == pytest.approx(0.0, abs=1e-5)
    assert shown[2] - noise[0, -2] * amounts.sizes == pytest.approx(1.0, abs=1e-5)
    assert shown[3] - noise[1, -2] * amounts.sizes == pytest.approx(0.0, abs=1e-5)
    assert amounts.joint == pytest.approx(2.0)


def test_honest_shares_are_noise_enough_where_the_corrupted_add_none() -> None:
    """In units of each part's deviation the sum's noise is 1 at least; with all clients honest it is more."""
    circle = planted(noise_multiplier=1.0)
    wide = replace(circle.setting, start=torch.zeros(2, 4000))
    total = _absent_total(replace(circle, setting=wide))
    deviation = float((total.changes / circle.protected.summation.amounts.changes / circle.protected.clip).std())
    assert deviation == pytest.approx(1.0, abs=0.03)


def _absent_total(circle: Clients) -> Any:
    totals = []

    class Kept(type(circle.protected.summation)):  # type: ignore[misc]
        def total(self, *args: Any) -> Any:
            totals.append(super().total(*args))
            return totals[-1]

    summation = Kept(**vars(circle.protected.summation))
    replace(circle, protected=replace(circle.protected, summation=summation)).sums(1, None, [])
    return totals[0]


# ---------------------------------------------------------------- who is gone


def test_who_is_gone_after_sealing_is_in_the_sum_and_too_few_leave_it_closed() -> None:
    """Eight clients, five open, eight must be in it: vanishing costs nothing, dropping out before the round costs it."""
    vanishing = run(sealed(more={"participation": {"vanish": 0.2}}), quiet=True)
    everyone = run(sealed(), quiet=True)
    assert torch.equal(vanishing.state.state.models, everyone.state.state.models)
    dropped = run(sealed(more={"participation": {"drops": [[1, 3]]}}), quiet=True)
    assert [r["extra"]["unopened"] for r in dropped.records] == [1.0, 0.0]
    assert (
        run(sealed(more={"participation": {"drops": [[1, 3]]}}, survivors=0.8), quiet=True).records[0]["extra"][
            "unopened"
        ]
        == 0.0
    )
    entry = dropped.privacy["client_dp"]
    assert entry["total"]["sums"] == 2  # those who sealed have booked it: they cannot know


# ---------------------------------------------------------------- what is refused, and what is said


@pytest.mark.parametrize(
    ("more", "defence", "why"),
    [
        ({"encryption": "bfv"}, {}, "a single client opens what another one has sealed"),
        ({}, {"epsilon": math.inf}, "a sealed sum without noise"),
        ({}, {"band": 2}, "clients draw theirs|participation"),
        ({}, {"noise": "server"}, "set both or neither"),
        ({}, {"quorum": 1}, r"defence\.quorum is 1"),
        ({}, {"quorum": 9}, "a round has 8 clients, 9 must open"),
        ({}, {"quorum": 4, "corrupted": 4}, "4 clients open every upload"),
        ({}, {"survivors": 0.5, "quorum": 8}, "4 be in it"),
        ({"clients": 2}, {}, "2 clients would be in a sum"),
        ({}, {"survivors": 0.25}, "2 clients would be in a sum"),
        ({}, {"survivors": 0.0}, r"defence\.survivors is 0"),
        ({}, {"survivors": 1.5}, r"defence\.survivors is 1"),
    ],
)
def test_what_protects_nobody_is_refused(more: Any, defence: Any, why: str) -> None:
    with pytest.raises(CoveyError, match=why):
        sealed(more=more, **defence)


@pytest.mark.parametrize(
    ("clients", "quorum", "corrupted", "says"),
    [
        (9, 0, -1, "up to 4 clients together, if the server asks all clients for the same sum; up to 0 if it does not"),
        (9, 7, 4, "up to 4 clients together, whatever the server asks"),
        (9, 4, 3, "up to 3 clients together, if the server asks all clients for the same sum"),
    ],
)
def test_whom_it_protects_against(clients: int, quorum: int, corrupted: int, says: str) -> None:
    circle = Circle.of(Terms(clients, 2, 1, encryption="threshold"), quorum, corrupted, 1.0)
    assert circle.against == f"the server and {says}"


def test_the_default_circle() -> None:
    assert Circle.of(Terms(100, 2, 1, encryption="threshold"), 0, -1, 0.9) == Circle(100, 51, 90, 50)
    assert Circle.of(Terms(100, 2, 1, share=0.2, encryption="threshold"), 0, -1, 0.9) == Circle(100, 11, 18, 10)
    assert Circle.of(Terms(3, 2, 1, encryption="threshold"), 0, -1, 0.9) == Circle(3, 2, 3, 1)


def test_what_a_grid_costs_is_priced() -> None:
    release = ClientRelease(noise=2.0, delta=1e-3, grid=0.01, zeroed=True)
    spends = [(n, 0, release) for n in range(3)]
    plain = sums_epsilon({(1.0, 2.0): 3}, 1e-3)
    entry = price(spends)["client_dp"]
    assert plain + 0.03 < entry["epsilon"] < plain + 0.03 + 0.02
    little = price([(1, 0, ClientRelease(noise=0.05, delta=1e-3, grid=1e-9))])["client_dp"]["epsilon"]
    rho = 0.5 / 0.05**2 + 1e-9
    assert little == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1000)))
    assert little > sums_epsilon({(1.0, 0.05): 1}, 1e-3)
    assert price([(1, 0, ClientRelease(noise=0.0, delta=1e-3, grid=1e-9))])["client_dp"]["epsilon"] is None


# ---------------------------------------------------------------- deployed


def deployed(encryption: str = "threshold", **more: Any) -> Experiment:
    defence = {"name": "client_dp", "epsilon": 8.0, "delta": 1e-2, "survivors": 0.75, "quorum": 3, "corrupted": 1}
    return rehearsal("ifca", encryption=encryption, model="softmax", defence=defence, **more)


@pytest.mark.parametrize("encryption", ["threshold", "secagg"])
def test_a_deployment_has_the_models_of_the_simulation(encryption: str, tmp_path: Path) -> None:
    """Letters, silos and keys of their own; the noise of a rehearsal is the simulation's."""
    experiment = deployed(encryption, training={"rounds": 1, "epochs": 1})
    deployment = Deployment(tmp_path, experiment)
    result = deployment.coordinator().run()
    expected, _ = simulated(experiment)
    assert torch.allclose(result.state.state.models, expected.state.state.models, atol=1e-6)


def test_silos_that_drop_out_in_the_middle_and_spend_their_budgets(tmp_path: Path) -> None:
    """North is lost after it has sealed in round 1: the sum has its share and opens. In round 2 it is lost before, and three are
    enough; in round 3 two are, and the sum stays closed. Noise is secret, and every silo has booked what it sealed.
    """
    experiment = deployed(deployment={"rehearsal": False, "report_accuracy": False})
    deployment = Deployment(tmp_path, experiment)

    def tamper(name: str, call: bytes, answer: bytes) -> bytes | None:
        round, kind = unpack(call).round, decode(unpack(call).payload).kind
        lost = {1: {"consult": ["north"]}, 2: {"round": ["north"]}, 3: {"round": ["north", "west"]}}
        return None if name in lost.get(round, {}).get(kind, []) else answer

    deployment.office.tamper = tamper
    result = deployment.coordinator().run()
    assert [r["extra"]["unopened"] for r in result.records] == [0.0, 0.0, 1.0]
    assert [r["participants"] for r in result.records] == [4, 3, 2]
    summary = json.loads((tmp_path / "state/east/summary.json").read_text())
    entry = summary["privacy"]["client_dp"]
    assert entry["noise"].startswith("secret") and 7.9 < entry["epsilon"] <= 8.0
    assert summary["budget"]["spent"] == pytest.approx(entry["epsilon"])


@pytest.mark.parametrize("encryption", ["threshold", "secagg"])
def test_a_silo_that_sends_another_number_of_blocks_is_left_out(encryption: str) -> None:
    """It passes every check of a reply by itself; the sum is that of the others, three of whom are enough."""
    circle = circle_of(deployed(encryption), False)
    setting = replace(circle.setting, clients=4)
    protected = replace(circle.protected, summation=deployed(encryption).algorithm.summation)
    keys = make_keys(protected, setting)
    whole = replace(circle, protected=protected, setting=setting, keys=keys)
    members = {i: whole._client(i, 1) for i in range(4)}
    replies = {i: finished(protected.summation.absent(me, 1 if i == 2 else 2)) for i, me in members.items()}
    desk = Server(1, 0, setting, keys["server"], None, lambda phase: nullcontext())  # type: ignore
    for reply in replies.values():
        admit(protected, protected.start(setting), setting, keys["server"], reply)

    def consult(questions: Any, enough: int) -> dict[int, Any]:
        return {j: finished(protected.advise(members[j], question)) for j, question in questions.items()}

    total = protected.summation.total(
        replace(desk, consult=consult), protected.start(setting), iter(sorted(replies.items()))
    )
    assert total is not None and desk.notes == {"unopened": 0.0}
    for i in (0, 1):
        replies[i] = finished(protected.summation.absent(whole._client(i, 1), 1))
    assert (
        protected.summation.total(replace(desk, consult=consult), protected.start(setting), iter(replies.items()))
        is None
    )
