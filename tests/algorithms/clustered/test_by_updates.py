"""Groups by updates and models, worked out by hand. A sample x has the loss ½ ‖θ − x‖²; a step of ½ takes θ half way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from covey.algorithms.clustered.fedgroup import FedGroup, decomposed_cosines, mixed
from covey.algorithms.clustered.fesem import FeSEM
from covey.algorithms.clustered.flhc import FLHC
from covey.algorithms.fedavg import FedAvg
from covey.errors import CoveyError
from covey.randomness import generator
from support.quadratic_clients import Bench, Quadratic, on_a_line, steps

LINE = [on_a_line(-4.0), on_a_line(-6.0), on_a_line(4.0), on_a_line(8.0, 8.0, 8.0)]
TWO = [[0.0], [0.0]]  # two clusters, one start


def test_flhc_is_fedavg_until_its_warm_up_ends() -> None:
    late, average = (Bench(a, LINE, TWO, steps(1)) for a in (FLHC(warm_up=2), FedAvg()))
    for _ in range(2):
        assert torch.equal(late.round().reference, average.round().model)
    assert late.state.groups == 0
    assert late.round().groups == 2


@pytest.mark.parametrize("fields", [{}, {"metric": "cosine", "linkage": "average"}, {"threshold": 4.5}], ids=str)
def test_flhc_groups_updates_and_goes_on_within_the_groups(fields: dict[str, Any]) -> None:
    # From 0: updates −2, −3, 2, 4. Groups {−2, −3} and {2, 4}; by samples 1, 1 and 1, 3: −2.5 and 14 / 4.
    bench = Bench(FLHC(warm_up=0, **fields), LINE, TWO, steps(1))
    state = bench.round()
    assert state.place == {0: 1, 1: 1, 2: 2, 3: 2}
    assert state.models.flatten().tolist() == [-2.5, 3.5]
    assert state.directions.flatten().tolist() == [-2.5, 3.0]  # mean updates, each client once
    # Next: −2.5 → −3.25 and −4.25; 3.5 → 3.75 and 5.75.
    assert bench.round().models.flatten().tolist() == [-3.75, (3.75 + 3 * 5.75) / 4]
    assert [bench.notes[i]["cluster"] for i in range(4)] == [1, 1, 2, 2]
    assert bench.use(3).models.tolist() == bench.state.models[1:].tolist()


@pytest.mark.parametrize(
    "algorithm", [FLHC(warm_up=0), FLHC(warm_up=0, metric="cosine", linkage="average"), FedGroup()], ids=str
)
def test_newcomers_train_the_reference_and_join_the_nearest_group(algorithm: Any) -> None:
    bench = Bench(algorithm, LINE, TWO, steps(1))
    bench.round(0, 2)
    assert bench.use(3).models.tolist() == [[0.0]]  # no group yet
    before = bench.state.models.flatten().tolist()
    bench.round(1, 3)
    assert bench.state.models.flatten().tolist() == before  # they were not in the groups that they trained for
    assert bench.state.place == {0: 1, 1: 1, 2: 2, 3: 2}
    assert bench.use(3).models.tolist() == bench.state.models[1:].tolist()


def test_edc_is_the_cosine_to_the_main_directions() -> None:
    # Updates along two axes: the directions are the axes.
    updates = torch.tensor([[9.0, 0.0, 0.0], [8.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 4.0, 0.0]])
    described = abs(decomposed_cosines(updates, 2, generator(0, "test")))
    assert described.flatten().tolist() == pytest.approx([1, 0, 1, 0, 0, 1, 0, 1], abs=1e-5)


def test_fedgroup_groups_by_direction_whatever_the_length() -> None:
    clients = [Quadratic(torch.tensor([p])) for p in ([1.0, 0.1], [9.0, 0.0], [0.0, 1.0], [-0.1, 7.0])]
    state = Bench(FedGroup(), clients, [[0.0, 0.0]] * 2, steps(1)).round()
    assert state.place[0] == state.place[1] != state.place[2] == state.place[3]


def test_fedgroup_mixes_in_the_other_groups_directions() -> None:
    # w + η (sum of the others' unit vectors): (3, 4) has the unit (.6, .8).
    assert mixed(torch.tensor([[3.0, 4.0], [2.0, 0.0]]), 0.5).tolist() == [
        pytest.approx([3.5, 4.0]),
        pytest.approx([2.3, 0.4]),
    ]
    assert FedGroup().averages and not FedGroup(mixing=0.1).averages


def test_fesem_takes_the_nearest_centre_and_moves_it_to_its_clients() -> None:
    # Models −2, −3, 2, 4: k-means {−2, −3}, {2, 4}: centres −2.5 and 3.
    bench = Bench(FeSEM(), LINE, TWO, steps(1))
    state = bench.round()
    assert state.models.flatten().tolist() == [-2.5, 3.0] and state.reference.tolist() == [0.25]
    # −3.25, −4.25 and 3.5, 5.5 are nearest to where they were.
    assert bench.round().models.flatten().tolist() == [-3.75, 4.5]
    # A newcomer begins between the centres.
    assert Bench(FeSEM(), LINE, TWO, steps(1)).use(0).models.tolist() == [[0.0]]


def test_fesem_lets_clients_change_over() -> None:
    bench = Bench(FeSEM(), LINE, TWO, steps(1))
    bench.round()
    bench.clients = [on_a_line(9.0), *LINE[1:]]
    bench.round()  # −2.5 → 3.25, nearer to 3 than to −2.5
    assert bench.state.place == {0: 2, 1: 1, 2: 2, 3: 2}


@pytest.mark.parametrize(
    "algorithm", [FLHC(warm_up=0, min_group=2), FedGroup(min_group=2), FeSEM(min_group=2)], ids=str
)
def test_a_group_that_is_too_small_gives_nobody_away(algorithm: Any) -> None:
    bench = Bench(algorithm, LINE[1:], TWO, steps(1))  # −6 alone
    state = bench.round()
    assert state.models[0].tolist() == [0.0] and state.models[1].item() > 0


@pytest.mark.parametrize("algorithm", [FLHC(warm_up=0), FedGroup(), FeSEM()], ids=str)
def test_a_round_without_replies_changes_nothing_and_one_client_is_a_group(algorithm: Any) -> None:
    bench = Bench(algorithm, LINE, TWO, steps(1))
    bench.round(3)
    assert bench.state.groups == 1
    with pytest.raises(CoveyError, match="shared layers"):
        Bench(algorithm, [Quadratic(torch.zeros(1, 2))], [[0.0, 0.0]], steps(1), personal=[True, False])


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [
        (FLHC, {"metric": "l3"}),
        (FLHC, {"linkage": "nearest"}),
        (FLHC, {"linkage": "ward", "metric": "cosine"}),
        (FLHC, {"warm_up": -1}),
        (FLHC, {"threshold": -1.0}),
        (FedGroup, {"directions": -1}),
        (FedGroup, {"mixing": -0.1}),
    ],
)
def test_fields_out_of_range_are_refused(algorithm: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(CoveyError, match=r"algorithm\."):
        algorithm(**fields)
