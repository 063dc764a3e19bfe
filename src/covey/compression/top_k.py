"""Top-k: the largest numbers of a vector and their places; what is left out is sent later (error feedback).

Stich, Cordonnier, Jaggi, Sparsified SGD with Memory, NeurIPS 2018. 8 bytes for each number that is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.compression.replies import Packed
from covey.errors import CoveyError


@dataclass(frozen=True)
class TopK:
    name: ClassVar[str] = "top_k"
    label: ClassVar[str] = "top-k"
    title: ClassVar[str] = "the largest changes of a model only, the others later (Stich et al. 2018)"

    share: float = 0.01  # of the numbers of a vector
    feedback: bool = True  # without it what is left out is lost

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise CoveyError(f"compression.share is {self.share}: it must be above 0 and at most 1")

    def encode(self, vector: Tensor, random: np.random.Generator) -> Packed:
        count = max(1, round(self.share * len(vector)))
        at = vector.abs().topk(count).indices.sort().values
        return {"at": at.to(torch.int32), "values": vector[at]}

    def decode(self, packed: Packed, length: int) -> Tensor:
        at, values = packed.get("at"), packed.get("values")
        if not isinstance(at, Tensor) or not isinstance(values, Tensor):
            raise CoveyError("holds no places and values")
        if at.dtype != torch.int32 or at.dim() != 1 or values.shape != at.shape or values.dtype != torch.float32:
            raise CoveyError("holds other places and values than pairs of int32 and float32")
        places = at.long()
        if len(places) and not (int(places[0]) >= 0 and int(places[-1]) < length and bool((places.diff() > 0).all())):
            raise CoveyError(f"names places that are not in order, or not below {length}")
        vector = torch.zeros(length, device=values.device)
        vector[places] = values
        return vector
