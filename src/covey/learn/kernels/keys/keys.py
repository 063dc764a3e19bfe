"""The kernel of `keys.cu`: keys to the bit as `randomness.keys` draws them, of numbers that lie on the GPU, for whoever reads them
there. What it cannot take (a number with a sign, a long text) is drawn by the host.
"""

from __future__ import annotations

import functools
import warnings
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey import randomness
from covey.learn.kernels.products import takes_triton
from covey.learn.schedule.transfer import there
from covey.randomness import Draw, Numbers, Part

THREADS = 128
BLOCK, DIGITS = 128, 19  # bytes of a text at most, and of a number in it


@functools.cache
def drawing(device: torch.device) -> Draw:
    """How keys are drawn for a machine on this device."""
    if not takes_triton(device) or not hasattr(torch.cuda, "_compile_kernel"):
        return randomness.keys
    draw = functools.partial(keys, device=device)
    try:
        tried = np.array([0, 9, 10, 2**63 - 1])
        right = torch.equal(draw((1, 2), tried, ("a", 0)).cpu(), randomness.keys((1, 2), tried, ("a", 0)))
    except Exception as error:  # compilers have many of their own
        warnings.warn(f"no kernel for keys here, rounds of many clients take longer without: {error}", stacklevel=2)
        return randomness.keys
    return draw if right else randomness.keys


def keys(before: tuple[Part, ...], numbers: Numbers, after: tuple[Part, ...], device: torch.device) -> Tensor:
    """`randomness.keys`, on this device."""
    head, tail = (text.encode() for text in randomness.around(before, after))
    given = numbers if isinstance(numbers, Tensor) else torch.from_numpy(np.array(numbers, np.int64))
    signs = not given.is_cuda and len(given) > 0 and int(given.min()) < 0
    if signs or len(head) + DIGITS + len(tail) > BLOCK:
        return there(randomness.keys(before, numbers, after), device)
    given, out = there(given, device).contiguous(), torch.empty(len(given), dtype=torch.int64, device=device)
    if len(given):
        args = [_text(head + tail, device), given, out, len(head), len(tail), len(given)]
        with torch.cuda.device(device):
            compiled(device)(grid=(-(-len(given) // THREADS), 1, 1), block=(THREADS, 1, 1), args=args)
    return out


@functools.lru_cache(maxsize=64)
def _text(text: bytes, device: torch.device) -> Tensor:
    """Those around clients' numbers differ by round, the others come again."""
    return there(torch.tensor(list(text), dtype=torch.uint8), device)


@functools.cache
def compiled(device: torch.device) -> Any:
    return torch.cuda._compile_kernel(source(), "keys")  # type: ignore[attr-defined]


def source() -> str:
    text = (files("covey.learn.kernels.keys") / "keys.cu").read_text(encoding="utf-8")
    return f"#define THREADS {THREADS}\n{text}"
