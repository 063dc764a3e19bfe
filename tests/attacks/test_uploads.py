"""What a client did to a model, read off its messages."""

from __future__ import annotations

import torch

from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.fedem import Components, TrainedComponents
from covey.algorithms.fedsoft import Centres, SoftUpdate
from covey.algorithms.ifca import ClusterModels, ClusterUpdate
from covey.algorithms.personal.fedper import FedPer
from covey.algorithms.personal.layers import SharedModel, TrainedLayers
from covey.algorithms.sattler import ModelChange, NodeModel
from covey.attacks.uploads import upload
from support.quadratic_clients import Bench, Quadratic, steps

NEAR, FAR = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([9.0, 9.0, 9.0])


def test_the_start_is_the_model_that_the_client_names_or_else_the_nearest() -> None:
    both, trained = torch.stack([NEAR, FAR]), NEAR + 0.1
    named = upload(ClusterModels(both), ClusterUpdate(trained, 1, 5), 3)
    nearest = upload(Centres(both), SoftUpdate(trained, torch.tensor([0.5, 0.5]), 5), 3)
    assert named is not None and torch.equal(named.start, FAR[None])
    assert nearest is not None and torch.equal(nearest.start, NEAR[None])
    torch.testing.assert_close(nearest.change, torch.full((3,), 0.1))


def test_a_change_is_added_to_the_model_and_components_stay_several() -> None:
    moved = upload(NodeModel(NEAR, 0), ModelChange(torch.ones(3), 5), 3)
    assert moved is not None and torch.equal(moved.end, NEAR[None] + 1) and torch.equal(moved.change, torch.ones(3))
    both = torch.stack([NEAR, FAR])
    mixed = upload(Components(both), TrainedComponents(both + 1, 5), 3)
    assert mixed is not None and mixed.end.shape == (2, 3) and torch.equal(mixed.change, torch.full((3,), 2.0))


def test_shared_layers_are_read_with_the_personal_ones_of_the_start() -> None:
    bench = Bench(FedPer(), [Quadratic(torch.zeros(1, 3))], [[5.0, 6.0, 7.0]], steps(1), personal=[False, False, True])
    seen = upload(SharedModel(NEAR[:2]), TrainedLayers(NEAR[:2] + 1, 5), 3, bench.setting)
    assert seen is not None and seen.start.tolist() == [[1.0, 2.0, 7.0]] and seen.change.tolist() == [1.0, 1.0, 0.0]
    assert upload(SharedModel(NEAR[:2]), TrainedLayers(NEAR[:2], 5), 3) is None


def test_what_is_not_there_in_the_clear_is_no_upload() -> None:
    assert upload(None, LocalModel(NEAR, 5), 3) is None
    assert upload(GlobalModel(NEAR), None, 3) is None
    assert upload(GlobalModel(NEAR), LocalModel(NEAR, 5), 7) is None  # models of another size
