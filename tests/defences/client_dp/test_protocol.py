"""Algorithms under client-level DP: without noise they are themselves, with noise they release a noised sum and nothing else."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from covey.algorithms.contract import Server
from covey.crypto.noise.source import SecretNoise
from covey.defences.client_dp.messages import ClippedChange, ClippedChanges, ClippedUpdate, PrivateState
from covey.engines.prepare import prepare
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

SMALL = {
    "clients": 6,
    "clusters": 2,
    "model": "softmax",
    "partition": {"name": "label_sets", "public": 20},
    "training": {"rounds": 2, "epochs": 1, "batch_size": 20, "lr": 0.1},
    "start": {"common": False, "pretrain_epochs": 0},
    "engine": {"workers": 1},
    "evaluation": {"every": 50, "samples": 50},
}
BY_CLIENT = {"name": "fedavg", "weighting": "clients"}
SUMMED = [BY_CLIENT, {"name": "fedprox", "weighting": "clients"}, "scaffold", "ifca", "fedsoft"]


def experiment(algorithm="ifca", more=None, **defence) -> Experiment:
    values = {**SMALL, **(more or {})}
    return Experiment.of(values, algorithm=algorithm, defence={"name": "client_dp", **defence})


def vectors(state) -> torch.Tensor:
    state = getattr(state, "state", state)
    return torch.cat([value.reshape(-1) for value in vars(state).values() if isinstance(value, torch.Tensor)])


@pytest.mark.parametrize("algorithm", [a for a in SUMMED if a != "fedsoft"], ids=str)
def test_no_noise_and_no_clipping_is_the_plain_algorithm(algorithm):
    plain = run(Experiment.of(SMALL, algorithm=algorithm), quiet=True)
    free = run(experiment(algorithm, epsilon=math.inf, clip=1e6), quiet=True)
    assert torch.allclose(vectors(plain.state), vectors(free.state), atol=2e-6)
    assert free.privacy["client_dp"]["epsilon"] is None  # and nothing is promised


def test_no_noise_is_fedsoft_of_clients_that_count_alike():
    more = {"dataset": "digits", "partition": {"name": "label_sets", "samples": 40, "public": 20}}
    plain = run(Experiment.of({**SMALL, **more}, algorithm="fedsoft"), quiet=True)
    free = run(experiment("fedsoft", more, epsilon=math.inf, clip=1e6), quiet=True)
    assert torch.allclose(vectors(plain.state), vectors(free.state), atol=1e-5)


@pytest.mark.parametrize("algorithm", SUMMED, ids=str)
@pytest.mark.parametrize("noise", ["server", "local"])
def test_the_target_is_met_and_says_whom_it_is_for(algorithm, noise):
    entry = run(experiment(algorithm, epsilon=3.0, delta=1e-3, noise=noise), quiet=True).privacy["client_dp"]
    assert entry["unit"] == "client" and 2.99 < entry["epsilon"] <= 3.0
    assert entry["units"]["record"] > entry["units"]["client"]  # a record's client is replaced, not removed
    assert ("trusted" in entry["against"]) == (noise == "server")
    assert entry["clients"] == 6 and entry["rounds"] == 2


class Desk:
    """A server that sums the same replies again and again."""

    def __init__(self, made: Experiment) -> None:
        self.algorithm = made.algorithm
        self.setting = prepare(made)[2]
        self.events: list = []

    def means(self, replies, seed=0, state=None, round=1, secret=None):
        """(the state after, the change of its vectors)"""
        server = Server(round, seed, self.setting, {}, lambda *_: None, lambda _: None, secret=secret)
        before = state or self.algorithm.start(self.setting)
        after = self.algorithm.aggregate(server, before, iter(replies))
        self.events += server.events
        return after, vectors(after) - vectors(before)


def test_the_noise_on_the_sum_is_what_was_priced_whoever_came():
    desk = Desk(experiment(BY_CLIENT, noise_multiplier=1.5, clip=0.5, more={"clients": 12}))
    d = desk.setting.start.shape[1]
    change = torch.full((d,), 0.5 / math.sqrt(d))
    one = [(0, ClippedChange(change, 0.0))]
    moved = torch.stack([desk.means(one, seed=s)[1] for s in range(40)])
    # Divided by 12 expected clients though 1 came: the mean is a twelfth of it, the noise z C / 12.
    assert moved.std(0).mean().item() == pytest.approx(1.5 * 0.5 / 12, rel=0.02)
    assert (moved.mean(0) @ change / change.norm()).item() == pytest.approx(
        0.5 / 12, abs=4 * 1.5 * 0.5 / 12 / math.sqrt(40)
    )
    assert [event.noise for _, event in desk.events[:1]] == [1.5]
    nobody = desk.means([])[1]
    assert nobody.std().item() == pytest.approx(1.5 * 0.5 / 12, rel=0.1)  # an empty round is a release, too
    assert len(desk.events) == 41


def test_sizes_of_clusters_are_used_with_their_noise_only():
    made = experiment("ifca", noise_multiplier=1.0, histogram=0.5, clip=1.0, more={"clients": 40})
    desk = Desk(made)
    zero = torch.zeros(desk.setting.start.shape[1])
    replies = [(i, ClippedUpdate(zero, 0, 0.0)) for i in range(40)]
    states = [desk.means(replies, seed=s)[0] for s in range(200)]
    sizes = torch.stack([state.sizes for state in states])
    # From equal shares of 20 a fifth of the way to 40 and 0; noise z / √½ on each, a fifth of it.
    assert sizes.mean(0).tolist() == pytest.approx([24.0, 16.0], abs=0.1)
    assert sizes.std(0).mean().item() == pytest.approx(0.2 * math.sqrt(2), rel=0.15)
    assert desk.events[0][1].noise == pytest.approx(1.0)  # models and sizes are priced as one


def test_a_small_cluster_keeps_its_model():
    desk = Desk(experiment("ifca", noise_multiplier=0.01, min_size=14, more={"clients": 40}))
    change = torch.ones(desk.setting.start.shape[1]) * 1e-3
    state = None
    for round in range(1, 9):
        after, _ = desk.means([(i, ClippedUpdate(change, 0, 0.0)) for i in range(40)], state=state, round=round)
        before, state = state, after
    assert before is not None and state.sizes[1] < 14 < state.sizes[0]
    assert torch.equal(state.state.models[1], before.state.models[1])
    assert not torch.equal(state.state.models[0], before.state.models[0])


def test_later_rounds_take_noise_back():
    more = {
        "clients": 12,
        "participation": {"share": 0.25, "sampling": "turns"},
        "training": {**SMALL["training"], "rounds": 8},
    }
    desk = Desk(experiment(BY_CLIENT, noise_multiplier=1.0, band=4, more=more))
    state, total = None, []
    for round in range(1, 9):
        state, moved = desk.means([], state=state, round=round)
        total.append(moved)
    unit = 1.0 / 3  # z C / expected
    prefix = torch.stack(total).sum(0)
    assert prefix.std().item() < 0.8 * unit * math.sqrt(8)  # independent noise would have √8
    # Nobody came, so nobody spent: with turns each client pays for its own answers.
    assert desk.events == []


def test_turns_are_priced_by_own_answers():
    more = {
        "clients": 8,
        "participation": {"share": 0.25, "sampling": "turns"},
        "training": {**SMALL["training"], "rounds": 8},
    }
    for band in (1, 4):
        entry = run(experiment(BY_CLIENT, epsilon=4.0, band=band, more=more), quiet=True).privacy["client_dp"]
        assert entry["total"]["sums"] == 2 and entry["epsilon"] == pytest.approx(4.0, abs=1e-3)


def test_poisson_sampling_is_amplified_and_rounds_without_clients_count():
    more = {"participation": {"share": 0.05, "sampling": "poisson"}, "training": {**SMALL["training"], "rounds": 12}}
    sampled = experiment(BY_CLIENT, epsilon=2.0, more=more)
    result = run(sampled, quiet=True)
    assert 0 in [record["participants"] for record in result.records]
    entry = result.privacy["client_dp"]
    assert entry["total"]["sums"] == 12 and 1.9 < entry["epsilon"] <= 2.0 and entry["composition"] == "PLD"
    everyone = experiment(BY_CLIENT, epsilon=2.0, more={"training": {**SMALL["training"], "rounds": 12}})
    assert sampled.algorithm.summation.amounts.joint < 0.5 * everyone.algorithm.summation.amounts.joint


def test_fixed_samples_and_local_noise_claim_no_amplification():
    fixed = experiment(BY_CLIENT, epsilon=2.0, more={"participation": {"share": 0.5}})
    every = experiment(BY_CLIENT, epsilon=2.0)
    assert fixed.algorithm.summation.amounts == every.algorithm.summation.amounts
    sampled = {"participation": {"share": 0.5, "sampling": "poisson"}}
    assert (
        experiment(BY_CLIENT, epsilon=2.0, noise="local", more=sampled).algorithm.summation.amounts
        == every.algorithm.summation.amounts
    )


def test_the_bound_adapts_and_travels():
    result = run(experiment(BY_CLIENT, epsilon=50.0, clip=0.01, quantile=0.5, clip_rate=1.0), quiet=True)
    assert result.state.clip > 0.012 and result.state.sent.clip == result.state.clip
    assert result.records[0]["extra"]["clip"] == 0.01


def test_deployed_noise_is_secret_and_its_grid_is_priced():
    desk = Desk(experiment(BY_CLIENT, noise_multiplier=1.0))
    first, second = (desk.means([], secret=SecretNoise())[1] for _ in range(2))
    assert not torch.equal(first, second) and first.std().item() == pytest.approx(1 / 6, rel=0.15)
    event = desk.events[0][1]
    assert event.secret and 0 < event.rounding < 1e-6 and event.worth < event.noise


def test_a_local_client_sends_nothing_that_is_not_noised():
    made = experiment("ifca", epsilon=2.0, noise="local", histogram=0.0)
    assert made.algorithm.replies == (ClippedChanges,)
    desk = Desk(made)
    _, moved = desk.means([(0, ClippedChanges(torch.zeros(2, desk.setting.start.shape[1]), torch.zeros(2), 0.0))])
    assert moved.abs().max() == 0  # the server adds none


def test_a_run_goes_on_where_it_was_interrupted(tmp_path):
    made = experiment(
        "ifca", epsilon=4.0, quantile=0.5, momentum=0.5, more={"training": {**SMALL["training"], "rounds": 4}}
    )
    whole = run(made, quiet=True)

    def stop(record, state):
        if record["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(made, out=tmp_path / "a", callbacks=[stop], quiet=True)
    assert torch.equal(vectors(run(made, out=tmp_path / "a", resume=True, quiet=True).state), vectors(whole.state))
    assert "algorithm" in made.table() and made.table()["algorithm"]["name"] == "ifca"
    assert Experiment.of(made.table()) == made


@pytest.mark.parametrize(
    ("algorithm", "more", "defence", "words"),
    [
        ("fedavg", {}, {}, "weighting"),
        ("mingledpie", {}, {}, "sum over clients"),
        ({"name": "ifca", "aggregation": "median"}, {}, {}, "aggregation"),
        ({"name": "fedsoft", "selection": 2}, {}, {}, "selection"),
        ("ifca", {"training": {**SMALL["training"], "target": 0.9}}, {}, "target"),
        ("ifca", {}, {"band": 4}, "turns"),
        ("ifca", {}, {"delta": "1/client"}, "delta"),
        ("ifca", {}, {"epsilon": 0.0}, "epsilon"),
        ("ifca", {}, {"clip": math.inf}, "clip"),
        ("ifca", {}, {"noise": "sever"}, "server"),
        ("ifca", {}, {"noise": "clients"}, "sealed"),
        ("ifca", {}, {"histogram": 0.97}, "histogram"),
        (BY_CLIENT, {}, {"identity_epsilon": 1.0}, "cluster"),
        ("ifca", {"participation": {"share": 0.3, "sampling": "turns"}}, {}, "turns"),
        ("ifca", {"participation": {"sampling": "bernoulli"}}, {}, "sampling"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(algorithm, more, defence, words):
    with pytest.raises(CoveyError, match=words):
        experiment(algorithm, more, **defence)


def test_without_the_defence_the_algorithm_is_bare_again():
    made = experiment("ifca")
    assert replace(made, defence=None).algorithm == made.algorithm.stands_for
    assert isinstance(made.algorithm.start(prepare(made)[2]), PrivateState)


def test_delta_by_the_number_of_clients():
    assert experiment("ifca").defence.delta_of(1000) == pytest.approx(1000**-1.1)
    assert experiment("ifca", delta=1e-6).defence.delta_of(1000) == 1e-6
    assert np.isclose(experiment("ifca", delta="1/clients").defence.delta_of(50), 0.02)
