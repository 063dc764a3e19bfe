"""A compression of your own: one bit for each number, its sign, and one size for all (Seide et al. 2014; Karimireddy et al. 2019).

cd examples && covey run ifca-digits --set compression=own_compression:Signs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey import CoveyError, Experiment, run


@dataclass(frozen=True)
class Signs:
    name: ClassVar[str] = "signs"
    label: ClassVar[str] = "Signs"
    title: ClassVar[str] = "the sign of every change, and their mean size"

    feedback: bool = True  # what was not sent is added to what is sent next: without it signs do not learn

    def encode(self, vector: Tensor, random: np.random.Generator) -> dict[str, Any]:
        """What crosses the wire in place of a vector: tensors and numbers by name."""
        bits = np.packbits((vector >= 0).cpu().numpy())
        return {"bits": torch.from_numpy(bits), "size": float(vector.abs().mean())}

    def decode(self, packed: dict[str, Any], length: int) -> Tensor:
        """What the server reads. It may come from anybody: refuse what `encode` cannot have given."""
        bits, size = packed.get("bits"), packed.get("size")
        if not isinstance(bits, Tensor) or bits.dtype != torch.uint8 or len(bits) != -(-length // 8):
            raise CoveyError(f"holds something else than {length} signs")
        if not isinstance(size, float):
            raise CoveyError("holds no size")
        signs = np.unpackbits(bits.cpu().numpy(), count=length)
        return torch.from_numpy(signs.astype(np.float32) * 2 - 1) * size


if __name__ == "__main__":
    experiment = Experiment.of(
        dataset="digits", algorithm="fedavg", clients=10, clusters=1, partition="iid", compression=Signs()
    )
    result = run(experiment)
    print(result.accuracy["global"], result.bytes["up"])
