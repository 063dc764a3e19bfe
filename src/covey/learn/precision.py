"""Exact float32 on a GPU: torch rounds convolutions to TF32 by default, which no reader of a figure would expect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def precision(mode: str, device: torch.device) -> Iterator[None]:
    """On this device, as long as the context lasts: `ieee`, `tf32`, or `torch` for its default, TF32 in convolutions only."""
    if device.type != "cuda":
        yield
        return
    matmul, conv = torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)
    if conv is None:  # torch before 2.9
        before = matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = mode == "tf32", mode != "ieee"
        try:
            yield
        finally:
            matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
        return
    kept = matmul.fp32_precision, conv.fp32_precision
    matmul.fp32_precision = "tf32" if mode == "tf32" else "ieee"
    conv.fp32_precision = "ieee" if mode == "ieee" else "tf32"
    try:
        yield
    finally:
        matmul.fp32_precision, conv.fp32_precision = kept


def rounds_to_tf32() -> bool:
    """Whether products may be rounded to TF32 now."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        return bool(matmul.fp32_precision == "tf32")
    return bool(matmul.allow_tf32)
