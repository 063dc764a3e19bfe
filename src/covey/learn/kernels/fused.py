"""The products of `products.Fused` as Triton kernels. Imported only where there is a GPU, and Triton.

One program computes one tile of one client's result. Tiles of a client are neighbours in the grid, so that what they share stays in
the cache. Vectors of clients may lie apart by any stride; one that is a multiple of 16 floats is read four at a time.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _plus_dot(total, one, other, P: tl.constexpr):
    if P == "bf16":
        total = tl.dot(one.to(tl.bfloat16), other.to(tl.bfloat16), total)
    else:
        total = tl.dot(one, other, total, input_precision=P)
    return total


@triton.jit
def _layer(x, w, b, out, M, N: tl.constexpr, K: tl.constexpr, w_client, b_client, leak, ACT: tl.constexpr, P: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    tiles_n, tiles_m = tl.cdiv(N, BN), tl.cdiv(M, BM)
    program = tl.program_id(0)
    client = (program // (tiles_n * tiles_m)).to(tl.int64)
    tile = program % (tiles_n * tiles_m)
    m = (tile // tiles_n) * BM + tl.arange(0, BM)
    n = (tile % tiles_n) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x += client * M * K
    w += client * w_client
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = first + k < K
        rows = tl.load(x + m[:, None] * K + (first + k)[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        columns = tl.load(w + n[None, :] * K + (first + k)[:, None], mask=(n < N)[None, :] & inside[:, None], other=0.0)
        total = _plus_dot(total, rows, columns, P)
    total += tl.load(b + client * b_client + n, mask=n < N, other=0.0)[None, :]
    if ACT:
        total = tl.where(total > 0, total, total * leak)
    tl.store(out + client * M * N + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def _back(delta, w, h, out, M, N: tl.constexpr, K: tl.constexpr, w_client, leak, P: tl.constexpr,
          BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    tiles_k, tiles_m = tl.cdiv(K, BK), tl.cdiv(M, BM)
    program = tl.program_id(0)
    client = (program // (tiles_k * tiles_m)).to(tl.int64)
    tile = program % (tiles_k * tiles_m)
    m = (tile // tiles_k) * BM + tl.arange(0, BM)
    k = (tile % tiles_k) * BK + tl.arange(0, BK)
    n = tl.arange(0, BN)
    delta += client * M * N
    w += client * w_client
    total = tl.zeros((BM, BK), dtype=tl.float32)
    for first in range(0, N, BN):
        inside = first + n < N
        rows = tl.load(
            delta + m[:, None] * N + (first + n)[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0
        )
        columns = tl.load(w + (first + n)[:, None] * K + k[None, :], mask=inside[:, None] & (k < K)[None, :], other=0.0)
        total = _plus_dot(total, rows, columns, P)
    at = client * M * K + m[:, None] * K + k[None, :]
    inside_tile = (m < M)[:, None] & (k < K)[None, :]
    active = tl.load(h + at, mask=inside_tile, other=0.0) > 0
    tl.store(out + at, tl.where(active, total, total * leak), mask=inside_tile)


@triton.jit
def _update(w, b, delta, x, M, N: tl.constexpr, K: tl.constexpr, w_client, b_client, beta, alpha, P: tl.constexpr,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ONCE: tl.constexpr):  # fmt: skip
    tiles_n = tl.cdiv(N, BN)
    program = tl.program_id(0)
    client = (program // tiles_n).to(tl.int64)
    n = (program % tiles_n) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    m = tl.arange(0, BM)
    delta += client * M * N
    x += client * M * K
    w += client * w_client
    rows = tl.load(delta + m[:, None] * N + n[None, :], mask=(m < M)[:, None] & (n < N)[None, :], other=0.0)
    sums = tl.sum(rows, axis=0)
    for at in range(0, K, BK):
        inside = at + k < K
        columns = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        total = _plus_dot(tl.zeros((BN, BK), dtype=tl.float32), tl.trans(rows), columns, P)
        if not ONCE:  # batches of more samples than a tile has
            for first in range(BM, M, BM):
                more = first + m < M
                others = tl.load(
                    delta + (first + m)[:, None] * N + n[None, :], mask=more[:, None] & (n < N)[None, :], other=0.0
                )
                columns = tl.load(
                    x + (first + m)[:, None] * K + (at + k)[None, :], mask=more[:, None] & inside[None, :], other=0.0
                )
                total = _plus_dot(total, tl.trans(others), columns, P)
                if at == 0:
                    sums += tl.sum(others, axis=0)
        place = w + n[:, None] * K + (at + k)[None, :]
        inside_tile = (n < N)[:, None] & inside[None, :]
        tl.store(place, beta * tl.load(place, mask=inside_tile, other=0.0) + alpha * total, mask=inside_tile)
    bias = b + client * b_client + n
    tl.store(bias, beta * tl.load(bias, mask=n < N, other=0.0) + alpha * sums, mask=n < N)


# Tiles as measured on an H200 with a batch of 50 and layers of 784 × 200 and 200 × 10.


def layer(x: Tensor, weight: Tensor, bias: Tensor, leak: float | None, mode: str) -> Tensor:
    (c, m, k), n = x.shape, weight.shape[1]
    out = x.new_empty(c, m, n)
    rows, columns = _tile(m), _tile(n, 128)
    grid = (c * triton.cdiv(n, columns) * triton.cdiv(m, rows),)
    _layer[grid](x.contiguous(), weight, bias, out, m, n, k, weight.stride(0), bias.stride(0), float(leak or 0.0),
                 leak is not None, _precision(mode), rows, columns, 32, num_warps=4, num_stages=3)  # fmt: skip
    return out


def back(delta: Tensor, weight: Tensor, outputs: Tensor, leak: float, mode: str) -> Tensor:
    (c, m, n), k = delta.shape, weight.shape[2]
    out = delta.new_empty(c, m, k)
    rows, columns = _tile(m), _tile(k)
    grid = (c * triton.cdiv(k, columns) * triton.cdiv(m, rows),)
    _back[grid](delta.contiguous(), weight, outputs.contiguous(), out, m, n, k, weight.stride(0), float(leak),
                _precision(mode), rows, _tile(n, 32), columns, num_warps=4, num_stages=2)  # fmt: skip
    return out


def update(weight: Tensor, bias: Tensor, delta: Tensor, x: Tensor, beta: float, alpha: float, mode: str) -> None:
    (c, m, n), k = delta.shape, x.shape[2]
    samples, rows, columns = _tile(m), _tile(n, 32), _tile(k)
    grid = (c * triton.cdiv(n, rows),)
    # A batch of fifty is one short product, and all of its time goes to the weights: plain float32 is as fast as tensor cores.
    precision = "ieee" if mode == "ieee" else mode
    _update[grid](weight, bias, delta.contiguous(), x.contiguous(), m, n, k, weight.stride(0), bias.stride(0),
                  float(beta), float(alpha), precision, samples, rows, columns, m <= samples,
                  num_warps=4, num_stages=3)  # fmt: skip


def _tile(size: int, most: int = 64) -> int:
    """A power of two from 16, the least that tensor cores take."""
    return max(16, min(most, triton.next_power_of_2(size)))


def _precision(mode: str) -> str:
    return "tf32x3" if mode == "ieee" else mode
