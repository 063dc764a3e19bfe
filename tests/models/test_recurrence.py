"""The GRU's recurrence and its written-out derivative, against the equations step by step under autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from covey.errors import CoveyError
from covey.models.recurrence import last_state

B, T, H = 3, 5, 4
PRESENT = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)


def by_steps(x: Tensor, present: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    h = x.new_zeros(x.shape[0], H)
    for i in range(T):
        own, at = h @ weight.T + bias, x[:, i]
        reset, update = torch.sigmoid(at[:, : 2 * H] + own[:, : 2 * H]).chunk(2, dim=1)
        candidate = torch.tanh(at[:, 2 * H :] + reset * own[:, 2 * H :])
        h = torch.where(present[:, i, None], (1 - update) * candidate + update * h, h)
    return h


def given(models: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    shapes = ((models, B, T, 3 * H), (models, 3 * H, H), (models, 3 * H))
    return tuple(torch.randn(*shape, dtype=torch.float64) for shape in shapes)


def loss(states: Tensor) -> Tensor:
    return (states * torch.arange(1.0, states.numel() + 1).view_as(states)).sum()


def test_state_and_derivative_are_those_of_the_equations() -> None:
    arguments = [[one[0].clone().requires_grad_() for one in given(1)] for _ in range(2)]
    (x, w, b), (x2, w2, b2) = arguments
    ours, theirs = last_state(x, PRESENT, w, b), by_steps(x2, PRESENT, w2, b2)
    torch.testing.assert_close(ours, theirs)
    loss(ours).backward()  # type: ignore[no-untyped-call]
    loss(theirs).backward()  # type: ignore[no-untyped-call]
    for a, e in zip(*arguments, strict=True):
        torch.testing.assert_close(a.grad, e.grad)
    with torch.no_grad():
        torch.testing.assert_close(last_state(x, PRESENT, w, b), theirs)


def test_many_models_and_many_samples_side_by_side() -> None:
    x, w, b = given(2)
    everyone = PRESENT.expand(2, B, T)

    def gradients(states: object) -> object:
        return grad(lambda *a: loss(states(*a)), argnums=(0, 2, 3))  # type: ignore[operator]

    for ours, theirs in zip(*(vmap(gradients(f))(x, everyone, w, b) for f in (last_state, by_steps)), strict=True):
        torch.testing.assert_close(ours, theirs)
    alone = [
        vmap(vmap(gradients(f), in_dims=(0, 0, None, None)))(x[:, :, None], everyone[:, :, None], w, b)
        for f in (last_state, by_steps)
    ]
    for ours, theirs in zip(*alone, strict=True):  # a gradient for each sample of each model
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(vmap(last_state)(x, everyone, w, b), vmap(by_steps)(x, everyone, w, b))


def test_a_second_derivative_is_refused_in_words() -> None:
    x, w, b = (one[0].requires_grad_() for one in given(1))
    (first,) = torch.autograd.grad(loss(last_state(x, PRESENT, w, b)), w, create_graph=True)
    with pytest.raises(CoveyError, match="no second derivative"):
        first.sum().backward()  # type: ignore[no-untyped-call]
