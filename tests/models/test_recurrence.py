"""The GRU's recurrence and its written-out derivative, against the equations step by step under autograd."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

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


class Kernels(TorchDispatchMode):
    """Counts operations that compute; on a GPU each is a launch, in a captured step a node."""

    views: ClassVar = "view unbind split expand transpose permute slice select unsqueeze squeeze t detach alias".split()  # noqa: SIM905
    rooms: ClassVar = ("_unsafe_view", "split_with_sizes", "new_empty", "empty")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.overloadpacket.__name__ not in (*self.views, *self.rooms)
        return function(*args, **(kwargs or {}))


def test_a_training_step_of_many_models_is_nine_kernels_a_token() -> None:
    x, w, b = given(2)

    def one(x: Tensor, present: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return loss(last_state(x, present, w, b))

    counts = []
    for tokens in (2, T):
        with Kernels() as kernels:
            vmap(grad(one, argnums=(0, 2, 3)))(x[:, :, :tokens], PRESENT[:, :tokens].expand(2, -1, -1), w, b)
        counts.append(kernels.count)
    assert counts[1] - counts[0] == 9 * (T - 2)
