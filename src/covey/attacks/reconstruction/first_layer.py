"""Samples in closed form from the first layer: Phong et al., Privacy-Preserving Deep Learning via Additively Homomorphic
Encryption, TIFS 2018; Boenisch et al., When the Curious Abandon Honesty, EuroS&P 2023 (passively, with the models as they are).

The gradient of a unit's weights is the sum over samples of δ x, that of its bias the sum of δ. Where one sample alone moved a unit,
their ratio is that sample, exactly, and it stays so over steps and epochs; where several did, it is a mixture of them. So units
are many looks at few samples: small batches come back whole, large ones do not.

A sample that came back whole comes back again in another round, a mixture does not: of the pictures of several uploads those count
on which two rounds agree most, as many as one upload gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.declaration import Reads
from covey.attacks.reconstruction.images import Floats, pixels
from covey.attacks.reconstruction.inversion import Inversion
from covey.attacks.uploads import LAYERS, Upload, upload
from covey.config import later

TWICE = 0.002  # mean squared error below which two pictures are one
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

    rounds: int = later(4)  # uploads of a client, its first, whose pictures are compared with each other; 1: none are

    def begin(self, knowledge: Knowledge) -> None:
        super().begin(knowledge)
        self.memory.setdefault("further", {})  # client -> [start [d], end [d]] of further uploads

    def observe(self, view: View) -> None:
        client = view.sender.removeprefix("client:")
        known = client in self.memory["uploads"]
        super().observe(view)
        kept = self.memory["further"].setdefault(client, []) if known else None
        if kept is None or len(kept) + 1 >= self.rounds:
            return
        seen = upload(self.got.get(view.sender), view.message, self.known.network.d, self.known.setting)
        if seen is not None:
            most = int((seen.end - seen.start).norm(dim=1).argmax())
            kept.append([seen.start[most].cpu(), seen.end[most].cpu()])

    def finding(self, truth: Truth) -> Finding:
        first = super().finding(truth)
        if self.unfit() or not any(self.memory["further"].values()):
            return first
        compared = self.compared(truth, self._agreed)
        if compared is None:
            return first
        match, control, blank, counted = compared
        used = f"up to {self.rounds} uploads of {len(counted)} clients: {sum(counted)} pictures on which two rounds agree most"
        used += self.scarce(counted)
        return replace(first, variants=[*first.variants, self.recovered_share("rounds", match, control, blank, used)])

    def _agreed(self, client: int, seen: Upload, samples: int) -> Floats:
        further = self.memory["further"].get(str(client), [])
        uploads = [seen, *(Upload(start[None], end[None]) for start, end in further)]
        return agreed([self.recovered(one, samples) for one in uploads])

    def recovered(self, seen: Upload, samples: int) -> Floats:
        names = list(self.known.network.shapes)[:2]
        change = self.known.network.unflatten(seen.change)
        weights, biases = (change[name].double().numpy() for name in names)
        heard = np.abs(biases) > SILENT * max(float(np.abs(biases).max()), 1e-30)
        ratios = weights[heard] / biases[heard][:, None]
        return pixels(ratios.clip(0, 1).reshape(-1, *self.known.network.input_shape))


def agreed(rounds: Sequence[Floats]) -> Floats:
    """Of the pictures of several rounds as many as the first has: those that another round has most alike, each once."""
    every = np.concatenate(rounds)
    flat = every.reshape(len(every), -1)
    of = np.repeat(np.arange(len(rounds)), [len(pictures) for pictures in rounds])
    apart = np.maximum((flat**2).sum(1)[:, None] + (flat**2).sum(1) - 2 * flat @ flat.T, 0) / max(flat.shape[1], 1)
    elsewhere = np.where(of[:, None] != of, apart, np.inf).min(1, initial=np.inf)
    chosen: list[int] = []
    for place in np.argsort(elsewhere):
        if len(chosen) == len(rounds[0]):
            break
        if not chosen or apart[place, chosen].min() > TWICE:
            chosen.append(int(place))
    return np.asarray(every[chosen])
