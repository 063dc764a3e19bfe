"""The model that a silo takes home from a deployed run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covey.errors import CoveyError
from covey.files import read_state
from covey.learn.flat import Network
from covey.learn.machine import Machine
from covey.learn.work import Job, Logits
from covey.messages import message
from covey.models.choice import model_of


@message
@dataclass(frozen=True)
class SiloModel:
    """Predict with row `index` of `models`, or with the mixture of all by `weights`."""

    models: torch.Tensor  # [m, d]
    index: int
    weights: torch.Tensor | None
    network: Any  # its name, or its table where it has options
    shape: list[int]
    classes: list[str]
    kind: str
    vocabulary: int
    accuracy: float | None  # on the silo's own test samples
    task: str = "classes"
    buffers: str = "shared"

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """[n, classes] for samples as the silo's data folder has them: of labels each one's own, of numbers the numbers."""
        if x.ndim != len(self.shape) + 1 or list(x.shape[1:]) != self.shape:
            raise CoveyError(f"samples of the shape {list(x.shape[1:])} were given, the model reads {self.shape}")
        network = Network(
            model_of(self.network),
            tuple(self.shape),
            len(self.classes),
            self.kind,
            self.vocabulary,
            self.task,
            buffers=self.buffers,
        )
        blank = (
            np.zeros(len(x), np.int64) if self.task == "classes" else np.zeros((len(x), len(self.classes)), np.float32)
        )
        machine = Machine(network, x, blank)
        used = self.models if self.weights is not None else self.models[self.index : self.index + 1]
        (logits,) = machine.compute([Job(torch.arange(len(x)), 0, Logits(used))])  # [m, n, classes]
        weights = torch.ones(1) if self.weights is None else self.weights
        scores = {"classes": logits.softmax(2), "labels": logits.sigmoid()}.get(self.task, logits)
        mixed: NDArray[np.float32] = torch.einsum("mnc,m->nc", scores, weights.to(logits)).cpu().numpy()
        return mixed

    def predict(self, x: NDArray[Any]) -> list[str]:
        """The most probable class of each sample."""
        if self.task != "classes":
            raise CoveyError(f"the model predicts {self.task}, not one class of several: read `probabilities`")
        return [self.classes[c] for c in self.probabilities(x).argmax(1)]


def load_model(folder: str | Path) -> SiloModel:
    """From the state folder of a silo whose run is over."""
    path = Path(folder) / "model.bin"
    if not path.is_file():
        raise CoveyError(f"there is no model in {folder}: its run is not over, or trained none for this silo")
    model = read_state(path)
    if not isinstance(model, SiloModel):
        raise CoveyError(f"{path} is not a silo's model")
    return model
