"""Convolution, pooling and ReLU of few channels on a CPU, by covey's own loops, against torch's three."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.convolutions import narrow
from covey.learn.kernels.convolutions.pooling import Pooled, is_narrow, join, using
from covey.learn.kernels.loop import Loop
from covey.learn.machine import Machine
from covey.learn.samples import Samples
from covey.learn.work import Gradient, Head, Job, Logits, Plan, Train
from covey.models.classifier import Classifier
from covey.models.conv import cnn5, lenet, lfw_cnn

CPU = torch.device("cpu")
Net = Callable[..., Tensor]


def torchs(x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int]) -> Tensor:
    return F.relu(F.max_pool2d(F.conv2d(x, weight, bias, padding=padding), 2))


def computed(by: Net, tensors: list[Tensor], padding: tuple[int, int], delta: Tensor) -> list[Tensor]:
    """Outputs, and gradients at images, weights and biases."""
    own = [tensor.detach().requires_grad_() for tensor in tensors]
    y = by(*own, padding)
    return [y.detach(), *torch.autograd.grad(y, own, delta)]


def test_hand_computed() -> None:
    """6×6 pixels 0 … 35 under a kernel that is 2 in its middle: of the four outputs the last is the largest, 2 · 21 − 40."""
    x = torch.arange(36.0).view(1, 1, 6, 6)
    weight = torch.zeros(1, 1, 5, 5)
    weight[0, 0, 2, 2] = 2
    y, dx, dw, db = computed(narrow.layer, [x, weight, torch.tensor([-40.0])], (0, 0), torch.full((1, 1, 1, 1), 3.0))
    assert y.tolist() == [[[[2.0]]]] and db.tolist() == [3.0]
    assert torch.equal(dw[0, 0], 3 * x[0, 0, 1:, 1:])
    assert dx.nonzero().tolist() == [[0, 0, 3, 3]] and float(dx[0, 0, 3, 3]) == 6
    for of_relu in computed(narrow.layer, [x, weight, torch.tensor([-42.0])], (0, 0), torch.ones(1, 1, 1, 1)):
        assert not of_relu.any()  # an output of 0 has no gradient


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "first": lambda x: x,
    "last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "as the layer before left it": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "every second": lambda x: torch.stack([x, x], dim=-1)[..., 0],
    "one image for all": lambda x: x[:1].expand(len(x), -1, -1, -1),
}
# samples, channels, height, width, outputs, padding
SHAPES = [
    (12, 1, 10, 10, 6, (2, 2)),
    (17, 6, 9, 8, 16, (0, 0)),
    (50, 3, 7, 12, 5, (1, 0)),
    (1, 2, 6, 7, 1, (0, 3)),
    (129, 1, 6, 6, 9, (5, 5)),
    (3, 17, 11, 6, 17, (0, 1)),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_and_gradients_are_torchs(shape: tuple[Any, ...], layout: str) -> None:
    samples, channels, height, width, outputs, padding = shape
    torch.manual_seed(0)
    x = LAYOUTS[layout](torch.randn(samples, channels, height, width))
    tensors = [x, torch.randn(outputs, channels, 5, 5), torch.randn(outputs)]
    delta = LAYOUTS[layout](torch.randn(torchs(*tensors, padding).shape))  # type: ignore[arg-type]
    exact = computed(torchs, [tensor.double() for tensor in tensors], padding, delta.double())
    for got, want in zip(computed(narrow.layer, tensors, padding, delta), exact):
        assert got.shape == want.shape
        # Biases sum numbers of both signs.
        assert float((got - want).abs().max()) <= 2e-6 * max(float(want.abs().max()), float(delta.abs().sum()) ** 0.5)


def test_weights_may_lie_in_any_order() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(16, 2, 9, 9), torch.randn(5, 5, 2, 6).permute(3, 2, 0, 1), torch.randn(6)
    delta = torch.randn(16, 6, 2, 2)
    for got, want in zip(*(computed(f, [x, weight, bias], (0, 0), delta) for f in (narrow.layer, torchs))):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_of_equal_outputs_the_first_has_the_gradient() -> None:
    tensors = [torch.ones(12, 1, 7, 10), torch.ones(2, 1, 5, 5), torch.zeros(2)]
    delta = torch.arange(72.0).view(12, 2, 1, 3)
    for got, want in zip(computed(narrow.layer, tensors, (0, 0), delta), computed(torchs, tensors, (0, 0), delta)):
        assert torch.equal(got, want)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_so(value: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 2, 10, 10)
    x[3, 1, 4, 4] = x[5, 0, 0, 0] = value
    tensors, delta = [x, torch.randn(6, 2, 5, 5), torch.randn(6)], torch.randn(12, 6, 3, 3)
    for got, want in zip(computed(narrow.layer, tensors, (0, 0), delta), computed(torchs, tensors, (0, 0), delta)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_which_networks() -> None:
    for shape in ((1, 28, 28), (1, 8, 8), (3, 32, 32)):
        assert is_narrow(lenet(*shape, 10))
    for wide in (cnn5(1, 28, 28, 10), lfw_cnn(1, 28, 28, 10), lenet(4, 28, 28, 10)):
        assert not is_narrow(wide)

    def beside(*more: nn.Module) -> Classifier:
        return Classifier(nn.Sequential(nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), nn.ReLU(), *more, nn.Flatten()), 4, 2)

    assert is_narrow(beside()) and not is_narrow(beside(nn.Conv2d(6, 6, 5)))  # images would be laid out anew for torch
    assert not is_narrow(beside(nn.GroupNorm(2, 6), nn.Conv2d(6, 6, 5), nn.MaxPool2d(2), nn.ReLU()))
    assert not is_narrow(beside().body) and not is_narrow(Classifier(nn.Flatten(), 4, 2))


class Asked:
    """Counts the layers that are computed by the loops."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layers, layer = 0, narrow.layer

        def counted(*given: Any) -> Tensor:
            self.layers += 1
            return layer(*given)

        monkeypatch.setattr(narrow, "layer", counted)


def test_which_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, net = Asked(monkeypatch), lenet(1, 28, 28, 10)
    assert join(net)
    for samples, layers in ((0, 0), (9, 0), (10, 2), (17, 2), (512, 4), (513, 4)):
        with using(narrow):
            net(torch.zeros(samples, 1, 28, 28))
        assert asked.layers == layers
    net(torch.zeros(16, 1, 28, 28))
    assert asked.layers == 4
    with using(narrow), pytest.raises(RuntimeError):  # torch's own word on images that are too small
        Pooled(1, 1, 5)(torch.zeros(12, 1, 5, 5))


def made(shape: tuple[int, ...]) -> tuple[Network, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (90, *shape), dtype=torch.uint8, generator=generator)
    return Network("cnn", shape, 10), x, torch.arange(90) % 10


PLANS = {
    "plain": Plan(lr=0.1, epochs=2, batch_size=25),  # the last batch of 8 is torch's
    "full": Plan(lr=0.1, epochs=3, batch_size=0),
    "momentum": Plan(lr=0.1, batch_size=12, momentum=0.9, weight_decay=0.01),
    "proximal": Plan(lr=0.1, batch_size=16, proximal=0.5),
    "dropout": Plan(lr=0.1, batch_size=16, dropout=0.5),
    "clip": Plan(lr=0.1, batch_size=16, clip=0.5),
}


@pytest.mark.parametrize("shape", [(28, 28), (11, 8, 3)])
@pytest.mark.parametrize("plan", PLANS)
def test_training_is_that_of_the_other_kernels(
    plan: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, (network, x, y) = Asked(monkeypatch), made(shape)
    start, other = initial(network, 1), initial(network, 2)
    moves = torch.arange(network.d) >= 200  # the first layer stays
    jobs = [
        Job(torch.arange(58), 1, Train(start, PLANS[plan])),
        Job(torch.arange(58, 90), 2, Train(start, PLANS[plan], anchor=other, correction=0.1 * other, moves=moves)),
    ]
    own = Machine(network, x, y, own_loops=True).compute(jobs)
    assert (asked.layers == 0) == (plan == "clip")  # single samples' gradients are found by other ways
    loop, stacked = (Machine(network, x, y, kernel=kernel).compute(jobs) for kernel in ("loop", "stacked"))
    for found, first, second in zip(own, loop, stacked):
        # Mostly 1e-6; where two outputs are nearly equal another one may be the largest, also between these two.
        change = 5e-3 * float((first - start).abs().max())
        assert float((found - first).abs().max()) <= change and float((found - second).abs().max()) <= change
    assert torch.equal(own[1][:200], start[:200])


def test_a_second_head_is_trained_alike() -> None:
    network, x, y = made((28, 28))
    start = torch.cat([initial(network, 1), 0.01 * initial(network, 1)[: network.head_size(2)]])
    job = Job(torch.arange(58), 1, Train(start, PLANS["plain"], head=Head(torch.arange(58) % 2)))
    [own], [loop] = (Machine(network, x, y, own_loops=yes).compute([job]) for yes in (True, False))
    torch.testing.assert_close(own, loop, rtol=0, atol=1e-5)


def test_tests_are_torchs_and_gradients_may_be_either(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, (network, x, y) = Asked(monkeypatch), made((28, 28))
    machines = [Machine(network, x, y, own_loops=yes) for yes in (True, False)]
    at, rows = initial(network, 1), torch.arange(90)
    outputs = [machine.compute([Job(rows, 1, Logits(at[None]))])[0] for machine in machines]
    torch.testing.assert_close(*outputs)
    assert asked.layers == 0
    gradients = [machine.compute([Job(rows, 1, Gradient(at))])[0] for machine in machines]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_other_networks_are_left_as_they_are() -> None:
    for name in ("cnn5", "fcnn", "resnet18"):
        network = Network(name, (8, 8), 10)
        samples = Samples(network, torch.zeros(1, 8, 8), torch.zeros(1).long(), CPU)
        net = Loop(network, samples, CPU, own_loops=True).trainee(0, 1.0).objective.net
        assert not any(isinstance(layer, Pooled) for layer in net.modules())


@pytest.fixture
def asked_anew() -> Any:
    narrow.is_here.cache_clear()
    yield
    narrow.is_here.cache_clear()


@pytest.mark.usefixtures("asked_anew")
def test_machines_that_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'numba'")

    with monkeypatch.context() as changed:
        changed.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
        assert not narrow.is_here()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    narrow.is_here.cache_clear()
    assert narrow.is_here()
    narrow.is_here.cache_clear()
    with monkeypatch.context() as changed, pytest.warns(UserWarning, match="longer without: No module named 'numba'"):
        changed.setattr(narrow, "_loops", missing)
        assert not narrow.is_here()
    narrow.is_here.cache_clear()
    monkeypatch.setattr(narrow, "layer", lambda x, w, b, padding: torchs(x, w.flip(3), b, padding))
    assert not narrow.is_here()  # wrong ones are found out
