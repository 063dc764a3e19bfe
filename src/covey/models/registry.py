"""Names of the networks, what each is, and how it is built for an input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from covey.errors import CoveyError, nearest
from covey.models import conv
from covey.models.classifier import Classifier
from covey.models.dense import LEAK, dense
from covey.models.gru import gru

VOCABULARY = 10_000  # of token networks, unless said otherwise


@dataclass(frozen=True)
class Spec:
    """A network before it knows its input."""

    title: str
    layout: str  # what the first layer reads: flat, image (channels first) or tokens
    make: Callable[[tuple[int, ...], int, int], Classifier]  # (input shape as the layout has it, classes, vocabulary)

    def build(
        self, input_shape: tuple[int, ...], classes: int, kind: str = "image", vocabulary: int = VOCABULARY
    ) -> Classifier:
        """The module for samples shaped as the dataset holds them: (h, w), (h, w, channels), (features,), (tokens,)."""
        return self.make(self.read_shape(input_shape, kind), classes, vocabulary)

    def read_shape(self, input_shape: tuple[int, ...], kind: str) -> tuple[int, ...]:
        """The shape of one sample as the first layer reads it."""
        if (kind == "tokens") != (self.layout == "tokens"):
            fits = [name for name, spec in MODELS.items() if (spec.layout == "tokens") == (kind == "tokens")]
            raise CoveyError(f"model '{self.title}' cannot read data of kind '{kind}': choose one of {', '.join(fits)}")
        if self.layout != "image":
            return input_shape
        if len(input_shape) not in (2, 3) or min(input_shape[:2]) < 8:
            raise CoveyError(
                f"model '{self.title}' reads images of at least 8×8, the samples have shape {input_shape}: "
                "choose a model of linear layers such as 'mlp'"
            )
        return (input_shape[2] if len(input_shape) == 3 else 1, input_shape[0], input_shape[1])


def _dense(title: str, hidden: tuple[int, ...], leak: float = 0.0) -> Spec:
    return Spec(title, "flat", lambda shape, classes, _: dense(shape, hidden, classes, leak))


def _image(title: str, make: Callable[[int, int, int, int], Classifier]) -> Spec:
    return Spec(title, "image", lambda shape, classes, _: make(shape[0], shape[1], shape[2], classes))


MODELS: dict[str, Spec] = {
    "softmax": _dense("softmax regression: one linear layer", ()),
    "fcnn": _dense("fully connected, one hidden layer of 200", (200,)),
    "fcnn_leaky": _dense("fully connected, one hidden layer of 200, LeakyReLU", (200,), LEAK),
    "mlp": _dense("fully connected, hidden layers of 200 and 100", (200, 100)),
    "mlp_wide": _dense("fully connected, hidden layers of 1024, 512 and 256 (Texas100, Purchase100)", (1024, 512, 256)),
    "cnn": _image("two 5×5 convolutions with pooling, three linear layers (LeNet-like)", conv.lenet),
    "cnn5": _image("two 5×5 convolutions (32, 64) with 2×2 pooling, linear layer of 512", conv.cnn5),
    "lfw_cnn": _image("three 3×3 convolutions (32, 64, 128) with 2×2 pooling, linear layer of 256", conv.lfw_cnn),
    "resnet18": Spec(
        "ResNet-18 for small images, GroupNorm", "image", lambda shape, classes, _: conv.resnet18(shape[0], classes)
    ),
    "gru": Spec("GRU, embedding 100, hidden 128", "tokens", lambda _, classes, vocabulary: gru(vocabulary, classes)),
}


def spec(name: str) -> Spec:
    """The network of this name, or an error with the nearest name."""
    if name not in MODELS:
        raise CoveyError(f"unknown model '{name}'{nearest(name, list(MODELS))}")
    return MODELS[name]
