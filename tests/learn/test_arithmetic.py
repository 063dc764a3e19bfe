"""What a GPU computes in: bf16 is refused where there is none, near exact where there is, and leaves tests of models exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch.nn import functional as F

from covey import Experiment
from covey.errors import CoveyError
from covey.learn import precision
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.batched import Batch
from covey.learn.kernels.stacked import Stacked
from covey.learn.kernels.streams import ChannelsLast, Streams
from covey.learn.machine import Machine
from covey.learn.work import Job, Logits, Losses, Plan, Train

CPU = torch.device("cpu")


@pytest.fixture
def in_bf16() -> Iterator[None]:
    token = precision._in_bf16.set(True)
    yield
    precision._in_bf16.reset(token)


def step(name: str, kind: type[Stacked] | type[Streams]) -> torch.Tensor:
    """The gradients of two small models, three samples each."""
    net = Network(name, (12, 12, 3), 4)
    models = torch.stack([initial(net, i) for i in range(2)])
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(2, 3, 3, 12, 12, generator=generator), torch.tensor([[0, 1, 2], [3, 0, 1]])
    batch = Batch(x, y, torch.full((2, 3), 1 / 3), torch.tensor([3, 3]), None, None, 0, 1.0, 0.0)
    gradients, stacked = torch.zeros_like(models), Stacked(net, CPU)
    kernel = stacked if kind is Stacked else Streams(stacked, CPU)
    kernel.accumulate(gradients, models, batch, 1.0, 1.0)
    return gradients


@pytest.mark.parametrize("kind", [Stacked, Streams])
def test_steps_in_bf16_are_near_and_models_stay_float32(
    kind: type[Stacked] | type[Streams], request: pytest.FixtureRequest
) -> None:
    exact = step("cnn", kind)
    request.getfixturevalue("in_bf16")
    rounded = step("cnn", kind)
    assert rounded.dtype == torch.float32
    difference = float((rounded - exact).norm() / exact.norm())
    assert 1e-5 < difference < 0.05


class Norms:
    """In place of the module of Triton kernels, which needs a GPU."""

    taken: ClassVar[list[bool]] = []

    @classmethod
    def does(cls, x: torch.Tensor, groups: int, weight: Any, bias: Any) -> bool:
        cls.taken.append(x.shape[1] == 64)
        return cls.taken[-1]

    class GroupNorm:
        @staticmethod
        def apply(x: torch.Tensor, weight: Any, bias: Any, groups: int, eps: float) -> torch.Tensor:
            return torch.nn.GroupNorm(groups, x.shape[1], eps)(x)


def test_group_norms_go_to_own_kernels_where_they_do_them() -> None:
    net = Network("resnet18", (8, 8, 3), 4).module("cpu")
    x = torch.rand(2, 3, 8, 8)
    expected = net(x)
    with ChannelsLast(Norms):
        torch.testing.assert_close(net(x), expected)
    assert True in Norms.taken
    assert False in Norms.taken
    weight = torch.rand(4, 3, 3, 3)
    with ChannelsLast(Norms):  # as a network of one's own may call them
        torch.testing.assert_close(F.conv2d(input=x, weight=weight), F.conv2d(x, weight))
        torch.testing.assert_close(F.group_norm(input=x, num_groups=3), F.group_norm(x, 3))


def test_bf16_needs_a_gpu() -> None:
    net = Network("softmax", (4, 4), 2)
    with pytest.raises(CoveyError, match="computes on a CPU"):
        Machine(net, torch.zeros(2, 4, 4), torch.tensor([0, 1]), arithmetic="bf16")
    with pytest.raises(CoveyError, match=r"engine\.device is 'cpu', a CPU"):
        Experiment.of(engine={"arithmetic": "bf16", "device": "cpu"})


def test_words_that_contradict_or_are_unknown_are_refused() -> None:
    with pytest.raises(CoveyError, match="leave one of them out"):
        Experiment.of(engine={"arithmetic": "bf16", "tf32": True})
    with pytest.raises(CoveyError, match="choose ieee, torch, tf32, bf16"):
        Experiment.of(engine={"arithmetic": "fp16"})
    assert Experiment.of(engine={"tf32": True}).engine.computes_in == "tf32"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("name", "kernel"), [("fcnn", "linear"), ("cnn", "stacked"), ("cnn", "streams")])
def test_bf16_on_a_gpu(name: str, kernel: str) -> None:
    net = Network(name, (28, 28), 10)
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(0, 256, (200, 28, 28), generator=generator).to(torch.uint8)
    y, start = torch.randint(0, 10, (200,), generator=generator), initial(net, 1)
    work = Train(start, Plan(lr=0.05, batch_size=20))
    jobs = [Job(torch.arange(100 * i, 100 * (i + 1)), i, work) for i in range(2)]
    exact, rounded = (Machine(net, x, y, device="cuda", kernel=kernel, arithmetic=mode) for mode in ("ieee", "bf16"))
    moves = [torch.stack(machine.compute(jobs)).cpu() - start for machine in (exact, rounded)]
    assert 1e-5 < float((moves[1] - moves[0]).norm() / moves[0].norm()) < 0.1
    asked = [Job(torch.arange(50), 0, Losses(start[None].cuda()))]
    torch.testing.assert_close(exact.compute(asked)[0], rounded.compute(asked)[0])  # tests are not rounded


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_outputs_with_channels_last_on_a_gpu() -> None:
    """As near to exact ones as TF32 is, and exact ones are as torch has them."""
    net = Network("resnet18", (32, 32, 3), 100)
    x = torch.randint(0, 256, (40, 32, 32, 3), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    models = torch.stack([initial(net, seed) for seed in range(2)])
    job = Job(torch.arange(40), 0, Logits(models))
    loop, exact, rounded = (
        Machine(net, x, torch.zeros(40, dtype=torch.int64), device="cuda", kernel=kernel, arithmetic=mode).compute(
            [job]
        )[0]
        for kernel, mode in (("loop", "ieee"), ("streams", "ieee"), ("streams", "torch"))
    )
    torch.testing.assert_close(exact, loop, rtol=1e-5, atol=1e-5)
    assert not torch.equal(rounded, exact)
    assert float((rounded - exact).norm() / exact.norm()) < 5e-3
