"""Convolutions of clients side by side, each with weights of its own, against torch's of one client after the other."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from covey.learn.kernels.convolutions import convolutions
from covey.learn.kernels.convolutions.convolutions import OwnConvolutions, are_right
from covey.learn.precision import precision

CPU = torch.device("cpu")
# clients, batch, channels, height, width, outputs, kernel, padding
SHAPES = [
    (2, 3, 1, 12, 12, 6, (5, 5), (2, 2)),
    (2, 3, 6, 9, 9, 16, (5, 5), (0, 0)),
    (3, 2, 5, 8, 7, 17, (3, 3), (1, 1)),
    (1, 2, 2, 8, 7, 80, (1, 3), (0, 1)),
    (2, 90, 3, 8, 8, 4, (3, 3), (1, 1)),  # more places than one program adds up
]


class OneByOne:
    """In place of the module of Triton kernels, which needs a GPU."""

    asked: ClassVar[list[str]] = []

    @classmethod
    def outputs(cls, x: Tensor, weight: Tensor, bias: Tensor, padding: Any, mode: str) -> Tensor:
        cls.asked.append("outputs")
        return torch.stack([F.conv2d(*one, padding=padding) for one in zip(x, weight, bias)])

    @classmethod
    def at_inputs(cls, delta: Tensor, weight: Tensor, padding: Any, mode: str) -> Tensor:
        cls.asked.append("at_inputs")
        return torch.stack([F.conv_transpose2d(*one, padding=padding) for one in zip(delta, weight)])

    @classmethod
    def at_weights(cls, delta: Tensor, x: Tensor, shape: Any, padding: Any, mode: str) -> tuple[Tensor, Tensor]:
        cls.asked.append("at_weights")
        sizes = (delta.shape[2], x.shape[2], *shape)
        each = [torch.nn.grad.conv2d_weight(b, sizes, a, padding=padding) for a, b in zip(delta, x)]
        return torch.stack(each), delta.sum(dim=(1, 3, 4))


def gradients(net: nn.Module, images: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    def loss(one: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(net, one, (x,))
        return out.square().sum()

    found: dict[str, Tensor] = vmap(grad(loss))(weights, images)
    return found


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(3, 4, (3, 1)))


def stacked(net: nn.Module, clients: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(clients, *p.shape, generator=generator) for name, p in net.named_parameters()}


def test_gradients_under_vmap_are_those_of_grouped_convolutions() -> None:
    net, images = network(), torch.rand(4, 5, 2, 8, 8)
    weights = stacked(net, 4)
    expected = gradients(net, images, weights)
    OneByOne.asked.clear()
    with OwnConvolutions(OneByOne):
        got = gradients(net, images, weights)
    # Nobody asks for the gradient at the images.
    assert OneByOne.asked == ["outputs", "outputs", "at_inputs", "at_weights", "at_weights"]
    for name, want in expected.items():
        torch.testing.assert_close(got[name], want, rtol=1e-4, atol=1e-4)


def test_one_client_alone_is_a_row_of_many() -> None:
    net, image = network(), torch.rand(5, 2, 8, 8)
    expected = net(image)
    with OwnConvolutions(OneByOne):
        torch.testing.assert_close(net(image), expected)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 4, 3, stride=2),
        nn.Conv2d(2, 4, 3, dilation=2),
        nn.Conv2d(2, 4, 3, groups=2),
        nn.Conv2d(2, 4, 3, bias=False),
        nn.Conv2d(2, 4, 3, padding="same"),
        nn.Conv2d(2, 4, 1, padding=1),
        nn.Conv2d(2, 4, 3).double(),
    ],
)
def test_what_the_kernels_do_not_do_is_left_to_torch(layer: nn.Conv2d) -> None:
    x = torch.rand(2, 2, 6, 6, dtype=layer.weight.dtype)
    expected = layer(x)
    OneByOne.asked.clear()
    with OwnConvolutions(OneByOne):
        torch.testing.assert_close(layer(x), expected)
    assert not OneByOne.asked


def test_kernels_that_are_wrong_are_found_out() -> None:
    class Forgetful(OneByOne):
        @classmethod
        def at_inputs(cls, delta: Tensor, weight: Tensor, padding: Any, mode: str) -> Tensor:
            return super().at_inputs(delta, weight.flip(3), padding, mode)

    assert are_right(OneByOne, CPU)
    assert not are_right(Forgetful, CPU)


def test_kernels_are_tried_where_nothing_is_differentiated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients who choose a model compute losses before anybody trains."""
    monkeypatch.setattr(convolutions, "takes_triton", lambda device: True)
    monkeypatch.setattr(convolutions.importlib, "import_module", lambda name: OneByOne)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert convolutions.tried("convolve", are_right, CPU) is OneByOne


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("mode", "room"), [("ieee", 2e-6), ("tf32", 5e-3)])
def test_kernels_on_a_gpu(mode: str, room: float, shape: tuple[Any, ...]) -> None:
    kernels = importlib.import_module("covey.learn.kernels.convolutions.convolve")
    clients, batch, channels, height, width, outputs, kernel, padding = shape
    torch.manual_seed(0)
    x = torch.randn(clients, batch, channels, height, width)
    weight, bias = torch.randn(clients, outputs, channels, *kernel), torch.randn(clients, outputs)
    expected = OneByOne.outputs(x.double(), weight.double(), bias.double(), padding, mode)
    delta = torch.randn(expected.shape)
    wanted = (
        expected,
        OneByOne.at_inputs(delta.double(), weight.double(), padding, mode),
        *OneByOne.at_weights(delta.double(), x.double(), kernel, padding, mode),
    )
    device = torch.device("cuda")
    apart = torch.cat([weight.flatten(1), torch.zeros(clients, 7)], dim=1).to(device)  # as in a model's vector
    own = apart[:, :-7].view(weight.shape)
    with precision(mode, device):
        got = (
            kernels.outputs(x.to(device), own, bias.to(device), padding, mode),
            kernels.at_inputs(delta.to(device), own, padding, mode),
            *kernels.at_weights(delta.to(device), x.to(device), kernel, padding, mode),
        )
    for one, want in zip(got, wanted):
        assert float((one.cpu().double() - want).abs().max()) <= room * float(want.abs().max())
