"""What a network is before it knows its input, and how it is built for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from covey.errors import CoveyError
from covey.models import MODELS
from covey.models.classifier import Classifier

VOCABULARY = 10_000  # of token networks, unless said otherwise


@dataclass(frozen=True)
class Spec:
    """A network before it knows its input."""

    name: str
    title: str
    layout: str  # what the first layer reads: flat, image (channels first) or tokens
    make: Callable[[tuple[int, ...], int, int], Classifier]  # (input shape as the layout has it, classes, vocabulary)
    parameters: int = 0  # for 28×28 inputs (image: 32×32×3, tokens: any) and 10 classes, as lists show it; 0: not said

    def build(
        self, input_shape: tuple[int, ...], classes: int, kind: str = "image", vocabulary: int = VOCABULARY
    ) -> Classifier:
        """The module for samples shaped as the dataset holds them: (h, w), (h, w, channels), (features,), (tokens,)."""
        return self.make(self.read_shape(input_shape, kind), classes, vocabulary)

    def read_shape(self, input_shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
        """The shape of one sample as the first layer reads it."""
        if (kind == "tokens") != (self.layout == "tokens"):
            fits = [
                MODELS.word(entry)
                for entry in MODELS.entries
                if (entry.declared.get("layout") == "tokens") == (kind == "tokens")
            ]
            raise CoveyError(f"model '{self.title}' cannot read data of kind '{kind}': choose one of {', '.join(fits)}")
        if self.layout != "image":
            return input_shape
        if len(input_shape) not in (2, 3) or min(input_shape[:2]) < 8:
            raise CoveyError(
                f"model '{self.title}' reads images of at least 8×8, the samples have shape {input_shape}: "
                "choose a model of linear layers such as 'mlp'"
            )
        return (input_shape[2] if len(input_shape) == 3 else 1, input_shape[0], input_shape[1])
