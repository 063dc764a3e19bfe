"""Samples in closed form from the first layer: Phong et al., Privacy-Preserving Deep Learning via Additively Homomorphic
Encryption, TIFS 2018; Boenisch et al., When the Curious Abandon Honesty, EuroS&P 2023 (passively, with the models as they are).

The gradient of a unit's weights is the sum over samples of δ x, that of its bias the sum of δ. Where one sample alone moved a unit,
their ratio is that sample, exactly, and it stays so over steps and epochs; where several did, it is a mixture of them. So units
are many looks at few samples: small batches come back whole, large ones do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from covey.attacks.declaration import Reads
from covey.attacks.reconstruction.images import Floats, pixels
from covey.attacks.reconstruction.inversion import Inversion
from covey.attacks.uploads import LAYERS, Upload

SILENT = 1e-7  # of the largest change of a bias: below it a ratio is rounding


@dataclass
class FirstLayer(Inversion):
    """Every unit of the first layer gives one picture."""

    name: ClassVar[str] = "first_layer"
    label: ClassVar[str] = "First-layer inversion"
    title: ClassVar[str] = "samples as ratios of changes of a first linear layer (Phong et al. 2018)"
    reads: ClassVar[tuple[Reads, ...]] = LAYERS

    def unfit(self) -> str:
        shapes = list(self.known.network.shapes.values())
        inputs = math.prod(self.known.network.input_shape)
        linear = (
            len(shapes) > 1 and len(shapes[0]) == 2 and shapes[0][1] == inputs and tuple(shapes[1]) == (shapes[0][0],)
        )
        return super().unfit() or ("" if linear else "a network whose first layer is not linear")

    def recovered(self, seen: Upload, samples: int) -> Floats:
        names = list(self.known.network.shapes)[:2]
        change = self.known.network.unflatten(seen.change)
        weights, biases = (change[name].double().numpy() for name in names)
        heard = np.abs(biases) > SILENT * max(float(np.abs(biases).max()), 1e-30)
        ratios = weights[heard] / biases[heard][:, None]
        return pixels(ratios.clip(0, 1).reshape(-1, *self.known.network.input_shape))
