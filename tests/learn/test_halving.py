"""Pooling by slices on a CPU: torch's own values and gradients, and nothing else's place taken."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional as F

from covey.learn.flat import Network
from covey.learn.kernels.convolutions.halving import Halving, Largest, halve
from covey.learn.kernels.loop import Loop
from covey.learn.samples import Samples


@pytest.mark.parametrize("shape", [(3, 2, 8, 6), (2, 1, 5, 7), (1, 3, 2, 2), (4, 2, 9, 4), (0, 2, 4, 4)])
def test_values_and_gradients_are_torchs_to_the_bit_also_of_equal_numbers(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape).mul(2).round().requires_grad_()  # most windows have the largest number twice
    expected, found = F.max_pool2d(x, 2), Halving(2)(x)
    delta = torch.randn_like(expected)
    assert torch.equal(found, expected)
    assert torch.equal(torch.autograd.grad(found, x, delta)[0], torch.autograd.grad(expected, x, delta)[0])


def test_what_is_not_a_number_stays_so() -> None:
    x = torch.zeros(1, 1, 2, 4)
    x[0, 0, 1, 2] = float("nan")
    assert Halving(2)(x).isnan().tolist() == [[[[False, True]]]]


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(3, 4, 4),
        torch.randn(2, 3, 4, 4, dtype=torch.float64),
    ],
    ids=["channels last", "one image", "float64"],
)
def test_what_torch_is_better_at_is_left_to_it(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Largest, "apply", lambda x: pytest.fail("was asked"))
    assert torch.equal(Halving(2)(x), F.max_pool2d(x, 2))


def test_gradients_of_single_samples_go_through() -> None:
    x, pool = torch.randn(5, 2, 6, 6), Halving(2)

    def loss(one: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = pool(one[None]).square().sum()
        return out

    whole = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(F.max_pool2d(whole, 2).square().sum(), whole)
    assert torch.equal(vmap(grad(loss))(x), expected)


def test_only_what_computes_the_same_is_replaced() -> None:
    watched = nn.MaxPool2d(2)
    watched.register_forward_hook(lambda *_: None)
    others = [nn.MaxPool2d(3), nn.MaxPool2d(2, 1), nn.MaxPool2d(2, padding=1), nn.MaxPool2d(2, ceil_mode=True)]
    net = nn.Sequential(nn.MaxPool2d(2), nn.Sequential(nn.MaxPool2d((2, 2), (2, 2))), watched, *others, nn.AvgPool2d(2))
    halve(net)
    kinds = [type(layer) for layer in net.modules() if not isinstance(layer, nn.Sequential)]
    assert kinds == [Halving, Halving, *[nn.MaxPool2d] * 5, nn.AvgPool2d]


def test_the_loop_kernel_takes_it_for_images_of_one_channel() -> None:
    network = Network("cnn", (28, 28), 10)
    samples = Samples(
        network, torch.randint(0, 256, (4, 28, 28), dtype=torch.uint8), torch.zeros(4).long(), torch.device("cpu")
    )
    net = Loop(network, samples, torch.device("cpu")).trainee(0, 1.0).objective.net
    x = samples.inputs(torch.arange(4))
    first = net.body[0](x)  # type: ignore[index, operator]
    assert isinstance(net.body[1], Halving) and first.is_contiguous()  # type: ignore[index]
