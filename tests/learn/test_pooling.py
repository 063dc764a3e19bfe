"""Convolution, pooling and ReLU as one layer of clients side by side, against torch's three of one client after the other."""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.convolutions import pooled, pooling
from covey.learn.kernels.convolutions.pooling import Pooled, are_right, join, using
from covey.learn.kernels.kernels import Together
from covey.learn.kernels.loop import Loop
from covey.learn.kernels.stacked import Stacked
from covey.learn.samples import Samples
from covey.models.classifier import Classifier
from covey.models.conv import lenet
from support import cuda

CPU = torch.device("cpu")
ON = [
    pytest.param("cpu", marks=pytest.mark.skipif(not cuda.has_compiler(), reason="no C++ compiler")),
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
    ),
]
# clients, batch, channels, height, width, outputs, kernel, padding
SHAPES = [
    (2, 3, 3, 12, 12, 6, (5, 5), (0, 0)),
    (2, 11, 6, 9, 10, 16, (5, 5), (0, 0)),  # more images than one block adds up, an odd side
    (1, 2, 1, 12, 12, 6, (5, 5), (2, 2)),
    (2, 3, 2, 8, 7, 5, (3, 3), (1, 1)),  # rows that do not begin at even places
    (1, 2, 2, 10, 10, 3, (4, 2), (1, 0)),
]
KINDS = {"outputs": "ppppbiiiii", "at_weights": "pbpppiii", "at_inputs": "pbppiii"}


class OneByOne:
    """In place of the module of CUDA kernels."""

    asked: ClassVar[list[str]] = []

    class Layer:
        fits = True

        @classmethod
        def of(cls, *_: Any) -> OneByOne.Layer:
            return cls()

    @classmethod
    def outputs(cls, x: Tensor, weight: Tensor, bias: Tensor, padding: Any, keep: bool = True) -> tuple[Tensor, Tensor]:
        cls.asked.append("outputs" if keep else "predicted")
        each = [F.conv2d(*one, padding=padding) for one in zip(x, weight, bias)]
        found = [F.max_pool2d(one, 2, return_indices=True) for one in each]
        code = torch.stack([where for _, where in found])  # where in its image
        return torch.stack([values for values, _ in found]).relu(), code

    @classmethod
    def _full(cls, delta: Tensor, code: Tensor, sides: Any) -> Tensor:
        flat = delta.new_zeros(*delta.shape[:3], math.prod(sides))
        return flat.scatter_add(3, code.flatten(3), delta.flatten(3)).view(*delta.shape[:3], *sides)

    @classmethod
    def at_inputs(cls, delta: Tensor, code: Tensor, weight: Tensor, sides: Any, padding: Any) -> Tensor:
        cls.asked.append("at_inputs")
        of_outputs = [s + 2 * p - k + 1 for s, p, k in zip(sides, padding, weight.shape[3:])]
        full = cls._full(delta, code, of_outputs)
        return torch.stack([F.conv_transpose2d(d, w, padding=padding) for d, w in zip(full, weight)])

    @classmethod
    def at_weights(cls, delta: Tensor, code: Tensor, x: Tensor, shape: Any, padding: Any) -> tuple[Tensor, Tensor]:
        cls.asked.append("at_weights")
        of_outputs = [s + 2 * p - k + 1 for s, p, k in zip(x.shape[3:], padding, shape)]
        full, sizes = cls._full(delta, code, of_outputs), (delta.shape[2], x.shape[2], *shape)
        each = [torch.nn.grad.conv2d_weight(b, sizes, a, padding=padding) for a, b in zip(full, x)]
        return torch.stack(each), delta.sum(dim=(1, 3, 4))


class Coded(OneByOne):
    """The same with a gradient of 0 where ReLU gave 0, as the true kernels have it in their code."""

    @classmethod
    def outputs(cls, x: Tensor, weight: Tensor, bias: Tensor, padding: Any, keep: bool = True) -> tuple[Tensor, Tensor]:
        y, code = super().outputs(x, weight, bias, padding, keep)
        return y, torch.where(y > 0, code, -1)

    @classmethod
    def _full(cls, delta: Tensor, code: Tensor, sides: Any) -> Tensor:
        return super()._full(torch.where(code < 0, 0.0, delta), code.clamp(min=0), sides)

    @classmethod
    def at_weights(cls, delta: Tensor, code: Tensor, x: Tensor, shape: Any, padding: Any) -> tuple[Tensor, Tensor]:
        return super().at_weights(torch.where(code < 0, 0.0, delta), code, x, shape, padding)


@contextlib.contextmanager
def emulated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernels of pooled.cu as threads of this CPU."""

    def compiled(layer: pooled.Layer, name: str, threads: int, keep: bool, device: int) -> Callable[..., None]:
        run: Callable[..., None] = cuda.compiled(layer.source(name, threads, keep), name, KINDS[name], folder)
        return run

    with monkeypatch.context() as changed:
        changed.setattr(pooled, "compiled", compiled)
        changed.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        changed.setattr(torch.cuda, "current_device", lambda: 0)
        yield


# Each is compiled four times: two of them show most.
@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("shape", [s if s in SHAPES[1::2] else pytest.param(s, marks=pytest.mark.slow) for s in SHAPES])
def test_kernels(shape: tuple[Any, ...], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, batch, channels, height, width, outputs, kernel, padding = shape
    torch.manual_seed(0)
    x = torch.randn(clients, batch, channels, height, width)
    weight, bias = torch.randn(clients, outputs, channels, *kernel), torch.randn(clients, outputs)
    exact = [t.double().requires_grad_() for t in (x, weight, bias)]
    expected = torch.stack([F.relu(F.max_pool2d(F.conv2d(*one, padding=padding), 2)) for one in zip(*exact)])
    delta = torch.randn(expected.shape)
    wanted = (expected.detach(), *torch.autograd.grad(expected, exact, delta.double()))
    apart = torch.cat([weight.flatten(1), torch.zeros(clients, 6)], dim=1).to(device)  # as in a model's vector
    own, x, bias, delta = apart[:, :-6].view(weight.shape), x.to(device), bias.to(device), delta.to(device)
    assert pooled.Layer.of(x, own, padding).fits
    with emulated(tmp_path, monkeypatch) if device == "cpu" else contextlib.nullcontext():
        y, code = pooled.outputs(x, own, bias, padding)
        at_x = pooled.at_inputs(delta, code, own, (height, width), padding)
        got = (y, at_x, *pooled.at_weights(delta, code, x, kernel, padding))
        alone = pooled.outputs(x, own, bias, padding, keep=False)[0]
    assert torch.equal(alone, y)
    for one, want in zip(got, wanted):
        assert float((one.cpu().double() - want).abs().max()) <= 2e-6 * float(want.abs().max())


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no compiler for GPUs")
@pytest.mark.parametrize("name", KINDS)
def test_kernels_compile_for_a_gpu(name: str, tmp_path: Path) -> None:
    layer, source = pooled.Layer(6, 14, 14, 16, (5, 5), (0, 0)), tmp_path / "kernel.cu"
    source.write_text(layer.source(name, 128))
    asked = ["nvcc", "-arch=sm_80", "-cubin", "-Werror", "all-warnings", "-o", str(tmp_path / "kernel"), str(source)]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ON)
def test_of_equal_outputs_the_first_counts_and_nan_is_kept(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(1, 2, 1, 4, 4)
    x[0, 1, 0, 3, 3] = math.nan
    x, weight, bias = x.to(device), torch.ones(1, 1, 1, 1, 1, device=device), torch.zeros(1, 1, device=device)
    with emulated(tmp_path, monkeypatch) if device == "cpu" else contextlib.nullcontext():
        y, code = pooled.outputs(x, weight, bias, (0, 0))
        dead = pooled.outputs(x, -weight, bias, (0, 0))[1]
    assert code[0, 0].tolist() == [[[0, 0], [0, 0]]]
    assert code[0, 1].tolist() == [[[0, 0], [0, 3]]]
    assert y[0, 1, 0].isnan().tolist() == [[False, False], [False, True]]
    assert dead[0, 0].tolist() == [[[4, 4], [4, 4]]]


def test_what_is_too_large_is_left_to_others() -> None:
    few = pooled.Layer(3, 32, 32, 6, (5, 5), (0, 0))
    assert few.fits
    for other in (
        pooled.Layer(3, 32, 32, 64, (5, 5), (0, 0)),
        pooled.Layer(3, 96, 96, 6, (5, 5), (0, 0)),  # an image is more than a block's memory
        pooled.Layer(32, 14, 14, 32, (5, 5), (2, 2)),
        pooled.Layer(3, 4, 4, 6, (5, 5), (0, 0)),  # nothing comes out
        pooled.Layer(3, 32, 32, 6, (9, 9), (0, 0)),
    ):
        assert not other.fits


def small() -> Classifier:
    body = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(3, 4, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
    )
    return Classifier(body, 4, 3)


def gradients(net: nn.Module, images: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    def loss(one: dict[str, Tensor], x: Tensor) -> Tensor:
        out: Tensor = functional_call(net, one, (x,))
        return out.square().sum()

    found: dict[str, Tensor] = vmap(grad(loss))(weights, images)
    return found


def stacked(net: nn.Module, clients: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(clients, *p.shape, generator=generator) for name, p in net.named_parameters()}


def test_gradients_under_vmap_are_those_of_the_three_layers() -> None:
    net, joined, images = small(), small(), torch.rand(4, 5, 2, 8, 8)
    assert join(joined)
    weights = stacked(net, 4)
    expected = gradients(net, images, weights)
    OneByOne.asked.clear()
    with using(Coded):
        got = gradients(joined, images, weights)
    # Nobody asks for the gradient at the images.
    assert OneByOne.asked == ["outputs", "outputs", "at_inputs", "at_weights", "at_weights"]
    for name, want in expected.items():
        torch.testing.assert_close(got[name], want, rtol=1e-4, atol=1e-4)


def test_a_joined_network_has_the_same_parameters_and_computes_the_same() -> None:
    net, joined = lenet(3, 32, 32, 10), lenet(3, 32, 32, 10)
    assert join(joined)
    assert [type(layer) is Pooled for layer in joined.body].count(True) == 2
    assert {n: p.shape for n, p in joined.named_parameters()} == {n: p.shape for n, p in net.named_parameters()}
    joined.load_state_dict(net.state_dict())
    x = torch.rand(3, 3, 32, 32)
    assert torch.equal(joined(x), net(x))
    OneByOne.asked.clear()
    with torch.no_grad(), using(Coded):
        torch.testing.assert_close(joined(x), net(x))
    assert OneByOne.asked == ["predicted", "predicted"]


class Indexed(Classifier):
    """Takes its layers out one by one, as somebody's own network may."""


@pytest.mark.parametrize(
    "net",
    [
        Indexed(small().body, 4, 3),
        small().body,
        Classifier(nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2)), 4, 3),
        Classifier(nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(3), nn.ReLU()), 4, 3),
        Classifier(nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()), 4, 3),
        Classifier(nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2, stride=1), nn.ReLU()), 4, 3),
        Classifier(nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.MaxPool2d(2), nn.ReLU()), 4, 3),
        Classifier(nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.MaxPool2d(2), nn.ReLU()), 4, 3),
        Classifier(nn.Sequential(nn.Conv2d(2, 3, 3, bias=False), nn.MaxPool2d(2), nn.ReLU()), 4, 3),
        Classifier(
            nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.MaxPool2d(2), nn.ReLU()), 4, 3
        ),
        Classifier(nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.LeakyReLU()), 4, 3),
    ],
)
def test_other_networks_stay_as_they_are(net: nn.Module) -> None:
    before = [type(layer) for layer in net.modules()]
    assert not join(net)
    assert [type(layer) for layer in net.modules()] == before


def test_a_layer_that_somebody_looks_at_is_left_alone() -> None:
    net = small()
    net.body[1].register_forward_hook(lambda *_: None)
    assert join(net)
    assert [type(layer) is Pooled for layer in net.body] == [False, False, False, True, False, False, False]


def test_no_images_are_left_to_torch() -> None:
    layer = Pooled(2, 3, 3)
    OneByOne.asked.clear()
    with using(Coded):
        assert layer(torch.zeros(0, 2, 8, 8)).shape == (0, 3, 3, 3)
    assert not OneByOne.asked


def test_kernels_that_are_wrong_are_found_out() -> None:
    class Forgetful(Coded):
        @classmethod
        def at_inputs(cls, delta: Tensor, code: Tensor, weight: Tensor, sides: Any, padding: Any) -> Tensor:
            return super().at_inputs(delta, code, weight.flip(3), sides, padding)

    class Blind(OneByOne):
        """Lets gradients through where ReLU gave 0."""

    assert are_right(Coded, CPU)
    assert not are_right(Forgetful, CPU)
    assert not are_right(Blind, CPU)


def test_outputs_of_several_models_at_once_are_those_of_each() -> None:
    network = Network("cnn", (32, 32, 3), 10)
    x = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8)
    samples = Samples(network, x, torch.arange(6), CPU)
    models = torch.randn(3, network.d, generator=torch.Generator().manual_seed(2)) * 0.1
    loop, inputs = Loop(network, samples, CPU), samples.inputs(torch.arange(6))
    together = Stacked(network, CPU).logits_of_all(models, inputs)
    torch.testing.assert_close(together, torch.stack([loop.logits(model, inputs) for model in models]))


def test_gradients_of_samples_are_those_of_the_loop() -> None:
    network = Network("cnn", (28, 28), 10)
    x, y = torch.randint(0, 256, (7, 28, 28), dtype=torch.uint8), torch.arange(7)
    samples, at = Samples(network, x, y, CPU), initial(network, 3)
    loop, together = Loop(network, samples, CPU), Together(network, samples, CPU, Stacked(network, CPU))
    with mock.patch.object(pooling, "_kernels", lambda _: Coded):
        got = [together.fisher(at, y), together.sample_norms(at, y), together.logits(at, samples.inputs(y))]
        last = together.sample_gradients(at, y, 850)
        OneByOne.asked.clear()
        with mock.patch("covey.learn.kernels.kernels.of_convolutions", lambda: "bf16"):  # has no such kernels
            rounded = [together.fisher(at, y), together.sample_norms(at, y), together.logits(at, samples.inputs(y))]
        assert not OneByOne.asked
    wanted = [loop.fisher(at, y), loop.sample_norms(at, y), loop.logits(at, samples.inputs(y))]
    assert not OneByOne.asked
    for one, want in zip([*got, *rounded], [*wanted, *wanted]):
        torch.testing.assert_close(one, want, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(last, loop.sample_gradients(at, y, 850))
