"""Pictures from singular vectors of a client's samples: the first is nearly their mean, the others are how they differ from it.

A client that sends the p leading vectors sends its mean picture up to brightness, and with the first plus or minus one of the
others pictures that look like its samples where these are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from covey import roles
from covey.attacks.contract import View
from covey.attacks.declaration import Reads
from covey.attacks.reconstruction.images import Floats, pixels
from covey.attacks.reconstruction.inversion import Inversion
from covey.attacks.uploads import Upload


@dataclass
class SingularPictures(Inversion):
    name: ClassVar[str] = "singular_pictures"
    label: ClassVar[str] = "Pictures from singular vectors"
    title: ClassVar[str] = "the mean picture of a client and how its samples differ from it, from singular vectors"
    reads: ClassVar[tuple[Reads, ...]] = (Reads((roles.SingularVectors,)),)

    def observe(self, view: View) -> None:
        kept, client = self.memory["uploads"], view.sender.removeprefix("client:")
        vectors = roles.first(view.message, roles.SingularVectors)
        if vectors is None or client in kept or len(kept) >= self.clients or self.unfit():
            return
        kept[client] = vectors.detach().cpu()

    def uploads(self) -> Iterator[tuple[int, Upload, int]]:
        for client, vectors in sorted(self.memory["uploads"].items(), key=lambda item: int(item[0])):
            yield int(client), Upload(torch.zeros_like(vectors.T), vectors.T), 0

    def recovered(self, seen: Upload, samples: int) -> Floats:
        shape = self.known.network.input_shape
        vectors = (seen.end - seen.start).double().numpy()  # [p, inputs]
        if vectors.shape[1] != int(np.prod(shape)):
            return pixels(np.zeros((0, *shape)))
        first, others = vectors[0] * np.sign(vectors[0].sum() or 1.0), vectors[1:]
        pictures = np.stack([first, *(first + sign * other for other in others for sign in (1, -1))])
        brightest = np.maximum(pictures.max(1, keepdims=True), 1e-12)
        return pixels((pictures / brightest).clip(0, 1).reshape(-1, *shape))
