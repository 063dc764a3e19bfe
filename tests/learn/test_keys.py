"""Keys that a GPU draws are those of the host, to the bit; the kernel runs as threads of this CPU where there is none."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from covey import randomness
from covey.learn.kernels.keys import keys
from covey.randomness import Streams
from support import cuda

CPU, HERE = torch.device("cpu"), torch.cuda.is_available()
ON = [
    pytest.param("cpu", marks=pytest.mark.skipif(not cuda.has_compiler(), reason="no compiler")),
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not HERE, reason="no CUDA device")]),
]
NUMBERS = [0, 1, 9, 10, 99, 1234567890123456789, 2**63 - 1, 10**18, 10**18 - 1]


@contextlib.contextmanager
def emulated(device: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if device == "cuda":
        yield
        return
    kernel = cuda.compiled(keys.source(), "keys", "blliii", folder)
    with monkeypatch.context() as changed:
        changed.setattr(keys, "compiled", lambda _: kernel)
        changed.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
        yield


@pytest.mark.parametrize("device", ON)
def test_as_the_hosts(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [((), ("train", "order")), ((2**62, 1000), (0,)), (("é",), ()), ((), ("x" * 80,)), ((7,), ("it's", -3))]
    with emulated(device, tmp_path, monkeypatch):
        for before, after in cases:
            got = keys.keys(before, np.array(NUMBERS), after, torch.device(device)).cpu()
            assert got.tolist() == [randomness.key(*before, n, *after) for n in NUMBERS]
        many = range(keys.THREADS * 2 + 1)  # more than one block, and not whole ones
        got = keys.keys((3, 4), many, (0,), torch.device(device)).cpu()
        assert torch.equal(got, randomness.keys((3, 4), many, (0,)))
        assert len(keys.keys((3, 4), [], (0,), torch.device(device))) == 0


@pytest.mark.parametrize("device", ON)
def test_streams_of_a_round(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = keys.functools.partial(keys.keys, device=torch.device(device))
    with emulated(device, tmp_path, monkeypatch):
        got = Streams(5, 6, np.arange(40), draw).of("train", "order").cpu()
    of_hand = [randomness.key(randomness.key(5, 6, client, 0), "train", "order") for client in range(40)]
    assert got.tolist() == Streams(5, 6, range(40)).of("train", "order").tolist() == of_hand


def test_what_is_no_text_of_one_block_is_left_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "compiled", None)
    for numbers, after in ((np.array([3, -1]), ("a",)), (np.array([3]), ("x" * 120,))):
        got = keys.keys((1,), numbers, after, CPU)
        assert got.tolist() == [randomness.key(1, n, *after) for n in numbers.tolist()]


def test_a_kernel_that_hashes_otherwise_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "takes_triton", lambda device: True)
    monkeypatch.setattr(torch.cuda, "_compile_kernel", None, raising=False)
    monkeypatch.setattr(keys, "keys", lambda *given, device: randomness.keys(*given) + 1)
    keys.drawing.cache_clear()
    assert keys.drawing(CPU) is randomness.keys
    keys.drawing.cache_clear()
    monkeypatch.setattr(keys, "keys", lambda *given, device: randomness.keys(*given))
    assert keys.drawing(CPU) is not randomness.keys
    keys.drawing.cache_clear()


def test_without_a_gpu_the_host_draws() -> None:
    assert keys.drawing(CPU) is randomness.keys


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no compiler for GPUs")
def test_the_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text(keys.source())
    asked = ["nvcc", "-arch=sm_80", "-cubin", "-Werror", "all-warnings", "-o", str(tmp_path / "kernel"), str(source)]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
