"""8 bits a number: each block of a vector is scaled by its largest number and rounded to -127 … 127.

Stochastic rounding is right on average (Alistarh et al., QSGD, NeurIPS 2017), so it needs no error feedback; rounding to the
nearest level is not, and may keep what it loses for later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.compression.replies import Packed
from covey.errors import CoveyError, meant

LEVELS = 127
ROUNDINGS = ("stochastic", "nearest")


@dataclass(frozen=True)
class EightBit:
    name: ClassVar[str] = "eight_bit"
    label: ClassVar[str] = "8-bit"
    title: ClassVar[str] = "changes of a model in 8 bits a number, rounded stochastically (Alistarh et al. 2017)"

    rounding: str = "stochastic"  # or "nearest"
    block: int = 1024  # numbers that share a scale, of 4 bytes
    feedback: bool = False  # what rounding loses is added to what is sent next

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise CoveyError(
                f"compression.rounding is {self.rounding!r}: 'stochastic' or 'nearest'{meant(self.rounding, ROUNDINGS)}"
            )
        if self.block < 1:
            raise CoveyError(f"compression.block is {self.block}: at least 1 number shares a scale")

    def encode(self, vector: Tensor, random: np.random.Generator) -> Packed:
        blocks = _blocks(vector, self.block)
        scales = blocks.abs().amax(1) / LEVELS
        scaled = blocks / torch.where(scales > 0, scales, 1.0)[:, None]
        if self.rounding == "stochastic":
            drawn = torch.from_numpy(random.random(scaled.numel(), np.float32)).view_as(scaled)
            scaled = (scaled + drawn.to(scaled.device)).floor()
        levels = scaled.round().clamp(-LEVELS, LEVELS).to(torch.int8).reshape(-1)[: len(vector)]
        return {"levels": levels, "scales": scales}

    def decode(self, packed: Packed, length: int) -> Tensor:
        levels, scales = packed.get("levels"), packed.get("scales")
        if not isinstance(levels, Tensor) or levels.dtype != torch.int8 or levels.shape != (length,):
            raise CoveyError(f"holds something else than {length} levels of 8 bits")
        count = -(-length // self.block)
        if not isinstance(scales, Tensor) or scales.dtype != torch.float32 or scales.shape != (count,):
            raise CoveyError(f"holds something else than {count} scales")
        return (_blocks(levels.float(), self.block) * scales[:, None]).reshape(-1)[:length]


def _blocks(vector: Tensor, size: int) -> Tensor:
    """[blocks, size], the last one filled up with zeros."""
    missing = -len(vector) % size
    return torch.nn.functional.pad(vector, (0, missing)).view(-1, size)
