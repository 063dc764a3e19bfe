"""Models that cannot be trained: each is refused before anything runs, in one sentence that names the layer and what to do."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covey import CoveyError, Experiment
from covey.learn.flat import Network
from covey.models.choice import model_of


class Model(nn.Module):
    """A linear layer, and somebody's mistake in `forward`."""

    def __init__(
        self, mistake: Callable[[Model, Tensor], object] | None = None, features: int = 64, outputs: int = 3
    ) -> None:
        super().__init__()
        self.out = nn.Linear(features, outputs)
        self.mistake = mistake

    def forward(self, x: Tensor) -> object:
        return self.out(x.flatten(1)) if self.mistake is None else self.mistake(self, x)


def with_parameter(value: Tensor, grad: bool = True) -> nn.Module:
    module = Model()
    module.extra = nn.Parameter(value, requires_grad=grad)
    return module


def frozen() -> nn.Module:
    return Model().requires_grad_(False)


def spoilt() -> nn.Module:
    module = Model()
    with torch.no_grad():
        module.out.bias[1] = torch.nan
    return module


def spoilt_buffer() -> nn.Module:
    module = Model()
    module.register_buffer("mean", torch.tensor([torch.inf]))
    return module


MODULES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "too few outputs": (lambda: Model(outputs=2), r"gives \[3, 2\].*has 3 classes.*last layer must give 3"),
    "one output": (lambda: Model(outputs=1), r"gives \[3, 1\], expected one tensor \[3, 3\]"),
    "outputs of every pixel": (lambda: Model(lambda m, x: m.out(x.flatten(1))[:, None]), r"gives \[3, 1, 3\]"),
    "one score for the batch": (lambda: Model(lambda m, x: m.out(x.flatten(1)).mean(0)), r"gives \[3\]"),
    "a tuple": (lambda: Model(lambda m, x: (m.out(x.flatten(1)), x)), "gives a tuple of 2.*return the outputs alone"),
    "a table": (
        lambda: Model(lambda m, x: {"logits": m.out(x.flatten(1))}),
        "gives a dict of 1.*return the outputs alone",
    ),
    "nothing": (lambda: Model(lambda m, x: None), "gives a NoneType"),
    "classes, not scores": (
        lambda: Model(lambda m, x: m.out(x.flatten(1)).round().long()),
        "gives int64 outputs.*argmax",
    ),
    "no parameters": (lambda: nn.Flatten(), "has no parameters.*register layers as attributes"),
    "all frozen": (frozen, "all 2 parameters are frozen.*leave at least one layer to train"),
    "complex": (
        lambda: with_parameter(torch.zeros(2, dtype=torch.complex64)),
        "'extra' is complex64.*real and an imaginary",
    ),
    "whole numbers": (
        lambda: with_parameter(torch.zeros(2, dtype=torch.int64), False),
        "'extra' is int64.*make it a buffer",
    ),
    "double": (lambda: Model().double(), r"'out.weight' is float64.*call .float\(\)"),
    "half": (lambda: Model().half(), "'out.weight' is float16"),
    "empty": (lambda: with_parameter(torch.zeros(0, 4)), r"'extra' has the shape \(0, 4\).*check the layer's sizes"),
    "NaN at the start": (spoilt, "'out.bias' holds NaN.*check how it is initialised"),
    "infinite buffer": (spoilt_buffer, "'mean' holds NaN or infinite"),
    "NaN outputs": (
        lambda: Model(lambda m, x: m.out(x.flatten(1)) / 0),
        "gives NaN or infinite outputs before any training",
    ),
    "other inputs": (lambda: Model(features=100), r"float32 \[3, 1, 8, 8\]: layer 'out' fails with RuntimeError"),
    "other channels": (
        lambda: nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 3)),
        r"layer '0' fails with RuntimeError: Given groups=1",
    ),
    "two inputs": (lambda: Model(lambda m, x: m.forward(x, x)), "fails with TypeError"),
    "tokens wanted": (
        lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(256, 3)),
        "layer '0' fails with",
    ),
    "detached": (lambda: Model(lambda m, x: m.out(x.flatten(1)).detach()), "no gradient comes back.*must not detach"),
    "layers unused": (
        lambda: Model(lambda m, x: torch.zeros(len(x), 3, requires_grad=True) + 0),
        "no trained parameter has a part in its outputs",
    ),
    "gradient of a root at 0": (
        lambda: Model(lambda m, x: (m.out(x.flatten(1)) * 0).abs().sqrt() + m.out(x.flatten(1))),
        "the gradient of 'out.weight' is not finite",
    ),
    "norm of one value": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 3), nn.Unflatten(1, (3, 1)), nn.InstanceNorm1d(3), nn.Flatten()
        ),
        "layer '3' fails with ValueError: Expected more than 1 spatial element",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_cannot_be_trained(name: str) -> None:
    build, words = MODULES[name]
    with pytest.raises(CoveyError, match=words) as refused:
        _ = Network(model_of(build()), (8, 8), 3).d
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


def test_lazy_layers_and_what_cannot_be_copied() -> None:
    with pytest.raises(CoveyError, match=r"lazy layers.*run one batch through it"):
        model_of(nn.Sequential(nn.Flatten(), nn.LazyLinear(3)))
    with pytest.raises(CoveyError, match=r"layer '1' is lazy.*write its sizes out"):
        _ = Network(f"{__name__}:lazy", (8, 8), 3).d
    stubborn = Model()
    stubborn.handle = (n for n in range(3))
    with pytest.raises(CoveyError, match=r"cannot be copied.*give a function that builds it"):
        model_of(stubborn)


def test_tokens_beyond_the_vocabulary_and_too_long_a_text() -> None:
    with pytest.raises(CoveyError, match=r"layer '0' fails with IndexError.*an embedding must have `vocabulary` rows"):
        _ = Network(f"{__name__}:few_words", (7,), 2, "tokens", 50).d
    with pytest.raises(CoveyError, match="the text transformer reads one sequence"):
        _ = Network("text_transformer", (7, 2), 2, "tokens", 50).d


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))


def few_words(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(28, outputs))


def unseeded() -> nn.Module:
    module = Model()
    with torch.no_grad():
        module.out.bias.fill_(random.random())
    return module


def needs_width(width: int, outputs: int) -> nn.Module:
    return Model(outputs=outputs)


def fails() -> nn.Module:
    raise ValueError("no such file: weights.pt")


def gives_text() -> str:
    return "net"


built = Model()
number = 7


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("nowhere:Net", "there is no module 'nowhere'"),
        (f"{__name__}:Nett", "has no 'Nett'"),
        (f"{__name__}:number", r"is no model: expected a torch\.nn\.Module class, a function"),
        (f"{__name__}:built", "is one module that is already built: write the path of its class"),
        (f"{__name__}:gives_text", r"gave a str: expected a torch\.nn\.Module"),
        (
            f"{__name__}:fails",
            r"could not be built.*ValueError: no such file: weights.pt \(at .*test_refused_models\.py:\d+\)",
        ),
        (f"{__name__}:needs_width", "needs an argument 'width': set model.width"),
        (
            {"name": f"{__name__}:needs_width", "widht": 3},
            "model.widht is set, but .* takes no such argument: it takes width",
        ),
        ({"name": f"{__name__}:needs_width", "width": {"a": 1}}, "model.width is {'a': 1}: expected a number"),
        (f"{__name__}:unseeded", "parameter 'out.bias' begins otherwise each time"),
        ({"name": "cnn", "width": 3}, "model.width is set, but model 'cnn' has no options"),
        ({"rank": 3}, "model.name is missing"),
        ("lora", "needs model.base"),
        ({"name": "lora", "base": "nowhere", "rank": 0}, "model.rank is 0"),
        ({"name": "lora", "base": "nowhere"}, "expected a folder with config.json"),
        ({"name": "lora", "base": f"{__name__}:Model", "targets": ["attention*"]}, "match no linear layer of the base"),
        ({"name": "lora", "base": f"{__name__}:Model", "train": ["head"]}, "matches no layer of the base: it has out"),
        (7, "model is 7: expected a name"),
        (lambda: None, "defined inside a function"),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_what_is_no_model(model: object, words: str) -> None:
    with pytest.raises(CoveyError, match=words) as refused:
        _ = Network(Experiment.of(model=model).model, (8, 8), 3).d
    assert "\n" not in str(refused.value)


def test_an_own_loss_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for loss, words in {
        "mse": "is for numbers, and the data's task is 'classes': choose cross_entropy",
        f"{__name__}:number": "expected a function of outputs and targets",
        f"{__name__}:mean_loss": r"gave \[\] for 3 samples: expected one number for each sample",
        f"{__name__}:flat_loss": "gives no gradient",
        f"{__name__}:wrong_loss": "failed on outputs",
    }.items():
        with pytest.raises(CoveyError, match=words):
            _ = Network("fcnn", (8, 8), 3, loss_name=loss).loss
    with pytest.raises(CoveyError, match=r"training.loss is 'hubert', did you mean 'huber'"):
        Experiment.of(training={"loss": "hubert"})
    with pytest.raises(CoveyError, match=r"layers\.buffers is 'mine': 'shared' or 'local'"):
        Experiment.of(layers={"buffers": "mine"})


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets)


def flat_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return targets.float()


def wrong_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs @ targets.float().view(2, 2)


def test_samples_that_are_not_finite_are_named() -> None:
    from covey.learn.machine import Machine

    x = np.ones((5, 8, 8), np.float32)
    x[3, 2, 2] = np.nan
    with pytest.raises(CoveyError, match="sample 3 holds NaN"):
        Machine(Network("fcnn", (8, 8), 3, "real"), x, np.zeros(5, np.int64))


def test_without_a_last_linear_layer_nothing_reads_it() -> None:
    net = Network(model_of(Model(lambda m, x: m.out(x.flatten(1)) * 2)), (8, 8), 3)
    assert net.features == 0
    with pytest.raises(
        CoveyError, match=r"a second head reads what the last layer.*return the outputs of an nn.Linear"
    ):
        net.head_size(2)

    class Reordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(8, 3)
            self.body = nn.Linear(64, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.body(x.flatten(1)))

    with pytest.raises(CoveyError, match=r"end in 'body.bias': register the output layer last"):
        Network(model_of(Reordered()), (8, 8), 3).output_size("an attack")
