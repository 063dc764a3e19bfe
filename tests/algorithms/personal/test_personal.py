"""Personalised methods, every step worked out by hand. A sample x has the loss ½ ‖θ − x‖²; a step takes all samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from covey.algorithms.fedavg import FedAvg
from covey.algorithms.personal.apfl import APFL
from covey.algorithms.personal.ditto import Ditto
from covey.algorithms.personal.fedavg_ft import FineTuned
from covey.algorithms.personal.fedper import FedPer
from covey.algorithms.personal.fedrep import FedRep
from covey.algorithms.personal.layers import TrainedLayers
from covey.algorithms.personal.perfedavg import PerFedAvg
from covey.errors import CoveyError
from covey.learn.work import Plan
from support.quadratic_clients import Bench, Quadratic, on_a_line, steps

A, B = on_a_line(0.0), on_a_line(4.0, 4.0, 4.0)
FLAT = [Quadratic(torch.tensor([[0.0, 0.0]])), Quadratic(torch.tensor([[4.0, 8.0]]))]


def test_the_shared_model_of_fine_tuning_and_ditto_is_fedavgs() -> None:
    average = Bench(FedAvg(), [A, B], [[2.0]], steps(1))
    others = [Bench(a, [A, B], [[2.0]], steps(1)) for a in (FineTuned(), Ditto(pull=3.0))]
    for _ in range(3):
        expected = average.round().model
        assert all(torch.equal(other.round().model, expected) for other in others)


def test_fine_tuning_goes_on_from_the_average() -> None:
    # One step of ½: A 1, B 3, by samples (1 + 9) / 4 = 2.5. From there two epochs of one step of ¼: A ← ¾ · ¾ · 2.5.
    bench = Bench(FineTuned(epochs=2, lr=0.25), [A, B], [[2.0]], steps(1))
    bench.round()
    assert bench.use(0).models.tolist() == [[pytest.approx(2.5 * 9 / 16)]]
    assert bench.use(1).models.tolist() == [[pytest.approx(4 - 1.5 * 9 / 16)]]
    assert bench.use(0).index is None and bench.memories == {}
    assert Bench(FineTuned(epochs=0), [A], [[2.0]], steps(1)).use(0).models.tolist() == [[2.0]]


def test_ditto_pulls_each_clients_model_to_the_one_it_was_sent() -> None:
    # λ = 1, step ½: v ← v − ½ ((v − x) + (v − w)). A: w = v = 2, x = 0: 1. B: x = 4: 3. w becomes 2.5.
    bench = Bench(Ditto(pull=1.0), [A, B], [[2.0]], steps(1))
    assert bench.use(0).models.tolist() == [[2.0]]
    bench.round()
    assert [bench.use(i).models.item() for i in (0, 1)] == [1.0, 3.0]
    # Next round, anchor 2.5: A 1 − ½ (1 + (1 − 2.5)) = 1.25; B 3 − ½ (−1 + .5) = 3.25.
    bench.round()
    assert [bench.use(i).models.item() for i in (0, 1)] == [1.25, 3.25]


def test_ditto_without_pull_is_local_training_beside_fedavg() -> None:
    bench = Bench(Ditto(pull=0.0), [A, B], [[2.0]], steps(1))
    for _ in range(3):
        bench.round()
    assert bench.use(1).models.item() == 4 - 2 * 0.5**3


def test_fedper_shares_the_first_weight_and_keeps_the_second() -> None:
    # Step ½ from (2, 2): A (1, 1), B (3, 5). Shared: mean 2; each keeps its second.
    bench = Bench(FedPer(), FLAT, [[2.0, 2.0]], steps(1), personal=[False, True])
    assert bench.round().model.tolist() == [2.0]
    assert [r.model.tolist() for r in bench.replies.values()] == [[1.0], [3.0]]  # nothing else crosses the wire
    assert bench.use(0).models.tolist() == [[2.0, 1.0]] and bench.use(1).models.tolist() == [[2.0, 5.0]]
    bench.round()  # from (2, 1) and (2, 5)
    assert bench.use(0).models.tolist() == [[2.0, 0.5]] and bench.use(1).models.tolist() == [[2.0, 6.5]]


def test_personal_weights_between_shared_ones_come_back_to_their_places() -> None:
    clients = [
        Quadratic(torch.tensor([[0.0, 2.0, 4.0, 6.0, 8.0]])),
        Quadratic(torch.tensor([[4.0, 4.0, 4.0, 4.0, 4.0]])),
    ]
    personal = [True, False, True, True, False]
    bench = Bench(FedPer(), clients, [[0.0] * 5], steps(1), personal=personal)
    assert bench.use(0).models.tolist() == [[0.0] * 5]
    assert bench.round().model.tolist() == [1.5, 3.0]  # of ½ · (2, 8) and ½ · (4, 4)
    assert bench.use(0).models.tolist() == [[0.0, 1.5, 2.0, 3.0, 3.0]]
    assert bench.use(1).models.tolist() == [[2.0, 1.5, 2.0, 2.0, 3.0]]
    trained = Bench(FedRep(), clients, [[0.0] * 5], steps(1), personal=personal)
    assert trained.round().model.tolist() == [1.5, 3.0]
    assert trained.use(0).models.tolist() == [[0.0, 1.5, 2.0, 3.0, 3.0]]


def test_fedrep_trains_the_head_alone_and_then_the_rest() -> None:
    clients = [Quadratic(torch.tensor([[0.0, 0.0]])), Quadratic(torch.tensor([[4.0, 8.0], [4.0, 8.0]]))]
    plan = Plan(lr=0.5, epochs=1, batch_size=0)
    bench = Bench(FedRep(head_epochs=2), clients, [[2.0, 2.0]], plan, personal=[False, True])
    bench.round()
    head, body = bench.asked[1]
    assert head.moves.tolist() == [False, True] and body.moves.tolist() == [True, False]
    assert body.start.tolist() == [2.0, 8 - 6 / 4]  # two steps of the head, none of the rest
    assert bench.replies[1].model.tolist() == [3.0]
    assert bench.state.model.tolist() == [2.0]
    assert bench.use(1).models.tolist() == [[2.0, 6.5]]


def test_apfl_mixes_its_own_model_with_its_copy_of_the_global_one() -> None:
    # α = ½, w = v = 2, x = 0, step ½. Step 1: v̄ = 2, ∇ = 2: w 1, v 2 − ½·½·2 = 1.5.
    # Step 2: v̄ = 1.25: w .5, v 1.5 − ½·½·1.25 = 1.1875.
    bench = Bench(APFL(adaptive=False), [A], [[2.0]], steps(2))
    assert bench.use(0).models.tolist() == [[2.0]]
    assert bench.round().model.tolist() == [0.5]
    assert bench.memories[0]["model"].tolist() == [1.1875]
    assert bench.use(0).models.tolist() == [[(0.5 + 1.1875) / 2]]


def test_apfl_adapts_its_share_once_a_round() -> None:
    # Round 1: v = w, so α stays. Round 2, first step: ⟨v − w, −η ∇⟩ with v = 1.1875, w = .5, v̄ = .84375:
    # .6875 · (−½ · .84375) = −.2900390625, and that much falls off ½.
    bench = Bench(APFL(), [A], [[2.0]], steps(2))
    bench.round()
    assert bench.memories[0]["alpha"] == 0.5
    bench.round()
    assert bench.memories[0]["alpha"] == pytest.approx(0.5 - 0.2900390625)


def test_apfl_with_no_share_of_its_own_is_fedavg() -> None:
    mixed = Bench(APFL(alpha=0.0, adaptive=False), [A, B], [[2.0]], steps(2))
    average = Bench(FedAvg(weighting="clients"), [A, B], [[2.0]], steps(2))
    for _ in range(2):
        assert torch.equal(mixed.round().model, average.round().model)
    assert mixed.use(0).models.tolist() == mixed.state.model[None].tolist()


def test_perfedavg_takes_the_gradient_after_a_step() -> None:
    # α = ¼, β = ½, x = 0: w̃ = ¾ w, w ← w − ½ · ¾ w = ⅝ w. Twice: 25/64.  It predicts after one more step of ¼.
    bench = Bench(PerFedAvg(inner_lr=0.25), [A], [[2.0]], steps(2))
    assert bench.round().model.item() == pytest.approx(2 * 25 / 64)
    assert bench.use(0).models.item() == pytest.approx(2 * 25 / 64 * 0.75)


def test_steps_run_through_reshuffled_epochs() -> None:
    bench = Bench(PerFedAvg(), [on_a_line(*range(5))], [[0.0]], Plan(lr=0.1, epochs=2, batch_size=2))
    bench.round()
    first = [work.on.tolist() for work in bench.asked[0][::2]]
    assert [len(batch) for batch in first] == [2, 2, 1, 2, 2, 1]
    assert all(sorted(i for batch in epoch for i in batch) == list(range(5)) for epoch in (first[:3], first[3:]))
    assert len({work.purpose for work in bench.asked[0]}) == 12


@pytest.mark.parametrize("algorithm", [FedPer(), FedRep()])
@pytest.mark.parametrize("personal", [[True, True], [False, False]])
def test_something_must_be_shared_and_something_kept(algorithm: Any, personal: list[bool]) -> None:
    with pytest.raises(CoveyError, match=r"layers\.personal"):
        Bench(algorithm, FLAT, [[1.0, 1.0]], steps(1), personal=personal)


def test_a_reply_with_other_layers_is_refused() -> None:
    setting = Bench(FedPer(), FLAT, [[2.0, 2.0]], steps(1), personal=[False, True]).setting
    with pytest.raises(CoveyError, match="expected the 1 shared"):
        TrainedLayers(torch.zeros(2), 1).check(setting)


@pytest.mark.parametrize("algorithm", [APFL(), PerFedAvg()])
def test_momentum_is_refused_where_steps_are_taken_one_by_one(algorithm: Any) -> None:
    with pytest.raises(CoveyError, match=r"training\.momentum"):
        Bench(algorithm, [A], [[1.0]], Plan(momentum=0.9))


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [
        (FineTuned, {"epochs": -1}),
        (FineTuned, {"lr": float("nan")}),
        (Ditto, {"pull": -1.0}),
        (FedRep, {"head_epochs": -1}),
        (APFL, {"alpha": 1.5}),
        (PerFedAvg, {"inner_lr": 0.0}),
        (PerFedAvg, {"adapt": -1}),
    ],
)
def test_fields_out_of_range_are_refused(algorithm: Any, fields: dict[str, float]) -> None:
    with pytest.raises(CoveyError, match=rf"algorithm\.{next(iter(fields))}"):
        algorithm(**fields)
