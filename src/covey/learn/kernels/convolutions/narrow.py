"""The layers of `pooling.py` on a CPU, where they have few channels: torch's convolutions compute 16 channels at a time, and a
LeNet has 1, 6 and 16.

Here the samples of a batch lie side by side, [channels, rows, columns · samples], so that a tap of a kernel is one factor of two
long rows, whatever the channels are: an output row is the sum of 25 shifted rows, and the compiler does the rest. Between layers
that lie so, nothing is copied. Values and gradients are torch's but for rounding: of equal numbers the first is the largest, row by
row, and NaN stays NaN.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Pair = tuple[int, int]
Numbers = NDArray[Any]
# Weights of a layer from which torch is as fast, by measurement: of a first layer, whose inputs need no gradient, and of others.
FIRST, LATER = 18 * 25, 96 * 25
CHANNELS = 8  # that a layer reads, at most
LANE = 16  # samples lie in so many, or a multiple
MOST = 512  # samples of a batch: more leave the cache
BLOCK = 8  # outputs whose taps share a pass back to the inputs, as narrow_loops.py has them


def gains(weight: Tensor, first: bool) -> bool:
    """Whether a layer with these weights [O, C, h, w] is faster so."""
    few = weight.shape[1] <= CHANNELS and weight.numel() <= (FIRST if first else LATER)
    return few and weight.shape[2:] == (5, 5)


def fills(samples: int) -> bool:
    """Whether a batch of so many fills its lanes so far that it is faster."""
    return 8 * samples >= 5 * _lanes(samples) * LANE and samples <= MOST


def does(x: Tensor, weight: Tensor, padding: Pair) -> bool:
    """Images [B, C, H, W] and weights [O, C, h, w]."""
    rows, columns = (side + 2 * pad - 4 for side, pad in zip(x.shape[2:], padding))
    return fills(x.size(0)) and min(rows, columns) > 1 and weight.shape[2:] == (5, 5) and x.device.type == "cpu"


def layer(x: Tensor, weight: Tensor, bias: Tensor, padding: Pair) -> Tensor:
    """ReLU of the largest of each 2×2 of a convolution of images [B, C, H, W] by weights [O, C, 5, 5] and biases [O]."""
    done: Tensor = Layer.apply(x, weight, bias, padding)  # type: ignore[no-untyped-call]
    return done


class Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: Pair) -> Tensor:
        read = _laid(x, padding)
        (c, h, w, step), o = read.shape, len(weight)
        rows, columns = (h - 4) // 2, (w - 4) // 2
        y = x.new_empty(o, rows, columns, step)
        code, both = torch.empty(y.shape, dtype=torch.uint8), x.new_empty(4 * columns * step)
        arrays = (_flat(tensor) for tensor in (read, weight, bias, both, y, code))
        _loops().forward(*arrays, c, h, w, o, rows, columns, step // LANE, len(x))
        ctx.save_for_backward(weight)
        ctx.read, ctx.code, ctx.padding = read, code, padding
        return _images(y, len(x))

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, delta: Tensor) -> Any:
        (weight,), (ph, pw), (c, h, w, step) = ctx.saved_tensors, ctx.padding, ctx.read.shape
        o, rows, columns, _ = ctx.code.shape
        blocks = -(-o // BLOCK)
        whole = delta.new_empty(blocks * BLOCK, 2 * rows, 2 * columns, step)  # the gradient before pooling
        whole[o:] = 0
        db, dw, dx = delta.new_empty(o), weight.new_empty(weight.shape), None
        arrays = (_flat(tensor) for tensor in (_laid(delta, (0, 0)), ctx.code, whole, db))
        _loops().spread(*arrays, o, rows, columns, step // LANE)
        sizes = (2 * rows, 2 * columns, step // LANE)
        _loops().correlate(_flat(ctx.read), _flat(whole), _flat(dw), c, h, w, o, *sizes)
        if ctx.needs_input_grad[0]:
            taps, full = weight.new_zeros(blocks * BLOCK, c, 5, 5), torch.zeros_like(ctx.read)
            taps[:o] = weight
            _loops().scatter(_flat(whole), _flat(taps), _flat(full), c, h, w, blocks, *sizes)
            dx = _images(full[:, ph : h - ph, pw : w - pw], len(delta))
        return dx, dw, db, None


def _laid(x: Tensor, padding: Pair) -> Tensor:
    """Images [B, C, H, W] as [C, H, W, samples], with a border of zeros, and samples of zeros up to a whole lane."""
    (ph, pw), (samples, c, h, w) = padding, x.shape
    step, laid = _lanes(samples) * LANE, x.permute(1, 2, 3, 0)
    ours = (h * w * step, w * step, step, 1)
    if not ph and not pw and laid.stride() == ours and _room(x) >= c * h * w * step:
        return laid.as_strided((c, h, w, step), ours)  # of the layer before or behind: zeros up to the lane are there
    if laid.stride(3) != 1:  # torch is quick at transposing matrices only
        last = x.permute(0, 2, 3, 1)
        if last.is_contiguous():
            laid = last.reshape(samples, -1).t().contiguous().view(h, w, c, samples).permute(2, 0, 1, 3)
        else:
            laid = x.reshape(samples, -1).t().contiguous().view(c, h, w, samples)
    padded = x.new_zeros(c, h + 2 * ph, w + 2 * pw, step)
    padded[:, ph : ph + h, pw : pw + w, :samples] = laid
    return padded


def _lanes(samples: int) -> int:
    return (samples + LANE - 1) // LANE


def _images(laid: Tensor, samples: int) -> Tensor:
    """The other way round: a view."""
    return laid[..., :samples].permute(3, 0, 1, 2)


def _room(x: Tensor) -> int:
    """Numbers from where it begins to the end of its memory."""
    return x.untyped_storage().nbytes() // x.element_size() - int(x.storage_offset())


def _flat(tensor: Tensor) -> Numbers:
    flat: Numbers = tensor.detach().contiguous().view(-1).numpy()
    return flat


@functools.cache
def _loops() -> Any:
    return importlib.import_module("covey.learn.kernels.convolutions.narrow_loops")


@functools.cache
def is_here() -> bool:
    """Whether this machine has these loops, and they compute what torch does. They are compiled when this is first asked, in some
    seconds, and kept on disk. Without AVX-512 there are fewer registers than a kernel has taps.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        return _are_right()
    except Exception as error:  # no numba, nowhere to keep what is compiled, ...
        warnings.warn(f"no loops for narrow convolutions here, training takes longer without: {error}", stacklevel=2)
        return False


def _are_right() -> bool:
    x, weight, bias = (torch.arange(float(count)).sin() for count in (13 * 2 * 81, 3 * 2 * 25, 3))
    x, weight = x.view(13, 2, 9, 9), weight.view(3, 2, 5, 5)
    tensors = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    with torch.enable_grad():
        wanted, got = F.relu(F.max_pool2d(F.conv2d(x, weight, bias, padding=1), 2)), layer(x, weight, bias, (1, 1))
        delta = wanted.detach().cos()
        pairs = [(got, wanted), *zip(*(torch.autograd.grad(y, tensors, delta) for y in (got, wanted)))]
    return all(float((a - b).detach().abs().max()) <= 1e-4 * float(b.detach().abs().max()) for a, b in pairs)
