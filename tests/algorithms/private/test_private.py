"""RR-Cluster and R-DPCFL, every step worked out by hand. A sample x has the loss ½ ‖θ − x‖²; a step of ½ takes θ half way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from covey import Experiment, run
from covey.algorithms.ifca import IFCA
from covey.algorithms.private.rdpcfl import RDPCFL, DrawnModel, EveryModel, FirstModel
from covey.algorithms.private.rr_cluster import RRCluster, rebalanced
from covey.clustering.mixtures import fitted_mixture, main_components, overlap
from covey.errors import CoveyError
from covey.learn.work import Plan
from covey.randomness import generator
from support.quadratic_clients import Bench, on_a_line, steps


def test_every_cluster_has_the_least_size_and_as_few_as_can_be_are_moved() -> None:
    chosen = np.array([0, 0, 0, 0, 0, 0, 1, 2])
    for seed in range(5):
        places = rebalanced(chosen, 3, 2, generator(seed, "test"))
        assert np.bincount(places, minlength=3).tolist() == [4, 2, 2]
        assert (places != chosen).sum() == 2 and (places[6:] == chosen[6:]).all()
    assert np.bincount(rebalanced(chosen, 4, 2, generator(0, "test"))).tolist() == [2, 2, 2, 2]
    assert np.bincount(rebalanced(chosen, 3, 9, generator(0, "test"))).tolist() == [4, 2, 2]  # 8 // 3 at most
    assert rebalanced(chosen, 3, 1, generator(0, "test")).tolist() == chosen.tolist()
    everyone = [set(np.flatnonzero(rebalanced(chosen, 3, 2, generator(s, "test")) != chosen)) for s in range(30)]
    assert set().union(*everyone) == set(range(6))  # anybody of the large one


def test_rr_cluster_counts_a_moved_change_in_the_other_cluster() -> None:
    # Models 0 and 9. 0, 0, 4 choose the first: changes 0, 0, 2. Nobody chooses the second, one of the three is moved there.
    bench = Bench(RRCluster(least=1), [on_a_line(x) for x in (0.0, 0.0, 4.0)], [[0.0], [9.0]], steps(1))
    first, second = bench.round().models.flatten().tolist()
    assert (first, second) in [(1.0, 9.0), (0.0, 11.0)]
    assert [reply.cluster for reply in bench.replies.values()] == [0, 0, 0]


def test_rr_cluster_that_moves_nobody_is_ifca() -> None:
    clients = [on_a_line(x) for x in (0.0, 1.0, 8.0, 9.0)]
    ours, theirs = (Bench(a, clients, [[0.0], [9.0]], steps(1)) for a in (RRCluster(least=2), IFCA()))
    for _ in range(3):
        assert torch.allclose(ours.round().models, theirs.round().models)


def test_a_mixture_of_updates() -> None:
    torch.manual_seed(0)
    centres = torch.tensor([[5.0] * 30, [-5.0] * 30])
    updates = centres.repeat_interleave(10, 0) + 0.1 * torch.randn(20, 30)
    rows = main_components(updates)
    assert rows.shape == (20, 2) and rows.min() == 0 and rows.max() == 1
    posterior, shared = fitted_mixture(updates, 2, generator(0, "test"))
    assert posterior.sum(1) == pytest.approx(1.0) and len(set(posterior[:10].argmax(1))) == 1
    assert posterior[0].argmax() != posterior[-1].argmax() and shared < 0.5
    # Two unit balls four apart: s = 4 / 2, 1 − erf(2 / √2) = .0455; at one place 1.
    assert overlap(np.array([[0.0], [4.0]]), np.ones(2)) == pytest.approx(0.0455, abs=1e-4)
    assert overlap(np.zeros((2, 1)), np.ones(2)) == 1.0


def test_rdpcfl_phases() -> None:
    clients = [on_a_line(x) for x in (-8.0, -8.1, 8.0, 8.2, 8.1)]
    bench = Bench(RDPCFL(choosing=0.2), clients, [[0.0], [0.0]], Plan(lr=0.5, epochs=1, batch_size=1))
    assert isinstance(bench.algorithm.broadcast(bench.state, 0), FirstModel)
    state = bench.round(0, 1, 2, 3)
    assert bench.asked[0][0].plan.batch_size == 0  # a full batch
    assert (
        state.models.tolist() == [[0.0], [0.0]] and state.drawn[0] == state.drawn[1] != state.drawn[2] == state.drawn[3]
    )
    assert isinstance(bench.algorithm.broadcast(state, 0), DrawnModel)
    assert isinstance(bench.algorithm.broadcast(state, 4), FirstModel)  # not there in round 1
    assert 1 <= state.until <= 5  # half of the ten rounds at most
    bench.round()
    assert bench.state.models[state.drawn[0]].item() == pytest.approx(-4.025)
    assert bench.state.drawn[4] == state.drawn[2]  # nearest to where it went
    kinds = []
    for _ in range(7):
        kinds.append(type(bench.algorithm.broadcast(bench.state, 0)))
        bench.round()
    switch = kinds.index(EveryModel)
    assert kinds[switch : switch + 2] == [EveryModel] * 2 and kinds[switch + 2 :] == [DrawnModel] * (5 - switch)


@pytest.mark.parametrize("make", [lambda: RRCluster(least=0), lambda: RDPCFL(choosing=1.5)])
def test_fields_out_of_range_are_refused(make: object) -> None:
    with pytest.raises(CoveyError, match=r"algorithm\."):
        make()  # type: ignore[operator]


def test_rdpcfl_numbers_its_clusters_itself() -> None:
    """Its headline is of the models that clusters chose, not of row c for cluster c, where starts were pre-trained, too."""
    table = {"algorithm": "rdpcfl", "dataset": "digits", "model": "softmax", "clients": 10, "clusters": 5}
    cut = {"partition": {"name": "label_sets", "public": 50}, "start": {"pretrain_epochs": 5}}
    result = run(Experiment.of(table | cut, training={"rounds": 2, "lr": 0.1}), quiet=True)
    assert result.accuracy["average_cluster"] == pytest.approx(result.accuracy["client_mean"], abs=0.15)
