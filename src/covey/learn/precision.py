"""Exact float32 on a GPU: torch rounds convolutions to TF32 by default, which no reader of a figure would expect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def precision(mode: str, device: torch.device) -> Iterator[None]:
    """`ieee` or `tf32` for products and convolutions on this device, as long as the context lasts."""
    if device.type != "cuda":
        yield
        return
    matmul, conv = torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)
    if conv is None:  # torch before 2.9
        before = matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = mode == "tf32"
        try:
            yield
        finally:
            matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
        return
    kept = matmul.fp32_precision, conv.fp32_precision
    matmul.fp32_precision = conv.fp32_precision = mode
    try:
        yield
    finally:
        matmul.fp32_precision, conv.fp32_precision = kept
