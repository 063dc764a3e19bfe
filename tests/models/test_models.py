"""The networks: sizes as published, cells as torch's, starts that are keyed, layers that can be personal."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from covey.data.dataset import Dataset
from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.initial import initial, layers, parameters, personal_mask
from covey.models import MODELS


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("softmax", (28, 28), 10, 7_850),
        ("fcnn", (28, 28), 10, 159_010),
        ("fcnn_leaky", (28, 28), 10, 159_010),
        ("mlp", (28, 28), 10, 178_110),
        ("cnn", (28, 28), 10, 61_706),  # LeNet-5
        ("cnn", (32, 32, 3), 10, 62_006),
        ("cnn5", (28, 28), 10, 1_663_370),  # as in the FedAvg paper
        ("resnet18", (32, 32, 3), 10, 11_173_962),
        ("mlp_wide", (600,), 100, 1_297_252),
        ("lfw_cnn", (62, 47, 3), 2, 896 + 18_496 + 73_856 + (128 * 7 * 5 + 1) * 256 + 514),
    ],
)
def test_parameter_counts(name: str, shape: tuple[int, ...], classes: int, count: int) -> None:
    assert parameters(name, shape, classes) == count
    assert Network(name, shape, classes).d == count


def sample_batch(net: Network, count: int) -> torch.Tensor:
    shape = (count, *net.read_shape)
    return torch.ones(shape, dtype=torch.int64) if net.kind == "tokens" else torch.rand(shape)


READY = sorted(set(MODELS) - {"lora"})  # which needs a base


@pytest.mark.parametrize("name", READY)
@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (17, 23, 3)])
def test_every_network_reads_every_size(name: str, shape: tuple[int, ...]) -> None:
    tokens = MODELS[name].layout == "tokens"
    net = Network(name, (9,), 4, "tokens", 12) if tokens else Network(name, shape, 4)
    module = net.module()
    start = initial(net, 1)
    net.write(start, module)
    assert torch.equal(net.read(module), start)
    assert module(sample_batch(net, 2)).shape == (2, 4)
    assert module.body(sample_batch(net, 2)).shape == (2, net.features)
    assert MODELS[name].title


def test_gru_equals_torch() -> None:
    net = Network("gru", (6,), 3, "tokens", 20)
    module = net.module()
    net.write(initial(net, 5), module)
    body = module.body
    reference = nn.GRU(100, 128, batch_first=True)
    with torch.no_grad():
        reference.weight_ih_l0.copy_(body.input.weight)
        reference.bias_ih_l0.copy_(body.input.bias)
        reference.weight_hh_l0.copy_(body.state.weight)
        reference.bias_hh_l0.copy_(body.state.bias)
        tokens = torch.tensor([[3, 4, 5, 19, 2, 1], [7, 8, 9, 0, 0, 0]])
        states, last = reference(body.embedding(tokens))
        ours = body(tokens)
    torch.testing.assert_close(ours[0], last[0, 0], rtol=0, atol=1e-6)
    torch.testing.assert_close(ours[1], states[1, 2], rtol=0, atol=1e-6)  # padding leaves the state alone


def test_initial_is_keyed_and_leaves_the_global_generator_alone() -> None:
    net = Network("cnn", (28, 28), 10)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = initial(net, 7)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, initial(net, 7))
    assert not torch.equal(first, initial(net, 8))


def test_initial_follows_torch_defaults() -> None:
    net = Network("resnet18", (32, 32, 3), 10)
    start = net.unflatten(initial(net, 1))
    assert bool((start["body.2.weight"] == 1).all()) and bool((start["body.2.bias"] == 0).all())  # GroupNorm
    stem = start["body.1.weight"]
    bound = 1 / math.sqrt(27)
    assert bound * 0.99 < float(stem.abs().max()) < bound
    torch.manual_seed(0)
    drawn = nn.Conv2d(3, 64, 3).weight.detach()
    assert abs(float(stem.std() / drawn.std()) - 1) < 0.05
    embedding = Network("gru", (5,), 2, "tokens", 1000)
    rows = embedding.unflatten(initial(embedding, 1))["body.embedding.weight"]
    assert abs(float(rows.std()) - 1) < 0.02


def test_personal_layers() -> None:
    net = Network("mlp", (28, 28), 10)
    assert [end - begin for _, begin, end in layers(net)] == [157_000, 20_100, 1_010]
    assert int(personal_mask(net, 0).sum()) == 0
    assert int(personal_mask(net, 1).sum()) == 1_010
    two = personal_mask(net, 2)
    assert int(two.sum()) == 21_110 and bool(two[-21_110:].all())
    assert bool(personal_mask(net, 3).all())
    with pytest.raises(CoveyError, match="mlp has 3"):
        personal_mask(net, 4)


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(CoveyError, match="did you mean 'fcnn'"):
        parameters("fcn", (28, 28), 10)
    with pytest.raises(CoveyError, match="kind 'tokens': choose one of gru"):
        _ = Network("fcnn", (30,), 2, "tokens").d
    with pytest.raises(CoveyError, match="cannot read data of kind 'image'"):
        _ = Network("gru", (28, 28), 2).d
    with pytest.raises(CoveyError, match=r"shape \(600,\)"):
        _ = Network("cnn", (600,), 2, "binary").d


def test_network_of_a_dataset() -> None:
    import numpy as np

    x, y = np.array([[1, 2, 0], [4, 5, 6]], dtype=np.int32), np.array([0, 1])
    data = Dataset("made", x, y, x + 3, y, ("a", "b"), kind="tokens")
    assert Network.of("gru", data) == Network("gru", (3,), 2, "tokens", 10)
    images = np.zeros((2, 28, 28), dtype=np.uint8)
    assert Network.of("fcnn", Dataset("made", images, y, images, y, ("a", "b"))).d == 157_402


def test_flatten_inverts_unflatten() -> None:
    net = Network("cnn", (8, 8), 3)
    start = initial(net, 1)
    assert torch.equal(net.flatten(net.unflatten(start)), start)
    stacked = net.unflatten(torch.stack([start, start]))
    assert stacked["last.weight"].shape == (2, 3, 84)
