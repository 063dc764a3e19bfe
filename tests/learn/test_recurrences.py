"""A GRU's recurrence over all tokens in one launch, against torch's operators token by token in float64."""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from covey import randomness
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.recurrences import recurrences, recurrent
from covey.learn.kernels.recurrences.recurrences import are_right
from covey.learn.machine import Machine
from covey.learn.work import Job, Plan, Train
from covey.models import by_token, recurrence
from covey.models.recurrence import last_state
from support import cuda

CPU = torch.device("cpu")
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
ON = [
    pytest.param("cpu", marks=pytest.mark.skipif(not cuda.has_compiler(), reason="no C++ compiler")),
    pytest.param("cuda", marks=GPU),
]
KINDS = {"forwards": "ppppppppiiiii", "backwards": "ppppppppiiii"}
# models, texts, tokens, units; multiprocessors, which decide how many texts a block has
SHAPES = [
    (1, 1, 1, 32, 132),
    (2, 5, 7, 32, 1),
    (3, 33, 2, 32, 10),
    (2, 5, 2, 96, 132),
    (1, 5, 7, 128, 132),
    (2, 7, 2, 128, 1),
    pytest.param((3, 33, 7, 128, 10), marks=pytest.mark.slow),
    pytest.param((2, 33, 3, 64, 132), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """The kernels of recurrent.cu as threads of this CPU."""
    folder = tmp_path_factory.mktemp("kernels")

    @functools.cache
    def of(name: str, h: int, texts: int, keep: bool, _: torch.device) -> Any:
        return cuda.compiled(recurrent.source(name, h, texts, keep), name, KINDS[name], folder)

    return of


Where = Callable[..., contextlib.AbstractContextManager[None]]


@pytest.fixture
def on(device: str, compiled: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Where:
    """Kernels of this device, which has so many multiprocessors."""
    return lambda processors=132: emulated(monkeypatch, compiled, processors, device)


@contextlib.contextmanager
def emulated(
    monkeypatch: pytest.MonkeyPatch, compiled: Callable[..., Any], processors: int, device: str
) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setattr(recurrent, "processors", lambda _: processors)
        if device == "cuda":
            yield
            return
        changed.setattr(recurrent, "compiled", compiled)
        changed.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        yield


def given(c: int, b: int, t: int, h: int) -> tuple[Tensor, ...]:
    """Inputs with padding in front, in between and behind, and weights and biases as they lie in models' vectors."""
    generator = torch.Generator().manual_seed(c * b + t)
    x = torch.randn(c, b, t, 3 * h, generator=generator)
    absent = torch.rand(c, b, t, generator=generator) < 0.3
    absent[:, 0] = b > 1  # a text of padding alone
    x[..., h : 2 * h] = torch.where(absent[..., None], torch.inf, x[..., h : 2 * h])
    vectors = torch.randn(c, 3 * h * h + 3 * h + 8, generator=generator) * h**-0.5
    weight, bias = vectors[:, 4 : 4 + 3 * h * h].view(c, 3 * h, h), vectors[:, -3 * h - 1 : -1]
    return x, weight, bias, torch.randn(c, b, h, generator=generator)


def near(got: Tensor, want: Tensor, within: float = 2e-6) -> bool:
    assert got.shape == want.shape
    return float((got.cpu().double() - want.cpu().double()).abs().max()) <= within * float(want.abs().max())


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels(shape: tuple[int, ...], device: str, on: Where) -> None:
    *sizes, processors = shape
    tensors = given(*sizes)
    *exact, delta = (one.double() for one in tensors)
    wanted = by_token.unrolled(*exact)  # type: ignore[arg-type]
    slopes = by_token.derivative(delta, exact[1], *wanted[1:])
    x, weight, bias, at_last = (one.to(device) for one in tensors)  # keeps how they lie
    assert recurrent.does(x, weight, bias)
    with on(processors):
        got = recurrent.unrolled(x, weight, bias)
        alone = recurrent.last(x, weight, bias)
        back = recurrent.derivative(at_last, weight, *got[1:])
    assert torch.equal(alone, got[0])
    for one, want in zip((*got, *back), (*wanted, *slopes)):
        assert near(one, want) or not want.any()
    if sizes[1] > 1:  # padding alone: the first state, to the bit, and no gradient
        assert not got[0][:, 0].any() and not back[0][:, 0].any()


@pytest.mark.parametrize("device", ON)
def test_no_sum_depends_on_company(device: str, on: Where) -> None:
    x, weight, bias, delta = (one.to(device) for one in given(2, 7, 3, 32))
    with on(1):
        together = recurrent.unrolled(x, weight, bias)
        slopes = recurrent.derivative(delta, weight, *together[1:])[0]
    with on():
        alone = recurrent.unrolled(x[1:, 6:], weight[1:], bias[1:])
        slope = recurrent.derivative(delta[1:, 6:], weight[1:], *alone[1:])[0]
    assert torch.equal(together[0][1, 6], alone[0][0, 0])
    assert torch.equal(slopes[1, 6], slope[0, 0])


@pytest.mark.parametrize("device", ON)
def test_under_vmap_and_grad(device: str, on: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    c, b, t, h = 2, 4, 3, 32
    x, weight, bias, _ = (one.to(device) for one in given(c, b, t, h))
    x = torch.where(x.isinf(), 0.5, x)
    present = (torch.arange(t) < torch.tensor([3, 0, 1, 2])[:, None]).to(device)
    asked = []

    def own(*tensors: Tensor) -> Any:
        asked.append(recurrent.does(*tensors))
        return recurrent

    def gradients(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return grad(lambda *a: last_state(a[0], present, *a[1:]).sin().sum(), argnums=(0, 1, 2))(x, weight, bias)

    def of_samples(x: Tensor, weight: Tensor, bias: Tensor) -> Any:
        def loss(w: Tensor, b: Tensor, one: Tensor, there: Tensor) -> Tensor:
            return last_state(one[None], there[None], w, b).sin().sum()

        return vmap(grad(loss, argnums=(0, 1)), in_dims=(None, None, 0, 0))(weight, bias, x, present)

    def shared(x: Tensor) -> Tensor:
        """One model, and another's texts."""
        with torch.no_grad():
            return last_state(x, present, weight[0], bias[0])

    work = [lambda: vmap(gradients)(x, weight, bias), lambda: vmap(of_samples)(x, weight, bias)]
    work += [lambda: gradients(x[0], weight[0], bias[0]), lambda: (vmap(shared)(x),)]
    monkeypatch.setattr(recurrence, "kernels_of", lambda *_: by_token)
    wanted = [one() for one in work]
    monkeypatch.setattr(recurrence, "kernels_of", own)
    with on():
        got = [one() for one in work]
    assert asked == [True] * 7
    for one, want in zip(got, wanted):
        for a, e in zip(one, want):
            assert near(a, e, 4e-6)


def test_what_the_kernels_do_not_take_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrences, "has_kernels", lambda device: True)
    x, weight, bias, _ = given(1, 2, 3, 32)
    assert recurrences.kernels_of(x, weight, bias) is recurrent
    for other in (
        (x.double(), weight.double(), bias.double()),
        (x.bfloat16(), weight, bias),  # autocast
        (x[:, :0], weight, bias),
        (x[:, :, :0], weight, bias),
        given(1, 2, 3, 16)[:3],
        given(1, 2, 3, 160)[:3],
        given(1, 2, 3, 48)[:3],
    ):
        assert recurrences.kernels_of(*other) is by_token


def wrong(**changed: Any) -> Any:
    return SimpleNamespace(**{name: getattr(by_token, name) for name in ("unrolled", "last", "derivative")} | changed)


def has(monkeypatch: pytest.MonkeyPatch, kernels: Any) -> None:
    """As if this CPU were a GPU, and these its kernels."""
    monkeypatch.setattr(recurrences, "takes_triton", lambda device: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(recurrences, "_here", {})
    monkeypatch.setattr(recurrences, "recurrent", kernels)


def test_they_are_not_even_tried_where_they_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrences, "_here", {})
    monkeypatch.setattr(recurrences, "are_right", None)
    monkeypatch.setenv("COVEY_TRITON", "0")
    assert not recurrences.has_kernels(torch.device("cuda"))
    assert not recurrences.has_kernels(CPU)


def test_kernels_that_are_wrong_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return by_token.unrolled(x.nan_to_num(posinf=0.0), *rest)

    assert are_right(wrong(), CPU)
    assert not are_right(wrong(unrolled=forgetful), CPU)
    assert not are_right(wrong(last=lambda x, *rest: forgetful(x, *rest)[0]), CPU)
    assert not are_right(wrong(derivative=lambda *a: [1.001 * one for one in by_token.derivative(*a)]), CPU)

    has(monkeypatch, wrong(unrolled=forgetful, does=recurrent.does))
    tensors = given(1, 2, 3, 32)[:3]
    assert recurrences.kernels_of(*tensors) is by_token
    monkeypatch.setattr(recurrences, "recurrent", right := wrong(does=recurrent.does))
    assert recurrences.kernels_of(*tensors) is by_token  # tried once
    recurrences._here.clear()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert recurrences.kernels_of(*tensors) is by_token and not recurrences._here
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert recurrences.kernels_of(*tensors) is right


def test_without_a_compiler_there_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> Any:
        raise OSError("no compiler")

    has(monkeypatch, wrong(unrolled=none, does=recurrent.does))
    tensors = given(1, 2, 3, 32)[:3]
    with pytest.warns(UserWarning, match="no compiler") as seen:
        assert all(recurrences.kernels_of(*tensors) is by_token for _ in range(3))
    assert len(seen) == 1


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no compiler for GPUs")
@pytest.mark.parametrize("name", KINDS)
def test_kernels_compile_for_a_gpu(name: str, tmp_path: Path) -> None:
    """And the weights stay in registers."""
    for h, texts, chip in ((128, 3, "sm_80"), (128, 6, "sm_90"), (32, 6, "sm_80")):
        source = tmp_path / "kernel.cu"
        source.write_text(recurrent.source(name, h, texts, True))
        asked = ["nvcc", f"-arch={chip}", "-cubin", "-Werror", "all-warnings", "-Xptxas", "-v"]
        done = subprocess.run([*asked, "-o", str(tmp_path / "kernel"), str(source)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert re.search(r"\b0 bytes spill stores, 0 bytes spill loads", done.stderr), done.stderr


def texts_of(network: Network, count: int) -> tuple[Tensor, Tensor]:
    x = (randomness.bits([7], count * 9)[0] % 11).view(count, 9).to(torch.int32)
    x[:, -3:] *= x[:, :1] % 2  # some end in padding
    return x, randomness.bits([8], count)[0] % network.classes


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("kernel", ["stacked", "loop"])
def test_a_gru_trains_by_them_as_by_torch(kernel: str, device: str, on: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    network, launched = Network("gru", (9,), 3, "tokens", 11), set()
    launch = recurrent._launch

    def seen(name: str, *how: Any) -> None:
        launched.add(name)
        launch(name, *how)

    monkeypatch.setattr(recurrent, "_launch", seen)
    size, epochs = (20, 4) if device == "cuda" else (4, 1)
    x, y = texts_of(network, 2 * size)
    for plan in (Plan(lr=0.1, batch_size=8, epochs=epochs), Plan(lr=0.1, batch_size=8, epochs=epochs, clip=0.7)):
        starts, rows = (initial(network, 3), initial(network, 4)), torch.arange(2 * size).split(size)
        jobs = [Job(own, n, Train(start, plan)) for n, (own, start) in enumerate(zip(rows, starts))]
        expected = Machine(network, x, y, kernel="loop").compute(jobs)
        machine = Machine(network, x, y, device=device, kernel=kernel)
        if device == "cpu":
            monkeypatch.setattr(recurrence, "kernels_of", lambda *_: recurrent)
        launched.clear()
        with on():
            for _ in range(2 if device == "cuda" else 1):  # captured, then replayed
                for got, want in zip(machine.compute(jobs), expected):
                    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-5)
        assert launched == {"forwards", "backwards"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_captured_and_replayed() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    assert recurrences.has_kernels(device)
    x, weight, bias, delta = (one.to(device) for one in given(3, 33, 12, 128))

    def step() -> tuple[Tensor, ...]:
        kept = recurrent.unrolled(x, weight, bias)
        return *kept, *recurrent.derivative(delta, weight, *kept[1:])

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        results = step()
    x.copy_(given(3, 33, 12, 128)[0].flip(1))
    graph.replay()
    replayed = [one.clone() for one in results]
    for one, want in zip(replayed, step()):
        assert near(one, want)
