"""SCAFFOLD and FedDyn, every step worked out by hand. A has one sample at 0, B one at 6; the loss is ½ (θ − x)²."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from covey import roles
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.feddyn import DynamicState, FedDyn, GlobalModel
from covey.algorithms.scaffold import ControlledModel, Scaffold
from covey.errors import CoveyError
from covey.learn.work import Plan
from support.quadratic_clients import Bench, on_a_line, steps

A, B = on_a_line(0.0), on_a_line(6.0)


def variates(bench: Bench) -> list[float]:
    return [bench.memories[i]["variate"].item() for i in sorted(bench.memories)]


def test_scaffold_two_rounds() -> None:
    bench = Bench(Scaffold(), [A, B], [[2.0]], steps(2))
    # Variates are 0. A: 2 → 1 → ½, so c_A = (2 − ½) / (2·½) = 1.5, the mean of its gradients 2 and 1.
    # B: 2 → 4 → 5, so c_B = (2 − 5) / 1 = −3. x = 2 + (−1.5 + 3) / 2 = 2.75; c = (1.5 − 3) / 2 = −.75.
    state = bench.round()
    assert (state.model.item(), state.variate.item()) == (2.75, -0.75)
    assert variates(bench) == [1.5, -3.0]
    # A: c − c_A = −2.25; 2.75 → 2.75 − ½ (2.75 − 2.25) = 2.5 → 2.5 − ½ (.25) = 2.375.
    #    c_A = 1.5 + .75 + .375 = 2.625, the mean of 2.75 and 2.5.
    # B: c − c_B = 2.25; 2.75 → 2.75 − ½ (−3.25 + 2.25) = 3.25 → 3.25 − ½ (−.5) = 3.5.
    #    c_B = −3 + .75 − .75 = −3, the mean of −3.25 and −2.75.
    # x = 2.75 + (−.375 + .75) / 2 = 2.9375; c = −.75 + (1.125 + 0) / 2 = −.1875.
    state = bench.round()
    assert [bench.asked[i][0].correction.item() for i in (0, 1)] == [-2.25, 2.25]
    assert [r.model.item() for r in bench.replies.values()] == [-0.375, 0.75]
    assert variates(bench) == [2.625, -3.0]
    assert (state.model.item(), state.variate.item()) == (2.9375, -0.1875)


def test_scaffold_with_one_of_two_clients() -> None:
    # As above, but B is away in round 2: x = 2.75 − .375; c moves by |S| / N = ½ of A's 1.125.
    bench = Bench(Scaffold(), [A, B], [[2.0]], steps(2))
    bench.round()
    state = bench.round(0)
    assert (state.model.item(), state.variate.item()) == (2.375, -0.1875)
    assert variates(bench) == [2.625, -3.0]


def test_scaffold_global_step() -> None:
    # Twice the mean change of round 1: 2 + 2 · .75.
    assert Bench(Scaffold(global_lr=2.0), [A, B], [[2.0]], steps(2)).round().model.item() == 3.5


def test_scaffold_server_variate_is_the_mean_over_all_clients_whoever_takes_part() -> None:
    clients = [on_a_line(x, curvature=1 + i / 4) for i, x in enumerate([0.0, 6.0, -3.0, 10.0])]
    bench = Bench(Scaffold(), clients, [[2.0]], steps(3, lr=0.25))
    for present in ((0, 1), (2,), (1, 2), (0, 2)):
        state = bench.round(*present)
        assert state.variate.item() == pytest.approx(sum(variates(bench)) / 4, abs=1e-5)
    assert sorted(bench.memories) == [0, 1, 2]  # client 3 never took part: it has no memory


def test_scaffold_clients_send_what_variates_follow_from() -> None:
    """Of clients that take 1, 2 and 4 steps, whoever comes first: c stays the mean of all c_i, which only they know."""
    clients = [on_a_line(*[x] * n) for x, n in ((0.0, 1), (6.0, 2), (-3.0, 4))]
    for order in ((0, 1, 2), (2, 0, 1), (1, 2)):
        bench = Bench(Scaffold(), clients, [[2.0]], Plan(epochs=1, batch_size=1, lr=0.25))
        for _ in range(3):
            state = bench.round(*order)
            assert [bench.replies[i].reach for i in order] == [0.25 * 2**i for i in order]
            assert state.variate.item() == pytest.approx(sum(variates(bench)) / 3, abs=1e-6)


@pytest.mark.parametrize("reach", [0.0, -1.0, 1e-140, float("nan"), float("inf"), 1, True, "1"])
def test_a_reach_that_is_none_is_refused(reach: Any) -> None:
    with pytest.raises(CoveyError, match="learning rate times a number of steps"):
        roles.Reach().check(reach, None)  # type: ignore[arg-type]


def test_scaffold_with_zero_variates_is_fedavg() -> None:
    scaffold, average = (Bench(a, [A, B], [[2.0]], steps(2)) for a in (Scaffold(), FedAvg(weighting="clients")))
    for _ in range(3):
        state = scaffold.round()
        assert torch.equal(state.model, average.round().model)
        scaffold.memories.clear()
        scaffold.state = ControlledModel(state.model, torch.zeros(1))


def test_scaffold_reaches_the_optimum_that_fedavg_drifts_away_from() -> None:
    # Curvatures 3 and 1: ½ (3 θ + θ − 6) = 0 at 1.5. Clients that train for long end near 0 and 6, which average to 3.
    clients = [on_a_line(0.0, curvature=3.0), on_a_line(6.0)]
    scaffold, average = (Bench(a, clients, [[5.0]], steps(20, lr=0.1)) for a in (Scaffold(), FedAvg()))
    for _ in range(60):
        scaffold.round()
        average.round()
    assert scaffold.state.model.item() == pytest.approx(1.5, abs=1e-3)
    assert average.state.model.item() > 2.5


def gradients(bench: Bench) -> list[float]:
    return [bench.memories[i]["gradient"].item() for i in sorted(bench.memories)]


def test_feddyn_two_rounds() -> None:
    bench = Bench(FedDyn(alpha=1.0), [A, B], [[2.0]], steps(2))
    # A: gradient 2, to 1; then 1 + 1·(1 − 2) = 0: θ_A = 1 and ∇_A = −(1 − 2) = 1 = f_A'(1).
    # B: gradient −4, to 4; then −2 + 1·(4 − 2) = 0: θ_B = 4 and ∇_B = −(4 − 2) = −2 = f_B'(4).
    # h = −½ (−1 + 2) = −½; θ = (1 + 4) / 2 + ½ = 3.
    state = bench.round()
    assert [r.model.item() for r in bench.replies.values()] == [1, 4]
    assert gradients(bench) == [1, -2]
    assert (state.sent.model.item(), state.h.item()) == (3.0, -0.5)
    # A: 3 − ∇_A = 2, to 2; then 2 − 1 + (2 − 3) = 0: θ_A = 2, ∇_A = 1 − (2 − 3) = 2.
    # B: −3 + 2 = −1, to 3.5; then −2.5 + 2 + .5 = 0: θ_B = 3.5, ∇_B = −2 − .5 = −2.5.
    # h = −½ − ½ (−1 + .5) = −.25; θ = 2.75 + .25 = 3.
    state = bench.round()
    train = bench.asked[0][0]
    assert (train.plan.proximal, train.anchor.item(), train.correction.item()) == (1.0, 3.0, -1.0)
    assert gradients(bench) == [2, -2.5]
    assert (state.sent.model.item(), state.h.item()) == (3.0, -0.25)


def test_feddyn_with_one_of_two_clients() -> None:
    # Only A, from 2: θ_A = 1; h = −½ (1 − 2) = ½ (m counts both); θ = 1 − ½.
    state = Bench(FedDyn(alpha=1.0), [A, B], [[2.0]], steps(2)).round(0)
    assert (state.sent.model.item(), state.h.item()) == (0.5, 0.5)


def test_feddyn_fixed_point() -> None:
    # At 3, where f_A' + f_B' = 3 − 3 = 0, with ∇_A = 3, ∇_B = −3 and h = 0, no client wants to move.
    bench = Bench(FedDyn(alpha=0.5), [A, B], [[3.0]], steps(4))
    bench.memories = {0: {"gradient": torch.tensor([3.0])}, 1: {"gradient": torch.tensor([-3.0])}}
    state = bench.round()
    assert (state.sent.model.item(), state.h.item()) == (3.0, 0.0)
    assert gradients(bench) == [3, -3]


def test_feddyn_reaches_the_optimum_of_unequal_clients() -> None:
    clients = [on_a_line(0.0, curvature=3.0), on_a_line(6.0)]  # optimum 1.5, as above
    bench = Bench(FedDyn(alpha=1.0), clients, [[5.0]], steps(40, lr=0.2))
    for _ in range(60):
        state = bench.round()
        assert state.h.item() == pytest.approx(sum(gradients(bench)) / 2, abs=1e-4)  # h is the mean of the ∇_i
    assert state.sent.model.item() == pytest.approx(1.5, abs=1e-3)
    assert gradients(bench) == pytest.approx([4.5, -4.5], abs=1e-2)  # ∇f_i at the optimum


def test_feddyn_that_nobody_answers_stays() -> None:
    bench = Bench(FedDyn(), [A, B], [[2.0]], steps(1))
    bench.state = DynamicState(GlobalModel(torch.tensor([2.0])), torch.tensor([7.0]))
    assert bench.algorithm.aggregate(None, bench.state, iter(())) is bench.state  # type: ignore[arg-type]


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_feddyn_refuses_an_alpha_it_cannot_divide_by(alpha: float) -> None:
    with pytest.raises(CoveyError, match=r"algorithm\.alpha"):
        FedDyn(alpha=alpha)


def test_scaffold_refuses_what_its_variates_cannot_be_read_from() -> None:
    with pytest.raises(CoveyError, match="global_lr"):
        Scaffold(global_lr=0.0)
    for plan in (Plan(momentum=0.9), Plan(lr=0.0)):
        with pytest.raises(CoveyError, match="plain steps"):
            Bench(Scaffold(), [A, B], [[2.0]], plan)
