"""Convolutions of many clients, each with weights of its own, as Triton kernels. Imported only where there is a GPU, and Triton.

cuDNN computes them as grouped convolutions, slowly where a client has few channels. Here they are products: of a client's weights
[o, k] and patches of its images [k, q], k a channel and a place of the kernel, q a place of an image of the batch. No patch is
written to memory: a program gathers those of its tile, and neighbours find most of theirs in the cache. The gradient at the inputs
is a convolution of the gradient at the outputs by weights turned around; that at the weights a product over all places.
"""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

PLACES, TAPS, CHANNELS, WARPS, STAGES = 128, 32, 64, 4, 2  # of a tile, channels at most, and how it is computed
PLACES_OF_WEIGHTS, TAPS_OF_WEIGHTS, WARPS_OF_WEIGHTS, STAGES_OF_WEIGHTS = 64, 64, 4, 2
SPAN = 4096  # places that one program adds up: always the same, so that no sum depends on how many clients there are
MOST = 2**31  # numbers of a client


@triton.jit
def _dot(one, other, total, MODE: tl.constexpr):
    if MODE == "tf32":
        total = tl.dot(one, other, total, input_precision="tf32")
    else:
        total = tl.dot(one, other, total, input_precision="tf32x3")
    return total


@triton.jit
def _patches(x, image, row, column, there, k, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
             KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr):  # fmt: skip
    """[q, k]: what tap k reads at place q. Places come first: Triton lets neighbouring threads read along that side."""
    tap = k % (KH * KW)
    down, right = tap // KW - PH, tap % KW - PW
    inside = there[:, None] & (k < C * KH * KW)[None, :]
    if PH or PW:
        y, z = row[:, None] + down[None, :], column[:, None] + right[None, :]
        inside = inside & (y >= 0) & (y < H) & (z >= 0) & (z < W)
    begin = image * (C * H * W) + row * W + column
    offset = (k // (KH * KW)) * (H * W) + down * W + right
    return tl.load(x + (begin[:, None] + offset[None, :]), mask=inside, other=0.0)


@triton.jit
def _convolve(x, w, b, out, w_client, b_client, B: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
              O: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
              TURNED: tl.constexpr, MODE: tl.constexpr, BO: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr):  # fmt: skip
    OH: tl.constexpr = H + 2 * PH - KH + 1
    OW: tl.constexpr = W + 2 * PW - KW + 1
    Q: tl.constexpr = B * OH * OW
    T: tl.constexpr = KH * KW
    tiles_q, tiles_o = tl.cdiv(Q, BQ), tl.cdiv(O, BO)
    program = tl.program_id(0)
    client = (program // (tiles_q * tiles_o)).to(tl.int64)
    tile = program % (tiles_q * tiles_o)
    q = (tile // tiles_o) * BQ + tl.arange(0, BQ)
    o = (tile % tiles_o) * BO + tl.arange(0, BO)
    image, place = q // (OH * OW), q % (OH * OW)
    x += client * (B * C * H * W)
    w += client * w_client
    total = tl.zeros((BQ, BO), dtype=tl.float32)
    for first in range(0, C * T, BK):
        k = first + tl.arange(0, BK)
        if TURNED:  # weights [C, O, T], from their other side and backwards
            at = (k // T)[:, None] * (O * T) + o[None, :] * T + (T - 1 - k % T)[:, None]
        else:
            at = o[None, :] * (C * T) + k[:, None]
        weight = tl.load(w + at, mask=(k < C * T)[:, None] & (o < O)[None, :], other=0.0)
        patches = _patches(x, image, place // OW, place % OW, q < Q, k, C, H, W, KH, KW, PH, PW)
        total = _dot(patches, weight, total, MODE)
    if not TURNED:
        total += tl.load(b + client * b_client + o, mask=o < O, other=0.0)[None, :]
    out += client * (B * O * OH * OW)
    at = (image * (O * OH * OW) + place)[:, None] + o[None, :] * (OH * OW)
    tl.store(out + at, total, mask=(q < Q)[:, None] & (o < O)[None, :])


@triton.jit
def _weigh(delta, x, dw, db, B: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, O: tl.constexpr,
           KH: tl.constexpr, KW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, MODE: tl.constexpr,
           PART: tl.constexpr, BO: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr):  # fmt: skip
    OH: tl.constexpr = H + 2 * PH - KH + 1
    OW: tl.constexpr = W + 2 * PW - KW + 1
    Q: tl.constexpr = B * OH * OW
    K: tl.constexpr = C * KH * KW
    tiles_k, tiles_o, parts = tl.cdiv(K, BK), tl.cdiv(O, BO), tl.cdiv(Q, PART)
    program = tl.program_id(0)
    part = (program // (tiles_k * tiles_o)).to(tl.int64)  # of all clients: those of one follow each other
    tile = program % (tiles_k * tiles_o)
    client = part // parts
    begin = ((part % parts) * PART).to(tl.int32)
    o = (tile // tiles_k) * BO + tl.arange(0, BO)
    k = (tile % tiles_k) * BK + tl.arange(0, BK)
    x += client * (B * C * H * W)
    delta += client * (B * O * OH * OW)
    total = tl.zeros((BO, BK), dtype=tl.float32)
    sums = tl.zeros((BO,), dtype=tl.float32)
    for first in range(0, tl.minimum(PART, Q - begin), BQ):
        q = begin + first + tl.arange(0, BQ)
        image, place = q // (OH * OW), q % (OH * OW)
        at = (image * (O * OH * OW) + place)[:, None] + o[None, :] * (OH * OW)
        back = tl.load(delta + at, mask=(q < Q)[:, None] & (o < O)[None, :], other=0.0)
        patches = _patches(x, image, place // OW, place % OW, q < Q, k, C, H, W, KH, KW, PH, PW)
        total = _dot(tl.trans(back), patches, total, MODE)
        sums += tl.sum(back, axis=0)
    at = (part * O + o)[:, None] * K + k[None, :]
    tl.store(dw + at, total, mask=(o < O)[:, None] & (k < K)[None, :])
    if tile % tiles_k == 0:
        tl.store(db + part * O + o, sums, mask=o < O)


def outputs(x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int], mode: str) -> Tensor:
    """[c, B, O, …] of images x [c, B, C, H, W], weights [c, O, C, h, w] and biases [c, O]."""
    return _convolved(x, weight, bias, weight.shape[1], padding, False, mode)


def at_inputs(delta: Tensor, weight: Tensor, padding: tuple[int, int], mode: str) -> Tensor:
    """The gradient there, from the one at the outputs."""
    turned = tuple(size - 1 - pad for size, pad in zip(weight.shape[3:], padding))
    return _convolved(delta, weight, delta, weight.shape[2], turned, True, mode)


def _convolved(
    x: Tensor, weight: Tensor, bias: Tensor, channels: int, padding: tuple[int, int], turned: bool, mode: str
) -> Tensor:
    (c, batch, given, height, width), (kh, kw) = x.shape, weight.shape[3:]
    down, right = height + 2 * padding[0] - kh + 1, width + 2 * padding[1] - kw + 1
    out = x.new_empty(c, batch, channels, down, right)
    rows = _tile(channels)
    grid = (c * triton.cdiv(batch * down * right, PLACES) * triton.cdiv(channels, rows),)
    weight = _side_by_side(weight)
    _convolve[grid](
        x.contiguous(), weight, bias, out, weight.stride(0), bias.stride(0), batch, given, height, width, channels, kh, kw,
        *padding, turned, mode, rows, TAPS, PLACES, num_warps=WARPS, num_stages=STAGES)  # fmt: skip
    return out


def at_weights(
    delta: Tensor, x: Tensor, shape: tuple[int, int], padding: tuple[int, int], mode: str
) -> tuple[Tensor, Tensor]:
    """The gradients at weights [c, O, C, h, w] and biases [c, O]."""
    (c, batch, channels, down, right), (given, height, width) = delta.shape, x.shape[2:]
    parts, taps = -(-batch * down * right // SPAN), given * shape[0] * shape[1]
    dw, db = x.new_empty(c, parts, channels, taps), x.new_empty(c, parts, channels)
    rows = _tile(channels)
    columns = min(TAPS_OF_WEIGHTS, max(16, triton.next_power_of_2(taps)))
    grid = (c * parts * triton.cdiv(taps, columns) * triton.cdiv(channels, rows),)
    _weigh[grid](
        delta.contiguous(), x.contiguous(), dw, db, batch, given, height, width, channels, *shape, *padding, mode, SPAN,
        rows, columns, PLACES_OF_WEIGHTS, num_warps=WARPS_OF_WEIGHTS, num_stages=STAGES_OF_WEIGHTS)  # fmt: skip
    return dw.sum(1).view(c, channels, given, *shape), db.sum(1)


def _tile(channels: int) -> int:
    return max(16, min(CHANNELS, triton.next_power_of_2(channels)))


def _side_by_side(weight: Tensor) -> Tensor:
    """Weights of a client next to each other; the clients' may lie apart."""
    return weight if weight[0].is_contiguous() else weight.contiguous()
