"""A training step of a network with one hidden layer in two launches, for many clients side by side (Triton, on a GPU).

    last     of one client: its last layer, the gradient of its cross entropy there and at its hidden units, the last layer's step
    first    of some hidden units of one client: the step of their weights and, in the same pass, what they give for the next batch

So a step reads and writes the weights of the first layer once. Samples are read where they lie: a pixel is a byte until it is
multiplied. Exact float32 is a sum of TF32 products of parts: two where one side is a pixel, which TF32 holds exactly, else three.
In bf16 both sides of a product are rounded; sums, weights and their steps stay float32.
"""

# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

UNITS, INPUTS, WARPS, STAGES = 64, 64, 4, 2  # a tile of the first layer's weights, and how it is computed


@triton.jit
def _parts(value):
    """A float32 as two numbers that TF32 has: the nearest one, and the nearest to the rest. Tensor cores would cut, not round."""
    high = _rounded(value)
    return high, _rounded(value - high)


@triton.jit
def _rounded(value):
    return ((value.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _times_pixels(value, pixels, total, MODE: tl.constexpr, PIXELS: tl.constexpr):
    """total + value · samples. A pixel is a whole number up to 255, which bf16 has, too."""
    if MODE == "bf16":
        total = tl.dot(value.to(tl.bfloat16), pixels.to(tl.bfloat16), total)
    elif MODE == "tf32":
        total = tl.dot(value, pixels, total, input_precision="tf32")
    elif PIXELS:
        high, low = _parts(value)
        total = tl.dot(low, pixels, total, input_precision="tf32")
        total = tl.dot(high, pixels, total, input_precision="tf32")
    else:
        total = tl.dot(value, pixels, total, input_precision="tf32x3")
    return total


@triton.jit
def _pixels_times(pixels, value, total, MODE: tl.constexpr, PIXELS: tl.constexpr):
    if MODE == "bf16":
        total = tl.dot(pixels.to(tl.bfloat16), value.to(tl.bfloat16), total)
    elif MODE == "tf32":
        total = tl.dot(pixels, value, total, input_precision="tf32")
    elif PIXELS:
        high, low = _parts(value)
        total = tl.dot(pixels, low, total, input_precision="tf32")
        total = tl.dot(pixels, high, total, input_precision="tf32")
    else:
        total = tl.dot(pixels, value, total, input_precision="tf32x3")
    return total


@triton.jit
def _dot(one, other, MODE: tl.constexpr):
    if MODE == "bf16":
        product = tl.dot(one.to(tl.bfloat16), other.to(tl.bfloat16))
    elif MODE == "tf32":
        product = tl.dot(one, other, input_precision="tf32")
    else:
        product = tl.dot(one, other, input_precision="tf32x3")
    return product


@triton.jit
def _constant(constant, less, place, mask, LESS: tl.constexpr):
    value = tl.load(constant + place, mask=mask, other=0.0)
    if LESS:
        value = value - tl.load(less + place, mask=mask, other=0.0)
    return value


@triton.jit(do_not_specialize=["t", "clients"])
def _first(samples, rows, source, model, delta, hidden, divisors, constant, less, t, clients, scale, beta, alpha, leak,
           source_row, model_row, constant_row, less_row, B: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
           UPDATE: tl.constexpr, FORWARD: tl.constexpr, CONSTANT: tl.constexpr, LESS: tl.constexpr, MODE: tl.constexpr,
           PIXELS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    tiles = tl.cdiv(N, BN)
    program = tl.program_id(0)
    client = (program // tiles).to(tl.int64)
    n = (program % tiles) * BN + tl.arange(0, BN)
    m = tl.arange(0, BM)
    k = tl.arange(0, BK)
    there = m < B
    source += client * source_row
    model += client * model_row
    constant += client * constant_row
    less += client * less_row
    bias = tl.load(source + N * K + n, mask=n < N, other=0.0)
    if UPDATE:
        moving = (tl.load(divisors + t * clients + client) > 0).to(tl.float32)
        keep = 1.0 + moving * (beta - 1.0)  # a client that is done stays where it is
        push = moving * alpha
        before = tl.load(rows + (t * clients + client) * B + m, mask=there, other=0)
        at_hidden = tl.load(
            delta + (client * B + m[None, :]) * N + n[:, None], mask=there[None, :] & (n < N)[:, None], other=0.0
        )
        bias = keep * bias + alpha * tl.sum(at_hidden, axis=1)
        if CONSTANT:
            bias += push * _constant(constant, less, N * K + n, n < N, LESS)
        tl.store(model + N * K + n, bias, mask=n < N)
    if FORWARD:
        after = tl.load(rows + ((t + 1) * clients + client) * B + m, mask=there, other=0)
        total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        at = start + k
        inside = at < K
        place = n[:, None] * K + at[None, :]
        tile = (n < N)[:, None] & inside[None, :]
        batch = there[:, None] & inside[None, :]
        weight = tl.load(source + place, mask=tile, other=0.0)
        if UPDATE:
            pixels = tl.load(samples + before[:, None] * K + at[None, :], mask=batch, other=0).to(tl.float32)
            change = _times_pixels(at_hidden, pixels, tl.zeros((BN, BK), dtype=tl.float32), MODE, PIXELS)
            weight = keep * weight + (alpha * scale) * change
            if CONSTANT:
                weight += push * _constant(constant, less, place, tile, LESS)
            tl.store(model + place, weight, mask=tile)
        if FORWARD:
            pixels = tl.load(samples + after[:, None] * K + at[None, :], mask=batch, other=0).to(tl.float32)
            total = _pixels_times(pixels, tl.trans(weight), total, MODE, PIXELS)
    if FORWARD:
        total = total * scale + bias[None, :]
        total = tl.where(total > 0, total, total * leak)
        tl.store(hidden + (client * B + m[:, None]) * N + n[None, :], total, mask=there[:, None] & (n < N)[None, :])


@triton.jit(do_not_specialize=["t", "clients"])
def _last(labels, rows, factor, source, model, delta, hidden, divisors, constant, less, t, clients, beta, alpha, leak,
          source_row, model_row, constant_row, less_row, B: tl.constexpr, N: tl.constexpr, O: tl.constexpr, K: tl.constexpr,
          CONSTANT: tl.constexpr, LESS: tl.constexpr, MODE: tl.constexpr,
          BM: tl.constexpr, BN: tl.constexpr, BO: tl.constexpr):  # fmt: skip
    client = tl.program_id(0).to(tl.int64)
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    o = tl.arange(0, BO)
    there = m < B
    source += client * source_row + N * K + N
    model += client * model_row + N * K + N
    constant += client * constant_row + N * K + N
    less += client * less_row + N * K + N
    place = o[:, None] * N + n[None, :]
    tile = (o < O)[:, None] & (n < N)[None, :]
    weight = tl.load(source + place, mask=tile, other=0.0)
    bias = tl.load(source + O * N + o, mask=o < O, other=0.0)
    units = (client * B + m[:, None]) * N + n[None, :]
    batch = there[:, None] & (n < N)[None, :]
    h = tl.load(hidden + units, mask=batch, other=0.0)
    outputs = _dot(h, tl.trans(weight), MODE) + bias[None, :]
    outputs = tl.where((o < O)[None, :], outputs, float("-inf"))
    row = tl.load(rows + (t * clients + client) * B + m, mask=there, other=0)
    y = tl.load(labels + row, mask=there, other=0)
    share = tl.load(factor + (t * clients + client) * B + m, mask=there, other=0.0)
    powers = tl.exp(outputs - tl.max(outputs, axis=1)[:, None])
    d = powers / tl.sum(powers, axis=1)[:, None]
    d = (d - (o[None, :] == y[:, None]).to(tl.float32)) * share[:, None]
    back = _dot(d, weight, MODE)
    tl.store(delta + units, tl.where(h > 0, back, back * leak), mask=batch)
    moving = (tl.load(divisors + t * clients + client) > 0).to(tl.float32)
    keep = 1.0 + moving * (beta - 1.0)
    push = moving * alpha
    weight = keep * weight + alpha * _dot(tl.trans(d), h, MODE)
    bias = keep * bias + alpha * tl.sum(d, axis=0)
    if CONSTANT:
        weight += push * _constant(constant, less, place, tile, LESS)
        bias += push * _constant(constant, less, O * N + o, o < O, LESS)
    tl.store(model + place, weight, mask=tile)
    tl.store(model + O * N + o, bias, mask=o < O)


# Tiles as measured on an H200 with a batch of 50, inputs of 784 pixels, 200 hidden units and 10 classes.


def train(
    samples: Tensor, labels: Tensor, rows: Tensor, factor: Tensor, divisors: Tensor, start: Tensor, constant: Tensor | None,
    less: Tensor | None, model: Tensor, sizes: tuple[int, int, int], leak: float, scale: float, beta: float, alpha: float,
    mode: str,
) -> None:  # fmt: skip
    """Takes all steps from `start` [n, D], and leaves the trained models in `model` [n, D].

    A step is θ ← beta θ + alpha (g + constant − less), for clients whose divisor of the step is not 0. Rows of start, constant and
    less may all be one and the same. `samples` [all, inputs] are floats, or bytes; `scale` is what a sample's numbers are
    multiplied by.
    """
    (steps, clients, slots), (inputs, units, classes) = rows.shape, sizes
    hidden, delta = (model.new_empty(clients, slots, units) for _ in range(2))
    given, taken = (model if one is None else one for one in (constant, less))
    pixels, has_constant, has_less = samples.dtype == torch.uint8, constant is not None, less is not None
    lines, tile, width = _tile(slots), min(UNITS, _tile(units)), min(INPUTS, _tile(inputs))
    grid = (clients * triton.cdiv(units, tile),)
    for t in range(-1, steps):
        source = start if t <= 0 else model
        if t >= 0:
            _last[(clients,)](
                labels, rows, factor, source, model, delta, hidden, divisors, given, taken, t, clients, beta, alpha, leak,
                source.stride(0), model.stride(0), given.stride(0), taken.stride(0), slots, units, classes, inputs,
                has_constant, has_less, mode, lines, _tile(units), _tile(classes), num_warps=4, num_stages=1)  # fmt: skip
        _first[grid](
            samples, rows, source, model, delta, hidden, divisors, given, taken, t, clients, scale, beta, alpha, leak,
            source.stride(0), model.stride(0), given.stride(0), taken.stride(0), slots, units, inputs,
            t >= 0, t + 1 < steps, has_constant, has_less, mode, pixels, lines, tile, width,
            num_warps=WARPS, num_stages=STAGES)  # fmt: skip


def _tile(size: int) -> int:
    """A power of two from 16, the least that tensor cores take."""
    return max(16, triton.next_power_of_2(size))
