"""The kernels of `recurrent.cu`, compiled when a recurrence of this size is first computed, by the compiler that comes with torch
for CUDA. As torch's operators a training step of 20 clients on 32 texts of 100 tokens is 950 launches: 5.8 ms on an H200, most of
it waiting; 2.2 so (`benchmarks/bench_gru.py`).

Why CUDA and not Triton: between two tokens the threads of a block wait for each other, with a model's weights in their registers.
"""

from __future__ import annotations

import functools
import math
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from covey.models.by_token import Given

UNITS, MOST = 32, 128  # of a state: a multiple of the one, and the other at most
TEXTS = (3, 6)  # of a block: few as long as every block has a multiprocessor to itself
FAR = 2**31  # numbers from one model to the next


def does(*tensors: Tensor) -> bool:
    """Whether the kernels take them; the second is the weights. Not under autocast, which makes some of them bfloat16."""
    h = tensors[1].shape[-1]
    plain = all(one.dtype == torch.float32 and one.numel() for one in tensors)
    return plain and h % UNITS == 0 and h <= MOST


def unrolled(x: Tensor, weight: Tensor, bias: Tensor) -> Given:
    """`by_token.unrolled`."""
    return _forwards(x, weight, bias, keep=True)


def last(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`by_token.last`."""
    return _forwards(x, weight, bias, keep=False)[0]


def _forwards(x: Tensor, weight: Tensor, bias: Tensor, keep: bool) -> Given:
    lead, (b, t, _), h = weight.shape[:-2], x.shape[-3:], weight.shape[-1]
    c = math.prod(lead)
    x, weight, bias = x.reshape(c, b, t, 3 * h).contiguous(), _models(weight, c, 3 * h, h), _models(bias, c, 3 * h)
    state = x.new_empty(c, b, h)
    kept = [x.new_empty(c, t, b, width) if keep else state for width in (2 * h, h, h, h)]
    args = [x, weight, bias, state, *kept]
    _launch("forwards", args, (c, b, t, h), keep, [weight.stride(0), bias.stride(0)])
    return state.view(*lead, b, h), *(one.view(*lead, *one.shape[1:]) for one in kept if keep)


def derivative(grad: Tensor, weight: Tensor, gates: Tensor, candidates: Tensor, given: Tensor, states: Tensor) -> Given:
    """`by_token.derivative`. Sums over all tokens are products, and torch's."""
    lead, (b, h), t = grad.shape[:-2], grad.shape[-2:], states.shape[-3]
    c = math.prod(lead)
    kept = [one.reshape(c, t * b, -1).contiguous() for one in (gates, candidates, given, states)]
    weight, grad = _models(weight, c, 3 * h, h), grad.reshape(c, b, h).contiguous()
    at_given, at_x = grad.new_empty(c, t * b, 3 * h), grad.new_empty(c, b, t, 3 * h)
    _launch("backwards", [grad, weight, *kept, at_given, at_x], (c, b, t, h), True, [weight.stride(0)])
    at_weight = torch.bmm(at_given.transpose(1, 2), kept[-1])
    return at_x.view(*lead, b, t, 3 * h), at_weight.view(*lead, 3 * h, h), at_given.sum(1).view(*lead, 3 * h)


def _launch(name: str, tensors: list[Tensor], sizes: tuple[int, ...], keep: bool, apart: list[int]) -> None:
    (c, b, t, h), device = sizes, tensors[0].device
    few, many = TEXTS
    texts = few if c * -(-b // few) <= processors(device) else many
    parts = -(-b // texts)
    with torch.cuda.device(device):
        kernel = compiled(name, h, texts, keep, device)
        kernel(grid=(c * parts, 1, 1), block=(3 * h, 1, 1), args=[*tensors, b, t, parts, *apart])


def _models(tensor: Tensor, c: int, *shape: int) -> Tensor:
    """What a model has lies side by side, from a multiple of four numbers on; models may lie apart, or share one."""
    tensor = tensor.reshape(c, *shape)
    plain = tensor[0].is_contiguous() and tensor.data_ptr() % 16 == 0
    plain = plain and tensor.stride(0) % 4 == 0 and tensor.stride(0) < FAR
    return tensor if plain else tensor.clone(memory_format=torch.contiguous_format)


@functools.cache
def processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@functools.cache
def compiled(name: str, h: int, texts: int, keep: bool, device: torch.device) -> Any:
    """A function to launch, on this device, which is current."""
    return torch.cuda._compile_kernel(source(name, h, texts, keep), name)  # type: ignore[attr-defined]


def source(name: str, h: int, texts: int, keep: bool) -> str:
    given = {f"ONLY_{name}": 1, "H": h, "THREADS": 3 * h, "ROWS": texts, "KEEP": int(keep)}
    text = (files("covey.learn.kernels.recurrences") / "recurrent.cu").read_text(encoding="utf-8")
    return "".join(f"#define {name} {value}\n" for name, value in given.items()) + text
