"""Squares of single samples' gradients without the gradients, against one sample after another; and who must not be taken for one
whose factors are known.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from covey import randomness
from covey.learn.examine import example_inputs
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels import factors
from covey.learn.kernels.convolutions.convolutions import Pair
from covey.learn.kernels.factors import Unknown, add_squares, gradient, known, layers_of, norms
from covey.learn.kernels.loop import Loop
from covey.learn.losses import example_targets
from covey.learn.machine import Machine
from covey.learn.objective import Objective
from covey.learn.work import Fisher, GradientNorms, Job
from covey.models import MODELS
from covey.models.choice import model_of
from support.own_models import gradients_by_sample

Weighed = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
FACTORED = {"softmax", "fcnn", "fcnn_leaky", "mlp", "mlp_wide", "cnn", "cnn5", "lfw_cnn", "resnet18"}
OTHERS = {
    "gru",
    "vit",
    "text_transformer",
    "tabular",
    "tabular_ids",
}  # embeddings, tokens, positions, a recurrence written out


def family(name: str) -> Network:
    if MODELS[name].layout == "tokens":
        return Network(name, (6,), 3, "tokens", 9)
    return Network(name, (5,), 3, "real") if name == "tabular" else Network(name, (16, 16), 3)


def in_double(net: Network, count: int = 4) -> tuple[Objective, list[Tensor], Tensor, Tensor]:
    objective = Objective(net, 0, 1.0, torch.device("cpu")).eval()
    net.write(initial(net, 1), objective.net)
    objective.double()
    x, y = example_inputs(net, count), example_targets(net.task, count, net.classes)
    return objective, [p for p in objective.parameters() if p.requires_grad], x.double(), y


def check_in_double(net: Network) -> None:
    objective, trained, x, y = in_double(net)
    layers = layers_of(objective, trained, x, y)
    totals = [torch.zeros_like(parameter) for parameter in trained]
    add_squares(totals, trained, layers)
    alone = torch.stack([gradient(objective, trained, x[i : i + 1], y[i : i + 1]) for i in range(len(x))])
    assert alone.norm() > 0
    squares = torch.cat([total.reshape(-1) for total in totals])
    torch.testing.assert_close(squares, alone.square().sum(0), rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(norms(layers), alone.norm(dim=1), rtol=1e-9, atol=1e-15)


def test_every_family_is_here() -> None:
    assert {name for name, spec in MODELS.items() if hasattr(spec, "parameters")} == FACTORED | OTHERS


@pytest.mark.parametrize("name", sorted(FACTORED))
def test_families_of_linear_layers_and_convolutions(name: str) -> None:
    assert known(family(name))
    check_in_double(family(name))


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_families_with_other_parameters_are_told(name: str) -> None:
    assert not known(family(name))


class Sequence(nn.Module):
    """Layers one after another, then outputs for three classes."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)
        with torch.no_grad():
            features = self.body(torch.zeros(2, 1, 8, 8)).flatten(1).shape[1]
        self.out = nn.Linear(features, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.body(x).flatten(1))
        return out


def frozen(part: str) -> nn.Module:
    module = Sequence(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3).requires_grad_(False))
    module.body[0].get_parameter(part).requires_grad_(False)
    return module


TAKEN: dict[str, Callable[[], nn.Module]] = {
    "stride and padding": lambda: Sequence(nn.Conv2d(1, 4, (3, 5), (2, 1), (0, 2)), nn.Tanh()),
    "dilation": lambda: Sequence(nn.Conv2d(1, 4, 3, dilation=(2, 1), padding=1), nn.ReLU()),
    "groups": lambda: Sequence(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.ReLU()),
    "one window": lambda: Sequence(nn.Conv2d(1, 4, 8), nn.ReLU()),
    "one window in groups": lambda: Sequence(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 6, groups=4)),
    "circular padding": lambda: Sequence(nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"), nn.ReLU()),
    "no bias": lambda: Sequence(nn.Conv2d(1, 4, 3, bias=False), nn.ReLU()),
    "frozen bias": lambda: frozen("bias"),
    "in place": lambda: Sequence(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.ReLU(inplace=True)),
    "places of a linear layer": lambda: Sequence(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 4), nn.GELU()),
    "group norm": lambda: Sequence(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True)),
    "channels last": lambda: Sequence(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).to(
        memory_format=torch.channels_last
    ),
}


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.same, self.out = nn.Linear(8, 8), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.same(torch.relu(self.same(x))).flatten(1))
        return out


class Tied(Twice):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(8, 8)
        self.other.weight = self.same.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.other(torch.relu(self.same(x))).flatten(1))
        return out


class Beside(Twice):
    """Its weights act in a product of its own, too."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out((self.same(x) + x @ self.same.weight).flatten(1))
        return out


class Scaled(Twice):
    """Its bias scales what it gives, too."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out((self.same(x) * torch.sigmoid(self.same.bias)).flatten(1))
        return out


class TimeFirst(Twice):
    """Samples stand second where the layer reads them: eight places, as eight samples would look."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.same(x[:, 0].transpose(0, 1))).transpose(0, 1).flatten(1))
        return out


class Merged(Twice):
    """Places and samples are one dimension where the layer reads them."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.same(x.reshape(-1, 8))).view(len(x), -1))
        return out


class Turned(Twice):
    """The last sample is read first."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.same(x.flip(0))).flip(0).flatten(1))
        return out


class Centred(Twice):
    """A batch's mean acts on each of its samples."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.same(x - x.mean(0))).flatten(1))
        return out


class Own(nn.Module):
    """A parameter of its own, without a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.out = nn.Parameter(torch.ones(64)), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(x.flatten(1) * self.scale)
        return out


class OneOutput(nn.Module):
    """A linear layer whose weight has one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(8)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(F.linear(x[:, 0], self.weight))
        return out


class ByCount(Twice):
    """Passes a layer twice where a batch is large: no trial of few samples shows it."""

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.same(x))
        out: Tensor = self.out((self.same(h) if len(x) > 3 else h).flatten(1))
        return out


class BesideByCount(Beside):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x) if len(x) > 3 else self.out(self.same(x).flatten(1))
        return out


REFUSED: dict[str, Callable[[], nn.Module]] = {
    "twice": Twice,
    "tied": Tied,
    "a weight beside its layer": Beside,
    "a bias beside its layer": Scaled,
    "time first": TimeFirst,
    "merged": Merged,
    "turned": Turned,
    "centred": Centred,
    "own parameter": Own,
    "one output": OneOutput,
    "padding by name": lambda: Sequence(nn.Conv2d(1, 4, 3, padding="same"), nn.ReLU()),
    "one dimension": lambda: Sequence(nn.Flatten(2), nn.Conv1d(1, 4, 3), nn.ReLU()),
    "frozen weight": lambda: frozen("weight"),
    "batch norm": lambda: Sequence(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
    "layer norm": lambda: Sequence(nn.Linear(8, 4), nn.LayerNorm(4)),
    "weight norm": lambda: Sequence(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(64, 4))),
}


def own(make: Callable[[], nn.Module]) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Network(model_of(make()), (8, 8), 3)


def check_answers(net: Network, count: int) -> None:
    x = (randomness.bits([3], count * 64)[0].view(count, 8, 8) % 256).to(torch.uint8)
    y, at, rows = torch.arange(count) % 3, initial(net, 1), torch.arange(count)
    fisher, lengths = Machine(net, x, y).compute([Job(rows, 1, Fisher(at)), Job(rows, 1, GradientNorms(at))])
    expected = gradients_by_sample(net, at, x, y)
    names = [n for n, p in net.module().named_parameters() if p.requires_grad]
    kept = torch.cat([net.unflatten(fisher)[name].reshape(-1) for name in names])  # without running statistics
    torch.testing.assert_close(kept, expected.square().mean(0), rtol=1e-5, atol=1e-6 * float(kept.max()))
    torch.testing.assert_close(lengths, expected.norm(dim=1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("how", TAKEN)
def test_own_modules_of_known_layers(how: str) -> None:
    net = own(TAKEN[how])
    assert known(net)
    check_in_double(net)
    check_answers(net, 9)


class Base(nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(8, 4), nn.Linear(32, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(torch.relu(self.first(x)).flatten(1))
        return out


def test_adapters_of_a_frozen_base() -> None:
    """Half of them begin with 0, where the other half has no gradient."""
    net = Network(model_of({"name": "lora", "base": f"{__name__}:Base", "rank": 2}), (8, 8), 3)
    assert list(net.shapes) == ["first.a", "first.b", "out.weight", "out.bias"] and known(net)
    check_in_double(net)
    check_answers(net, 8)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of weight norm under vmap
@pytest.mark.parametrize("how", REFUSED)
def test_modules_that_use_parameters_otherwise_are_not_taken_and_answered_all_the_same(how: str) -> None:
    net = own(REFUSED[how])
    assert not known(net)
    check_answers(net, 8)


@pytest.mark.parametrize("module", [ByCount, BesideByCount])
def test_a_pass_that_goes_otherwise_than_the_trial_is_noticed(module: Callable[[], nn.Module]) -> None:
    net = own(module)
    assert known(net)
    with pytest.raises(Unknown):
        layers_of(*in_double(net))
    check_answers(net, 8)


class Halved(Twice):
    """Computes one layer in bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            h = torch.relu(self.same(x))
        out: Tensor = self.out(h.float().flatten(1))
        return out


def test_a_module_may_choose_its_arithmetic() -> None:
    net = own(Halved)
    assert not known(net)
    x, y, rows = torch.randint(0, 256, (5, 8, 8)).to(torch.uint8), torch.arange(5) % 3, torch.arange(5)
    jobs = [Job(rows, 1, Fisher(initial(net, 1))), Job(rows, 1, GradientNorms(initial(net, 1)))]
    fisher, lengths = Machine(net, x, y).compute(jobs)
    torch.testing.assert_close(fisher.sum(), lengths.square().mean(), rtol=1e-4, atol=0)


class ByLength(nn.Module):
    """Reads the longest sample first."""

    def __init__(self, descending: bool) -> None:
        super().__init__()
        self.descending = descending
        self.words = nn.Embedding(9, 4).requires_grad_(False)
        self.inner, self.out = nn.Linear(24, 8), nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        order = (tokens != 0).sum(1).argsort(stable=True, descending=self.descending)
        h = torch.relu(self.inner(self.words(tokens[order]).flatten(1)))
        out: Tensor = self.out(h[order.argsort()])
        return out


@pytest.mark.parametrize("descending", [False, True])
def test_who_sorts_samples_by_their_length_is_told(descending: bool) -> None:
    assert not known(Network(model_of(ByLength(descending)), (6,), 3, "tokens", 9))


@pytest.mark.parametrize("room", [1, 10**9])
@pytest.mark.parametrize("name", ["cnn", "lfw_cnn", "resnet18", "fcnn"])
def test_clients_have_the_sums_of_their_own_samples(name: str, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(factors.ROOM, "cpu", room)
    objective, trained, x, y = in_double(family(name), 6)
    shares = torch.tensor([[0.5, 0.0], [1.0, 0.25], [0.1, 2.0]], dtype=torch.float64)  # three clients of two samples
    found = dict(factors.means(layers_of(objective, trained, x, y), shares))
    each = torch.stack([gradient(objective, trained, x[i : i + 1], y[i : i + 1]) for i in range(6)])
    expected = (shares[..., None] * each.view(3, 2, -1)).sum(1)
    torch.testing.assert_close(_one_after_another(found, trained), expected, rtol=1e-9, atol=1e-12)
    # The same of a pass whose losses are weighted, and with shares that hang on the norms.
    weighted = layers_of(objective, trained, x, y, shares=shares.flatten())
    found = dict(factors.sums(weighted, 3))
    torch.testing.assert_close(_one_after_another(found, trained), expected, rtol=1e-9, atol=1e-12)
    lengths: list[Tensor] = []

    def inverse(norms: Tensor) -> Tensor:
        lengths.append(norms)
        return shares / norms.view(3, 2)

    found = dict(factors.bounded(layers_of(objective, trained, x, y), inverse))
    torch.testing.assert_close(lengths, [each.norm(dim=1)], rtol=1e-9, atol=0)
    expected = ((shares / each.norm(dim=1).view(3, 2))[..., None] * each.view(3, 2, -1)).sum(1)
    torch.testing.assert_close(_one_after_another(found, trained), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["cnn", "lfw_cnn"])
def test_a_kernel_that_weighs_gets_each_clients_own_samples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU does it in TF32: no factors, but gradients at weights of δ and images client by client."""
    asked: list[int] = []

    def of_many(device: torch.device, size: Pair, padding: Pair) -> Weighed:
        def weighed(delta: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
            asked.append(len(delta))
            shape = (delta.shape[2], read.shape[2], *size)
            each = [conv2d_weight(r, shape, d, padding=padding) for r, d in zip(read, delta)]
            return torch.stack(each), delta.sum((1, 3, 4))

        return weighed

    monkeypatch.setattr(factors, "at_weights_of_many", of_many)
    objective, trained, x, y = in_double(family(name), 6)
    shares = torch.tensor([[0.5, 0.0], [1.0, 0.25], [0.1, 2.0]], dtype=torch.float64)
    found = dict(factors.sums(layers_of(objective, trained, x, y, shares=shares.flatten()), 3))
    each = torch.stack([gradient(objective, trained, x[i : i + 1], y[i : i + 1]) for i in range(6)])
    expected = (shares[..., None] * each.view(3, 2, -1)).sum(1)
    torch.testing.assert_close(_one_after_another(found, trained), expected, rtol=1e-9, atol=1e-12)
    assert asked and set(asked) == {3}


def _one_after_another(gradients: dict[Tensor, Tensor], trained: list[Tensor]) -> Tensor:
    return torch.cat([gradients[parameter].flatten(1) for parameter in trained], 1)


@pytest.mark.parametrize("how", sorted(TAKEN))
def test_clients_have_theirs_of_every_kind_of_layer(how: str) -> None:
    objective, trained, x, y = in_double(own(TAKEN[how]), 6)
    shares = torch.tensor([[0.5, 0.0, 1.0], [0.25, 0.1, 2.0]], dtype=torch.float64)
    each = torch.stack([gradient(objective, trained, x[i : i + 1], y[i : i + 1]) for i in range(6)])
    expected = (shares[..., None] * each.view(2, 3, -1)).sum(1)
    for found in (
        factors.means(layers_of(objective, trained, x, y), shares),
        factors.sums(layers_of(objective, trained, x, y, shares=shares.flatten()), 2),
        factors.bounded(layers_of(objective, trained, x, y), lambda norms: shares),
    ):
        torch.testing.assert_close(_one_after_another(dict(found), trained), expected, rtol=1e-9, atol=1e-12)


def test_kept_gradients_are_unfolded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, trained, x, y = in_double(family("cnn"), 6)
    unfolded: list[int] = []
    windows = factors._windows

    def counted(images: Tensor, *given: object, **named: object) -> Tensor:
        unfolded.append(len(images))
        return windows(images, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(factors, "_windows", counted)
    layers = layers_of(objective, trained, x, y)
    list(factors.bounded(layers, lambda norms: norms.view(3, 2)))
    assert unfolded == [6, 6]


def test_samples_by_few_are_samples_together(monkeypatch: pytest.MonkeyPatch) -> None:
    net = family("cnn")
    objective, trained, x, y = in_double(net, 7)
    layers = layers_of(objective, trained, x, y)
    whole = norms(layers)
    monkeypatch.setitem(factors.ROOM, "cpu", 3 * 25 * (256 + 6))  # three samples of the first layer
    assert [len(some.delta) for some in layers[0][0].factors(layers[0][1])] == [3, 3, 1]
    torch.testing.assert_close(norms(layers), whole, rtol=1e-12, atol=0)
    check_in_double(net)


def test_no_sample_of_a_convolutional_network_is_differentiated_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Loop, "_sample_gradients")
    check_answers(Network("cnn", (8, 8), 3), 8)
