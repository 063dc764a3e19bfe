"""The model that a silo takes home from a deployed run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covey.algorithms.contract import Predictor
from covey.data.own.new import of_samples
from covey.errors import CoveyError
from covey.files import read_state
from covey.learn.flat import Network
from covey.learn.predict import probabilities
from covey.messages import message
from covey.models.choice import model_of
from covey.results.models import Models, keep, read_feature

MODEL = "model.bin"  # in a silo's state folder


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
    fingerprint: str = ""  # of the network beyond its vector
    columns: list[dict[str, Any]] = field(
        default_factory=list
    )  # how a table became samples, by its own means and deviations: fields of `Feature`

    @property
    def _network(self) -> Network:
        network = Network(
            model_of(self.network),
            tuple(self.shape),
            len(self.classes),
            self.kind,
            self.vocabulary,
            self.task,
            buffers=self.buffers,
        )
        network.check_fingerprint(self.fingerprint, "this silo's model")
        return network

    def trained(self) -> Models:
        """The same as the models of a run are, of which this silo is client 0."""
        index = None if self.weights is not None else self.index
        columns = [read_feature(column) for column in self.columns]
        kept = keep([(0, Predictor(self.models, index, self.weights))], self._network, self.classes, columns)
        return Models(kept, self._network)

    def probabilities(self, x: Any) -> NDArray[np.float32]:
        """[n, classes] for samples as the silo's data folder has them: of labels each one's own, of numbers the numbers.

        Where that held tables, a frame with the same columns, read as its training rows were; an array is taken as encoded already.
        """
        used = self.models if self.weights is not None else self.models[self.index : self.index + 1]
        columns = [read_feature(column) for column in self.columns]
        return probabilities(self._network, used, self.weights, of_samples(x, columns))

    def predict(self, x: Any) -> list[str]:
        """The most probable class of each sample."""
        if self.task != "classes":
            raise CoveyError(f"the model predicts {self.task}, not one class of several: read `probabilities`")
        return [self.classes[c] for c in self.probabilities(x).argmax(1)]


def load_model(folder: str | Path) -> SiloModel:
    """From the state folder of a silo whose run is over."""
    path = Path(folder) / MODEL
    if not path.is_file():
        raise CoveyError(f"there is no model in {folder}: its run is not over, or trained none for this silo")
    model = read_state(path)
    if not isinstance(model, SiloModel):
        raise CoveyError(f"{path} is not a silo's model")
    return model
