"""The dataset on a device, in its own small type; rows become floats only when a batch needs them."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.objective import activations

PART = 65_536  # samples that are checked at a time
ROOM = {"cpu": 64e6, "cuda": 4e9}  # bytes that the activations of one evaluated part may take


class Samples:
    """All samples a machine can see. Pixels stay uint8: 1/4 of the memory, and of the traffic of a gather."""

    def __init__(
        self,
        network: Network,
        x: Tensor | NDArray[np.generic],
        y: Tensor | NDArray[np.generic],
        device: torch.device,
    ) -> None:
        with warnings.catch_warnings():  # datasets are read-only arrays, and nothing here writes to them
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            x, y = torch.as_tensor(x), torch.as_tensor(y)
        if tuple(x.shape[1:]) != tuple(network.input_shape):
            raise CoveyError(
                f"the samples have shape {tuple(x.shape[1:])}, the network '{network.title}' was built for "
                f"{tuple(network.input_shape)}: build it for these samples"
            )
        if len(x) != len(y):
            raise CoveyError(f"{len(x)} samples but {len(y)} labels: there must be one label per sample")
        _check_inputs(x)
        _check_targets(network, y)
        self.network = network
        self.x = x.reshape(len(x), math.prod(x.shape[1:])).to(device)
        self.y = y.to(device, torch.int64 if network.task == "classes" else torch.float32)
        self._pixels = network.kind == "image" and x.dtype == torch.uint8

    @property
    def at_once(self) -> int:
        """Samples to evaluate in one product: enough to be efficient, few enough for the caches (the memory of a GPU)."""
        kind = self.x.device.type
        fit = ROOM.get(kind, 64e6) / (4 * activations(self.network))
        return int(min(max(fit, 32), 16_384 if kind == "cuda" else 1024))

    @property
    def scale(self) -> float:
        """What a stored number is multiplied by where the network reads it."""
        return 1 / 255 if self._pixels else 1.0

    def inputs(self, rows: Tensor) -> Tensor:
        """Samples `[..., *read_shape]` of rows `[...]`, as the network reads them."""
        network = self.network
        x = self.x.index_select(0, rows.reshape(-1))
        if network.kind == "tokens":
            return x.to(torch.int64).view(*rows.shape, *network.input_shape)
        layout = network.spec.layout
        if self._pixels and x.is_cuda and layout == "image":  # turned around as bytes: a quarter of the traffic
            x = x.view(*rows.shape, *network.input_shape)
            x = x.unsqueeze(-1) if len(network.input_shape) == 2 else x
            return torch.div(x.movedim(-1, -3).contiguous(), 255.0)
        x = x.to(torch.float32)
        if self._pixels:
            x.div_(255.0)
        if layout == "flat":
            return x.view(*rows.shape, -1)
        x = x.view(*rows.shape, *network.input_shape)
        if layout == "own" and network.read_shape == network.input_shape:
            return x
        x = x.unsqueeze(-1) if len(network.input_shape) == 2 else x
        x = x.movedim(-1, -3)  # on a CPU channels stay last in memory: pooling is ten times as fast that way
        return x.contiguous() if x.device.type == "cuda" or layout == "own" else x

    def labels(self, rows: Tensor) -> Tensor:
        """Targets `[...]` of rows `[...]`, or `[..., outputs]` where the task is not one class of several."""
        return self.y.index_select(0, rows.reshape(-1)).view(*rows.shape, *self.y.shape[1:])


def _check_inputs(x: Tensor) -> None:
    if x.is_complex():
        raise CoveyError(f"the samples are {str(x.dtype).removeprefix('torch.')}: expected numbers")
    if not x.is_floating_point():
        return
    for first, part in enumerate(torch.split(x, PART)):
        wrong = ~torch.isfinite(part.flatten(1)).all(1)
        if wrong.any():
            row = first * PART + int(wrong.nonzero()[0])
            raise CoveyError(f"sample {row} holds NaN or infinite values: leave such rows out, or fill them in")


def _check_targets(network: Network, y: Tensor) -> None:
    if network.task == "classes":
        if y.dim() != 1 or y.is_floating_point():
            raise CoveyError(
                f"labels are {str(y.dtype).removeprefix('torch.')} {list(y.shape)}: expected one whole number per sample, "
                "or a dataset whose task is 'labels' or 'numbers'"
            )
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < network.classes:
            raise CoveyError(
                f"labels run from {int(y.min())} to {int(y.max())}, the network has {network.classes} classes: "
                f"labels must be 0 to {network.classes - 1}"
            )
        return
    if tuple(y.shape[1:]) != (network.classes,):
        raise CoveyError(
            f"targets of the task '{network.task}' have shape {list(y.shape)}: expected [{len(y)}, {network.classes}], "
            f"{network.classes} for each sample"
        )
    if not torch.isfinite(y).all():
        raise CoveyError(f"targets of the task '{network.task}' hold NaN or infinite values: leave such rows out")
    if network.task == "labels" and not ((y == 0) | (y == 1)).all():
        raise CoveyError(
            "targets of the task 'labels' must be 0 or 1: one number for each label that a sample may have"
        )
