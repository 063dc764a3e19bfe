"""What a GPU computes in. Exact float32 unless another is asked for: torch rounds convolutions to TF32 by default, which no reader
of a figure would expect.

    ieee    float32
    torch   torch's own default: TF32 (10-bit mantissas) in convolutions only
    tf32    TF32 in convolutions and products
    bf16    training steps in bfloat16 (7-bit mantissas); models, their sums and steps, losses and tests in float32
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch

from covey.errors import CoveyError

ARITHMETIC = ("ieee", "torch", "tf32", "bf16")
IN_WORDS = {
    "torch": "convolutions rounded to TF32 (10-bit mantissas), as torch has it unless told otherwise",
    "tf32": "products and convolutions rounded to TF32 (10-bit mantissas)",
    "bf16": "training steps in bfloat16 (7-bit mantissas)",
}
_in_bf16: ContextVar[bool] = ContextVar("_in_bf16", default=False)


def check(mode: str, device: torch.device) -> None:
    """Refuses an arithmetic that this device has not."""
    if mode == "bf16" and (device.type != "cuda" or not torch.cuda.is_bf16_supported(including_emulation=False)):
        where = "this GPU has none" if device.type == "cuda" else "this run computes on a CPU"
        raise CoveyError(f"engine.arithmetic is 'bf16', and {where}: use 'ieee', or a GPU from 2020 on")


@contextmanager
def precision(mode: str, device: torch.device) -> Iterator[None]:
    """On this device, as long as the context lasts."""
    if device.type != "cuda":
        yield
        return
    matmul, conv = torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)
    token = _in_bf16.set(mode == "bf16")
    try:
        if conv is None:  # torch before 2.9
            before = matmul.allow_tf32, torch.backends.cudnn.allow_tf32
            matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = mode == "tf32", mode in ("torch", "tf32")
            try:
                yield
            finally:
                matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
            return
        kept = matmul.fp32_precision, conv.fp32_precision
        matmul.fp32_precision = "tf32" if mode == "tf32" else "ieee"
        conv.fp32_precision = "tf32" if mode in ("torch", "tf32") else "ieee"
        try:
            yield
        finally:
            matmul.fp32_precision, conv.fp32_precision = kept
    finally:
        _in_bf16.reset(token)


def of_products() -> str:
    """What training may round products to now: ieee, tf32 or bf16."""
    if _in_bf16.get():
        return "bf16"
    matmul = torch.backends.cuda.matmul
    rounds = matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    return "tf32" if rounds else "ieee"


def of_convolutions() -> str:
    """What training may round convolutions to now: ieee, tf32 or bf16."""
    if _in_bf16.get():
        return "bf16"
    conv = getattr(torch.backends.cudnn, "conv", None)
    rounds = torch.backends.cudnn.allow_tf32 if conv is None else conv.fp32_precision == "tf32"
    return "tf32" if rounds else "ieee"


def of_steps(device: torch.device) -> AbstractContextManager[object]:
    """Around the forward pass of a training step that autograd differentiates: operators in bf16 where that is asked for."""
    if not _in_bf16.get():
        return nullcontext()
    return torch.autocast(
        device.type, torch.bfloat16, cache_enabled=False
    )  # a captured step could not use the cache again
