"""FedEM and FedSoft, every step worked out by hand. A sample x has the loss ½ (θ − x)²."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from covey.algorithms.fedavg import FedAvg
from covey.algorithms.fedem import FedEM, responsibilities
from covey.algorithms.fedprox import FedProx
from covey.algorithms.fedsoft import FedSoft
from covey.errors import CoveyError
from support.quadratic_clients import Bench, Quadratic, on_a_line, steps

S = 1 / (1 + math.exp(-2))  # what a sample at 0 gives to a component at 0 rather than at 2: losses 0 and 2


def test_responsibilities_weigh_the_fit_with_the_mixture() -> None:
    equal = torch.zeros(2, 3)
    assert responsibilities(equal, torch.tensor([0.75, 0.25]))[:, 0].tolist() == pytest.approx([0.75, 0.25])
    assert responsibilities(equal, None).tolist() == [[0.5] * 3] * 2
    # ∝ π exp(−ℓ): ¾ e^−1 and ¼ e^−0
    first = 0.75 * math.exp(-1) / (0.75 * math.exp(-1) + 0.25)
    assert responsibilities(torch.tensor([[1.0], [0.0]]), torch.tensor([0.75, 0.25]))[0, 0].item() == pytest.approx(
        first
    )
    # A component with weight 0 stays out, and losses too large for exp alone do no harm.
    assert responsibilities(torch.tensor([[0.0], [900.0]]), torch.tensor([0.0, 1.0])).flatten().tolist() == [0.0, 1.0]


def test_fedem_one_round() -> None:
    # Components at 0 and 2. A has samples 0, 0, 2: q_0 = s, s, 1 − s, so π_0 = (1 + s) / 3. One step of ½:
    #   θ_0 = 0 − ½ · (1 − s)(0 − 2) / 3 = (1 − s) / 3;   θ_1 = 2 − ½ · 2 (1 − s)(2 − 0) / 3 = 2 − 2 (1 − s) / 3.
    # B has one sample 2: q_0 = 1 − s; θ_0 = 0 − ½ (1 − s)(0 − 2) = 1 − s; θ_1 = 2.
    # By samples, 3 and 1: θ_0 = (1 − s + 1 − s) / 4 = (1 − s) / 2;  θ_1 = (6 − 2 (1 − s) + 2) / 4 = 2 − (1 − s) / 2.
    bench = Bench(FedEM(), [on_a_line(0.0, 0.0, 2.0), on_a_line(2.0)], [[0.0], [2.0]], steps(1))
    state = bench.round()
    assert bench.replies[0].models.flatten().tolist() == pytest.approx([(1 - S) / 3, 2 - 2 * (1 - S) / 3])
    assert bench.replies[1].models.flatten().tolist() == pytest.approx([1 - S, 2.0])
    assert state.models.flatten().tolist() == pytest.approx([(1 - S) / 2, 2 - (1 - S) / 2])
    assert bench.memories[0]["mixture"].tolist() == pytest.approx([(1 + S) / 3, (2 - S) / 3])
    assert bench.memories[1]["mixture"].tolist() == pytest.approx([1 - S, S])
    assert bench.notes[0]["membership"] == pytest.approx([(1 + S) / 3, (2 - S) / 3])
    assert [bench.notes[i]["cluster"] for i in (0, 1)] == [0, 1]


def test_fedem_second_round_starts_from_the_clients_own_mixture() -> None:
    bench = Bench(FedEM(), [on_a_line(2.0), on_a_line(0.0)], [[0.0], [2.0]], steps(1, lr=0.0))
    bench.round()
    bench.round()
    # Models stay (lr 0), so B's mirror A's: π_0 ∝ (1 − s)·e^−2 against s·1, and 1 − s = s e^−2.
    first = (1 - S) * math.exp(-2) / ((1 - S) * math.exp(-2) + S)
    assert bench.memories[0]["mixture"].tolist() == pytest.approx([first, 1 - first])
    assert bench.memories[1]["mixture"].tolist() == pytest.approx([1 - first, first])


def test_fedem_trains_all_components_in_one_request_with_streams_of_their_own() -> None:
    bench = Bench(FedEM(), [on_a_line(0.0)], [[0.0], [2.0], [4.0]], steps(1))
    bench.round()
    _, trains = bench.asked[0]
    assert isinstance(trains, list) and len({train.purpose for train in trains}) == 3


def test_fedem_predicts_with_its_mixture_also_before_it_took_part() -> None:
    bench = Bench(FedEM(), [on_a_line(2.0), on_a_line(0.0)], [[0.0], [2.0]], steps(1, lr=0.0))
    new = bench.use(0)
    assert new.index is None and new.weights.tolist() == pytest.approx([1 - S, S])
    bench.round()
    bench.round()
    assert bench.use(0).weights is bench.memories[0]["mixture"]


def test_fedem_with_one_component_is_fedavg() -> None:
    clients = [on_a_line(0.0), on_a_line(4.0, 7.0, 1.0)]
    one, average = (Bench(a, clients, [[2.0]], steps(2)) for a in (FedEM(), FedAvg()))
    for _ in range(3):
        assert torch.equal(one.round().models[0], average.round().model)


A, B = (
    on_a_line(0.0, 1.0, 4.0, 1.0),
    on_a_line(4.0, 4.0),
)  # against centres 0 and 4: three quarters and none nearer to 0


def test_fedsoft_one_round() -> None:
    # A: u = (¾, ¼), so it starts at c̄ = 1, pulled to it with λ = 1; its samples' mean is 1.5. Two steps of ½:
    #   1 − ½ (−.5 + 0) = 1.25, then −.25 + 1·(1.25 − 1) = 0. B: u = (0, 1), starts and stays at 4.
    # Weights u·n: centre 0 gets A's 3 and B's 0, so 1.25; centre 1 gets 1 and 2: (1.25 + 8) / 3.
    bench = Bench(FedSoft(pull=1.0, smoother=0.0), [A, B], [[0.0], [4.0]], steps(2))
    state = bench.round()
    assert bench.replies[0].importance.tolist() == [0.75, 0.25]
    assert [r.model.item() for r in bench.replies.values()] == [1.25, 4.0]
    assert state.models.flatten().tolist() == pytest.approx([1.25, 9.25 / 3])
    assert bench.notes[0]["membership"] == [0.75, 0.25]
    assert [bench.notes[i]["cluster"] for i in (0, 1)] == [0, 1]
    assert bench.use(0).models.tolist() == [[1.25]]


def test_fedsoft_smoothes_and_scales_importance() -> None:
    # Nobody nearer to 0: shares 0 and 1, smoothed .1 and 1, scaled 1/11 and 10/11.
    losses = torch.tensor([[8.0, 8.0], [0.0, 0.0]])
    assert FedSoft(smoother=0.1).importance(losses).tolist() == pytest.approx([1 / 11, 10 / 11])


def test_fedsoft_one_anchor_is_the_papers_sum_of_penalties() -> None:
    # ∇ λ/2 Σ_s u_s ‖w − c_s‖² must be what the proximal term around c̄ adds, anywhere.
    torch.manual_seed(0)
    centres, u, w = torch.randn(3, 4), torch.tensor([0.5, 0.3, 0.2]), torch.randn(4, requires_grad=True)
    (0.7 / 2 * (u[:, None] * (w - centres) ** 2).sum()).backward()
    assert w.grad is not None
    assert torch.allclose(w.grad, 0.7 * (w.detach() - u @ centres), atol=1e-6)


def test_fedsoft_estimates_importance_every_interval() -> None:
    bench = Bench(FedSoft(interval=3), [A, B], [[0.0], [4.0]], steps(1))
    estimated = []
    for _ in range(5):
        bench.round(0)
        estimated.append(len(bench.asked[0]) == 2)
    assert estimated == [True, False, False, True, False]
    bench.round(1)  # round 6 is B's first: it has no estimate yet
    assert len(bench.asked[1]) == 2


def test_fedsoft_draws_by_importance_and_size() -> None:
    # Centre 0 is worth drawing A only; centre 1 draws A with ⅓, B with ⅔: the mean of 1.25 and 4, 9.25 / 3, in the long run.
    draws = 20_000
    bench = Bench(FedSoft(pull=1.0, smoother=0.0, selection=draws), [A, B], [[0.0], [4.0]], steps(2))
    first, second = bench.round().models.flatten().tolist()
    assert first == 1.25
    deviation = 2.75 * math.sqrt(2 / 9 / draws)
    assert abs(second - 9.25 / 3) < 5 * deviation
    # Slots are drawn one by one, with replacement: a single slot holds one client's model.
    bench = Bench(FedSoft(pull=1.0, smoother=0.0, selection=1), [A, B], [[0.0], [4.0]], steps(2))
    assert bench.round().models[1].item() in (1.25, 4.0)


def test_fedsoft_keeps_a_centre_that_concerns_nobody() -> None:
    for selection in (0, 2):
        bench = Bench(FedSoft(smoother=0.0, selection=selection), [B], [[-9.0], [4.0]], steps(1))
        assert bench.round().models[0].item() == -9.0


def test_fedsoft_with_one_cluster_is_fedprox() -> None:
    clients = [on_a_line(0.0), on_a_line(4.0, 7.0, 1.0)]
    soft, prox = (Bench(a, clients, [[2.0]], steps(3)) for a in (FedSoft(pull=0.5), FedProx(mu=0.5)))
    for _ in range(3):
        assert torch.equal(soft.round().models[0], prox.round().model)


@pytest.mark.parametrize(
    "fields",
    [{"pull": -1.0}, {"pull": float("nan")}, {"interval": 0}, {"selection": -1}, {"smoother": 1.5}],
)
def test_fedsoft_refuses_fields_out_of_range(fields: dict[str, float]) -> None:
    with pytest.raises(CoveyError, match=rf"algorithm\.{next(iter(fields))}|algorithm\.selection"):
        FedSoft(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", [FedEM(), FedSoft()])
def test_equal_starts_and_shared_layers_are_refused(algorithm: object) -> None:
    with pytest.raises(CoveyError, match=r"start\.common"):
        Bench(algorithm, [A], [[1.0], [1.0]], steps(1))
    flat = [Quadratic(torch.zeros(1, 2))]
    with pytest.raises(CoveyError, match="shared layers"):
        Bench(algorithm, flat, [[1.0, 1.0], [2.0, 2.0]], steps(1), personal=[True, False])


def test_a_drawing_server_is_reproducible() -> None:
    fresh = Bench(FedSoft(selection=3), [A, B], [[0.0], [4.0]], steps(2))
    again = replace(fresh, memories={}, rounds=0)
    assert np.array_equal(fresh.round().models.numpy(), again.round().models.numpy())
