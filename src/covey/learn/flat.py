"""Networks as flat vectors: which slice of `[d]` is which parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from covey.models.classifier import Classifier
from covey.models.spec import VOCABULARY, Spec, spec

if TYPE_CHECKING:
    from covey.data.federation import Dataset


@dataclass(frozen=True)
class Network:
    """A network for one kind of samples. Equal fields mean an equal layout of the flat vector."""

    name: str
    input_shape: tuple[int, ...]  # of a sample as the dataset holds it: (h, w), (h, w, c), (features,) or (tokens,)
    classes: int  # numbers that it gives for a sample: one per class, per label, or per number to predict
    kind: str = "image"  # as in Dataset.kind
    vocabulary: int = VOCABULARY  # tokens only: ids run from 0 (padding) to vocabulary - 1
    task: str = "classes"  # as in Dataset.task

    @classmethod
    def of(cls, name: str, dataset: Dataset) -> Network:
        """The network of this name for a dataset."""
        vocabulary = VOCABULARY
        if dataset.kind == "tokens":
            vocabulary = int(max(dataset.x_train.max(), dataset.x_test.max())) + 1  # type: ignore[operator]
        return cls(name, tuple(dataset.x_train.shape[1:]), dataset.outputs, dataset.kind, vocabulary, dataset.task)

    @cached_property
    def spec(self) -> Spec:
        return spec(self.name)

    @cached_property
    def read_shape(self) -> tuple[int, ...]:
        """Of a sample as the first layer reads it."""
        return self.spec.read_shape(self.input_shape, self.kind)

    def module(self, device: str | torch.device = "cpu") -> Classifier:
        """A module with all parameters zero, to `write` a vector into; building it leaves torch's generator alone."""
        with torch.device("meta"):
            module = self.spec.build(self.input_shape, self.classes, self.kind, self.vocabulary)
        if torch.device(device).type == "meta":
            return module
        module.to_empty(device=device)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()
        return module

    @cached_property
    def _shape_of(self) -> tuple[dict[str, torch.Size], int]:
        module = self.module("meta")
        return {name: p.shape for name, p in module.named_parameters()}, module.last.in_features

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """Shape of every parameter, in the order of the flat vector."""
        return self._shape_of[0]

    @property
    def features(self) -> int:
        """Width of the last hidden layer: what the last layer (and a second head) reads."""
        return self._shape_of[1]

    @cached_property
    def d(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def head_size(self, classes: int) -> int:
        """Parameters of a second head with this many classes."""
        return (self.features + 1) * classes

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of `[..., d]`, one per parameter, `[..., *shape]`."""
        return views(vector, self.shapes)

    def flatten(self, parameters: dict[str, Tensor]) -> Tensor:
        """The flat vector [d] of named parameters."""
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.shapes])

    def read(self, module: nn.Module) -> Tensor:
        """The flat vector [d] of a module's parameters."""
        return self.flatten(dict(module.named_parameters()))

    def write(self, vector: Tensor, module: nn.Module) -> None:
        """Sets a module's parameters."""
        own = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self.unflatten(vector).items():
                own[name].copy_(value)


def views(vector: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """`[..., d]` cut into `[..., *shape]`, in the order of `shapes`."""
    parts = torch.split(vector, [math.prod(shape) for shape in shapes.values()], dim=-1)
    return {name: part.view(*part.shape[:-1], *shape) for (name, shape), part in zip(shapes.items(), parts)}
