"""StoCFL, FedRC and FLUX, every step worked out by hand. A sample x has the loss ½ ‖θ − x‖²."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.clustered.fedrc import FedRC, label_shares, responsibilities
from covey.algorithms.clustered.flux import Described, Flux, described
from covey.algorithms.clustered.stocfl import BothTrained, StoCFL
from covey.algorithms.fedem import FedEM
from covey.clustering.density import by_density, knee, scaled_groups
from covey.errors import CoveyError
from support.quadratic_clients import Bench, Quadratic, Seen, on_a_line, steps

LINE = [on_a_line(-4.0), on_a_line(-6.0), on_a_line(4.0), on_a_line(8.0, 8.0, 8.0)]
ONE = [[0.0]]


def test_stocfl_unites_clusters_whose_first_moves_are_alike() -> None:
    # From the anchor 0: moves −2, −3, 2, 4; cosines 1 within and −1 between. By samples: −2.5, 14/4; ω (−2 − 3 + 2 + 12) / 6.
    bench = Bench(StoCFL(pull=0.0), LINE, ONE, steps(1))
    state = bench.round()
    assert state.place == {0: 1, 1: 1, 2: 3, 3: 3}
    assert {k: m.item() for k, m in state.models.items()} == {1: -2.5, 3: 3.5}
    assert state.common.item() == 1.5
    assert bench.replies[0].moved.item() == -2.0
    bench.round(2)
    assert isinstance(bench.replies[2], BothTrained) and bench.notes[2]["cluster"] == 3  # told once


def test_stocfl_pulls_cluster_models_to_the_common_one() -> None:
    # θ = −2.5, ω = 1.5, x = −4, λ = 1: −2.5 − ½ ((−2.5 + 4) + (−2.5 − 1.5)) = −1.25. ω_i: half way from 1.5 to −4.
    bench = Bench(StoCFL(pull=1.0), LINE, ONE, steps(1))
    bench.state = Bench(StoCFL(pull=0.0), LINE, ONE, steps(1)).round()
    bench.round(0)
    assert bench.replies[0].model.item() == -1.25 and bench.replies[0].common.item() == -1.25


def test_stocfl_newcomers_join_and_do_not_count_in_a_model_that_they_did_not_train() -> None:
    bench = Bench(StoCFL(pull=0.0), LINE, ONE, steps(1))
    bench.round(0, 2)
    assert bench.state.place == {0: 1, 2: 3} and bench.use(1).models.item() == bench.state.common.item()
    before = bench.state.models[1].item()
    bench.round(0, 1)  # 1 is alike 0: it joins
    assert bench.state.place == {0: 1, 1: 1, 2: 3}
    assert bench.state.models[1].item() == (before - 4) / 2  # 0's alone


def test_stocfl_unites_later_with_the_larger_clusters_model() -> None:
    clients = [on_a_line(x) for x in (2.0, 4.0, 6.0)]
    bench = Bench(StoCFL(pull=0.0), clients, ONE, steps(1))
    bench.round(0)  # a cluster of one …
    bench.round(1, 2)  # … and of two, which have not met the first
    assert bench.state.place == {0: 1, 1: 2, 2: 2}
    larger = bench.state.models[2].item()
    bench.round(0, 1)
    assert bench.state.place == {0: 1, 1: 1, 2: 1}
    trained = [bench.replies[i].model.item() for i in (0, 1)]
    assert larger != bench.state.models[1].item() == pytest.approx(sum(trained) / 2)


def test_fedrc_takes_the_fit_relative_to_the_labels_share() -> None:
    # Two models that fit alike; the label is three times as common in the first: γ ∝ 1 / C = (⅓, 1).
    gamma = responsibilities(torch.zeros(2, 1), None, torch.tensor([[0.75], [0.25]]))
    assert gamma.flatten().tolist() == pytest.approx([0.25, 0.75])
    gamma = responsibilities(torch.tensor([[1.0], [0.0]]), torch.tensor([0.5, 0.5]), torch.tensor([[0.5], [0.5]]))
    assert gamma[0].item() == pytest.approx(math.exp(-1) / (1 + math.exp(-1)))
    table = torch.tensor([[0.2, 0.8], [0.6, 0.4]])
    assert label_shares(table, torch.tensor([1, 0, 2])).tolist() == [
        pytest.approx([0.8, 0.2, 0.0]),
        pytest.approx([0.4, 0.6, 0.0]),
    ]


def test_fedrc_first_round_is_fedems_and_its_sums_are_label_counts() -> None:
    clients = [on_a_line(0.0, 0.0, 2.0), on_a_line(2.0)]
    labels = [[0, 1, 1], [1]]
    ours = Seen(FedRC(), clients, [[0.0], [2.0]], steps(1), labels=labels)
    theirs = Bench(FedEM(), clients, [[0.0], [2.0]], steps(1))
    assert torch.allclose(ours.round().models, theirs.round().models)  # nobody has said how common labels are
    assert ours.replies[0].labels.sum(0).tolist() == pytest.approx([1.0, 2.0])
    shares = ours.state.labels
    assert shares.sum(1).tolist() == pytest.approx([1.0, 1.0])
    # C of label 0 in cluster 0: only A's first sample has it, with s = 1 / (1 + e⁻²); in all: s, s, 1 − s and 1 − s.
    s = 1 / (1 + math.exp(-2))
    assert shares[0, 0].item() == pytest.approx(s / (2 * s + 2 * (1 - s)))


def test_flux_describes_by_moments_and_those_of_each_label() -> None:
    rows = torch.tensor([[0.0, 1.0], [2.0, 1.0]])
    assert described(rows).tolist() == [[1.0, 1.0], [1.0, 0.0]] and described(rows[:0]).tolist() == [[0.0, 0.0]] * 2
    clients = [Quadratic(torch.tensor(p)) for p in ([[5.0, 0.0], [6.0, 0.0]], [[0.0, 5.0]])]
    bench = Seen(Flux(warm_up=0), clients, [[0.0, 0.0]], steps(1), labels=[[0, 0], [1]])
    bench.round()
    told = bench.replies[0]
    assert isinstance(told, Described) and told.moments.tolist() == [[5.5, 0.0], [0.5, 0.0]]
    assert told.by_label.tolist() == [[[5.5, 0.0], [0.5, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]  # a label it has not: zeros


def test_flux_clusters_once_after_its_warm_up_and_places_newcomers_without_labels() -> None:
    points = [[5.0, 0.0], [5.1, 0.0], [0.0, 5.0], [0.0, 5.1], [0.1, 5.1]]
    clients = [Quadratic(torch.tensor([p, p])) for p in points]
    bench = Seen(Flux(warm_up=1, labels=False), clients, [[0.0, 0.0]], steps(1))
    assert bench.round(0, 1, 2, 3).grouping.groups == 0  # FedAvg
    assert bench.state.asked.model.tolist() == pytest.approx([(2.5 + 2.55) / 4, (2.5 + 2.55) / 4])
    state = bench.round(0, 1, 2, 3)
    assert state.grouping.place == {0: 1, 1: 1, 2: 2, 3: 2}
    assert bench.round(0, 4).grouping.place[4] == 2
    assert bench.notes[0]["cluster"] == 1 and bench.notes[4]["cluster"] == 0


def test_density_by_hand() -> None:
    assert knee(np.array([1.0, 1.0, 1.0, 1.0, 9.0])) == 3
    assert knee(np.array([2.0, 2.0])) == 1
    rows = np.array([[0.0], [1.0], [10.0], [11.0], [40.0]])  # nearest neighbours 1, 1, 1, 1, 29
    assert by_density(rows).tolist() == [0, 0, 1, 1, 2]
    assert by_density(rows, scale=9.5).tolist() == [0, 0, 0, 0, 1]
    assert scaled_groups([np.array([[0.0], [2.0]]), np.array([[5.0], [5.0]])]).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [
        (StoCFL, {"tau": 1.5}),
        (StoCFL, {"pull": -1.0}),
        (Flux, {"warm_up": -1}),
        (Flux, {"scale": 0.0}),
        (Flux, {"noise": -1.0}),
    ],
)
def test_fields_out_of_range_are_refused(algorithm: Any, fields: dict[str, float]) -> None:
    with pytest.raises(CoveyError, match=rf"algorithm\.{next(iter(fields))}"):
        algorithm(**fields)


def test_fedrc_refuses_equal_starts() -> None:
    with pytest.raises(CoveyError, match=r"start\.common"):
        Bench(FedRC(), LINE, [[1.0], [1.0]], steps(1))
