"""Arithmetic of many clients at once equals that of each alone, and what a client keeps is its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from covey.learn import rowwise as rowwise_room
from covey.learn.kernels.products import Fused, Plain
from covey.learn.kernels.vectors.pending import Pending, settled
from covey.learn.rowwise import by_rows, on_cpu, on_rows, owned, side_by_side
from covey.learn.schedule.waves import lay_out
from covey.learn.work import Compute, Job, Plan, Train, rowwise

ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def changes(y: Tensor, x: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor]:
    return y - x, (y - x) * scale


def test_side_by_side_is_one_by_one() -> None:
    x, ys = torch.randn(7), torch.randn(3, 7)
    works = [rowwise(changes, y, x, -0.5 * (i + 1)) for i, y in enumerate(ys)]
    for together, alone in zip(side_by_side(works), by_rows(works), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("may_wait", [False, True])
def test_what_is_put_off_takes_no_time(may_wait: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowwise_room, "waits", lambda device: True)
    times = []

    @contextmanager
    def timed() -> Iterator[None]:
        yield
        times.append(1)

    c, own = torch.randn(7), torch.randn(3, 7)
    given = on_rows(rowwise(torch.sub, c, own, may_wait=may_wait), torch.device("cpu"), timed)
    assert isinstance(given, Pending) is may_wait
    assert len(times) == (not may_wait)
    assert torch.equal(settled(given), c - own)


def test_one_result_that_all_clients_share_reaches_each() -> None:
    x = torch.randn(5)
    assert [v.tolist() for v in side_by_side([rowwise(torch.neg, x)] * 3)] == [(-x).tolist()] * 3


@pytest.mark.parametrize("kinds", [(7, 7), (7, 1), (7, 5)])
def test_what_torch_writes_anywhere_is_what_each_client_gets_alone(kinds: tuple[int, int]) -> None:
    whole, other = kinds
    c, own = torch.randn(whole), torch.randn(3, whole)
    works = [rowwise(torch.sub, c, row) for row in own] + [rowwise(torch.neg, torch.randn(other))]
    works += [rowwise(torch.mul, row, 0.5) for row in own]
    for work, result in zip(works, by_rows(works), strict=True):
        assert torch.equal(result, work.function(*work.arguments))


def test_a_training_takes_the_corrections_of_a_wave_as_they_lie() -> None:
    c, own = torch.randn(7), torch.randn(3, 7)
    corrections = by_rows([rowwise(torch.sub, c, row) for row in own])
    plan, rows = Plan(lr=0.1, proximal=0.5, batch_size=2), torch.arange(4)
    jobs = [Job(rows, i, Train(c, plan, correction=v)) for i, v in enumerate(corrections)]
    plain = [replace(job, work=replace(job.work, plan=plan.but(proximal=0.0))) for job in jobs]
    before = torch.stack(corrections)
    lying, pulled = (lay_out(some, torch.device("cpu")).constant for some in (plain, jobs))
    assert lying is not None
    assert pulled is not None
    assert lying.data_ptr() == corrections[0].data_ptr()
    assert torch.equal(lying, before)
    assert torch.equal(pulled, before - 0.5 * c)
    assert torch.equal(torch.stack(corrections), before)  # they are the askers' own
    backwards = lay_out(plain[::-1], torch.device("cpu")).constant
    assert backwards is not None
    assert torch.equal(backwards, before.flip(0))


@pytest.mark.parametrize(
    "work",
    [
        rowwise(torch.mul, torch.arange(4), 0.5),
        rowwise(torch.add, torch.tensor([True, False]), 2),
        rowwise(torch.sub, 1.0, torch.arange(4.0)),
        rowwise(torch.add, torch.arange(4.0), torch.ones(4, requires_grad=True)),
        rowwise(torch.add, torch.arange(4.0), torch.ones(4, dtype=torch.float64)),
    ],
    ids=["half of a whole number", "sums of booleans", "a number first", "gradients", "mixed"],
)
def test_results_that_are_not_like_their_vectors_are_what_torch_gives(work: Compute) -> None:
    expected = work.function(*work.arguments)
    for result in by_rows([work, work, work]):
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
def test_what_a_client_keeps_does_not_keep_the_others_vectors(device: str) -> None:
    stack = torch.randn(4, 1000, device=device)
    memories = [{"variate": row, "note": 1} for row in stack]
    owned(memories)
    for memory, row in zip(memories, stack, strict=True):
        assert torch.equal(memory["variate"], row)
        assert memory["variate"].untyped_storage().nbytes() < stack.nbytes


@ON_A_GPU
@pytest.mark.parametrize("m", [1, 50, 200])
@pytest.mark.parametrize(("n", "k"), [(200, 784), (10, 200), (33, 45)])
def test_fused_products_lose_no_more_than_float32(m: int, n: int, k: int) -> None:
    torch.manual_seed(m * n)
    vectors = torch.randn(3, n * k + n + 2, device="cuda")
    weight, bias = vectors[:, : n * k].unflatten(1, (n, k)), vectors[:, n * k : n * k + n]
    x, delta, h = (torch.randn(3, m, width, device="cuda") for width in (k, n, k))
    plain, fused = Plain(), Fused()
    for leak in (None, 0.0, 0.1):
        exact = plain.layer(x.double(), weight.double(), bias.double(), leak)
        allowed = 2 * (plain.layer(x, weight, bias, leak) - exact).abs().max() + 1e-6
        assert (fused.layer(x, weight, bias, leak) - exact).abs().max() <= allowed
    exact = plain.back(delta.double(), weight.double(), h.double(), 0.1)
    allowed = 2 * (plain.back(delta, weight, h, 0.1) - exact).abs().max() + 1e-6
    assert (fused.back(delta, weight, h, 0.1) - exact).abs().max() <= allowed
    results = []
    for products, kind in ((plain, torch.float64), (plain, torch.float32), (fused, torch.float32)):
        own = vectors.to(kind)
        parts = own[:, : n * k].unflatten(1, (n, k)), own[:, n * k : n * k + n]
        products.update(*parts, delta.to(kind), x.to(kind), 0.9, -0.1)
        results.append(own.double())
    exact, single, together = results
    assert (together - exact).abs().max() <= 2 * (single - exact).abs().max() + 1e-6


@pytest.mark.gpu
@ON_A_GPU
def test_vectors_that_are_read_on_the_cpu_leave_a_gpu_together() -> None:
    vectors = torch.randn(3, 5, device="cuda")
    works = [Compute("encrypt", len, (i, row), on_cpu=i != 1) for i, row in enumerate(vectors)]
    given = on_cpu(works)
    assert [number for number, _ in given] == [0, 1, 2]
    assert [row.is_cuda for _, row in given] == [False, True, False]
    assert torch.equal(torch.stack([row.cpu() for _, row in given]), vectors.cpu())


def test_vectors_that_are_on_the_cpu_stay_as_they_are() -> None:
    row = torch.ones(2)
    assert on_cpu([Compute("encrypt", len, (row, 1), on_cpu=True)])[0][0] is row
