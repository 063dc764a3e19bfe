"""FedGWC by hand: rewards, interactions, splits, and the phases of a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from covey.algorithms.clustered.fedgwc import FedGWC, parts_of
from covey.clustering import rewards as formulas
from covey.clustering.rewards import affinities, best_split, davies_bouldin, leading, rewarded, rewards
from covey.errors import CoveyError
from covey.learn.work import Plan
from covey.randomness import generator
from support.quadratic_clients import Bench, on_a_line, steps


def test_rewards_are_gaussian_in_the_distance_from_the_mean_loss() -> None:
    # Losses 0 and 2 of equal weight: mean 1, variance 1: e^−½ each. Three of 0 and one of 4: mean 1, variance 3.
    assert rewards(np.array([[0.0], [2.0]]), np.ones(2)) == pytest.approx(math.exp(-0.5))
    r = rewards(np.array([[0.0], [4.0]]), np.array([3.0, 1.0]))
    assert r == pytest.approx(np.array([math.exp(-1 / 6), math.exp(-9 / 6)]))


def test_interactions_of_those_who_took_part_move_to_their_rewards() -> None:
    before = np.full((4, 4), 1 / 16)
    after, moved = rewarded(before, [0, 2], np.array([[1.0], [1.0]]), np.ones(2))  # alike: r = 1 each, half of the sum
    assert after[0, 2] == after[2, 0] == after[0, 0] == pytest.approx(0.5 / 16 + 0.5 * 0.5)  # α = 2 of 4
    assert after[1].tolist() == before[1].tolist() and after[0, 1] == 1 / 16
    assert moved == pytest.approx((after[0, 2] - 1 / 16) ** 2)


def test_of_many_clients_only_the_leading_vectors_are_computed_and_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = np.arange(60) % 3
    table = np.random.default_rng(1).random((60, 60)) * 0.5 + 0.5 * (truth[:, None] == truth)
    alike = affinities(table, 4 / 60)
    whole, split = leading(alike, 3), best_split(alike, 4, generator(0, "split"))
    monkeypatch.setattr(formulas, "WHOLE", 10)
    few = leading(alike, 3)
    assert few.shape == (60, 3) and np.allclose(np.abs((whole * few).sum(0)), 1)  # up to signs, in the same order
    again = best_split(alike, 4, generator(0, "split"))
    assert split is not None and again is not None and len(set(zip(split, truth))) == len(set(zip(again, truth))) == 3


def test_affinities_leave_the_two_clients_themselves_out() -> None:
    weights = np.random.default_rng(0).random((5, 5))
    scaled = (weights.T - weights.min()) / (weights.max() - weights.min())
    alike = affinities(weights, 2.0)
    others = [2, 3, 4]
    assert alike[0, 1] == pytest.approx(math.exp(-2 * ((scaled[0] - scaled[1])[others] ** 2).sum()))
    assert np.allclose(alike, alike.T) and (np.diag(alike) == 0).all()


def test_a_split_that_is_there_is_found_and_none_where_there_is_none() -> None:
    blocks = np.kron(np.eye(2), np.ones((4, 4))) + 0.01
    np.fill_diagonal(blocks, 0.0)
    assert best_split(blocks, 4, generator(0, "test")).tolist() == [0] * 4 + [1] * 4  # type: ignore[union-attr]
    rows = np.array([[0.0], [2.0], [10.0], [12.0]])  # widths 1 and 1, ten apart
    assert davies_bouldin(rows, np.array([0, 0, 1, 1])) == pytest.approx(0.2)


def test_a_training_in_parts_takes_all_its_steps() -> None:
    assert [p.steps for p in parts_of(Plan(epochs=2, batch_size=10), 50, 4)] == [2, 3, 3, 2]  # ten steps
    assert [p.steps for p in parts_of(Plan(steps=2), 50, 4)] == [1, 1, 1, 1]


def test_a_cluster_is_averaged_and_split_when_it_has_come_to_rest() -> None:
    clients = [on_a_line(x) for x in (0.0, 0.0, 0.0, 6.0, 6.0, 6.0)]
    bench = Bench(FedGWC(looks=2, rest=0.5, most=2), clients, [[2.0]], steps(2))
    # Two parts of one step of ½: 0 → 2, 1, .5 and 6 → 2, 4, 5; losses after each ½ 1², ½ .5² and ½ 2², ½ 1².
    state = bench.round()
    assert bench.replies[0].losses.tolist() == [0.5, 0.125] and bench.replies[3].losses.tolist() == [2.0, 0.5]
    assert {k: c.sent.model.item() for k, c in state.clusters.items()}[min(state.clusters)] == pytest.approx(2.75)
    assert sorted(i for c in state.clusters.values() for i in c.members) == list(range(6))
    for _ in range(4):
        bench.round(0, 1, 3)
    assert sorted(i for c in bench.state.clusters.values() for i in c.members) == list(range(6))
    assert all(bench.state.place.get(i, 1) in bench.state.clusters for i in range(6))


@pytest.mark.parametrize("fields", [{"looks": 0}, {"most": 1}, {"gamma": 0.0}, {"rest": -1.0}])
def test_fields_out_of_range_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(CoveyError, match=rf"algorithm\.{next(iter(fields))}"):
        FedGWC(**fields)  # type: ignore[arg-type]


def test_momentum_is_refused() -> None:
    with pytest.raises(CoveyError, match=r"training\.momentum"):
        Bench(FedGWC(), [on_a_line(0.0)], [[0.0]], Plan(momentum=0.5))
