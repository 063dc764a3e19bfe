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
                f"the samples have shape {tuple(x.shape[1:])}, the network '{network.name}' was built for "
                f"{tuple(network.input_shape)}: build it for these samples"
            )
        if len(x) != len(y):
            raise CoveyError(f"{len(x)} samples but {len(y)} labels: there must be one label per sample")
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < network.classes:
            raise CoveyError(
                f"labels run from {int(y.min())} to {int(y.max())}, the network has {network.classes} classes: "
                f"labels must be 0 to {network.classes - 1}"
            )
        self.network = network
        self.x = x.reshape(len(x), math.prod(x.shape[1:])).to(device)
        self.y = y.to(device, torch.int64)
        self._pixels = network.kind == "image" and x.dtype == torch.uint8

    @property
    def at_once(self) -> int:
        """Samples to evaluate in one product: enough to be efficient, few enough for the caches (the memory of a GPU)."""
        kind = self.x.device.type
        fit = ROOM.get(kind, 64e6) / (4 * activations(self.network))
        return int(min(max(fit, 32), 16_384 if kind == "cuda" else 1024))

    def inputs(self, rows: Tensor) -> Tensor:
        """Samples `[..., *read_shape]` of rows `[...]`, as the network reads them."""
        network = self.network
        x = self.x.index_select(0, rows.reshape(-1))
        if network.kind == "tokens":
            return x.to(torch.int64).view(*rows.shape, *network.input_shape)
        x = x.to(torch.float32)
        if self._pixels:
            x.div_(255.0)
        if network.spec.layout == "flat":
            return x.view(*rows.shape, -1)
        x = x.view(*rows.shape, *network.input_shape)
        x = x.unsqueeze(-1) if len(network.input_shape) == 2 else x
        x = x.movedim(-1, -3)  # on a CPU channels stay last in memory: pooling is ten times as fast that way
        return x.contiguous() if x.device.type == "cuda" else x

    def labels(self, rows: Tensor) -> Tensor:
        return self.y.index_select(0, rows.reshape(-1)).view(rows.shape)
