"""The way of tensors to a device and back, without waiting where that can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

PINNED = 16 << 20  # bytes


def joined(parts: list[Tensor], device: torch.device) -> Tensor:
    """All parts in one tensor on the device: joined where they are, so that one copy takes them there."""
    mixed = len({part.device for part in parts}) > 1
    return there(torch.cat([part.to(device) for part in parts] if mixed else parts), device)


def there(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device. From memory that stays in place the host need not wait for the copy; such memory is dear, so little of it."""
    if device.type == "cuda" and not tensor.is_cuda and tensor.nbytes <= PINNED:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def on_its_way(tensor: Tensor) -> Callable[[], NDArray[Any]]:
    """The way back: a copy that is begun now, and waited for when it is looked at. What was copied may be overwritten."""
    copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda).copy_(tensor, non_blocking=True)
    arrived = torch.cuda.current_stream(tensor.device).record_event() if tensor.is_cuda else None

    def look() -> NDArray[Any]:
        if arrived is not None:
            arrived.synchronize()
        return copy.numpy()

    return look
