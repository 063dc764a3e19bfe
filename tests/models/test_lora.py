"""LoRA: adapters of a frozen base, a module of one's own and a transformer in the layout of `transformers`, made on the spot."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covey import CoveyError, Experiment, run
from covey.data.dataset import Dataset
from covey.engines.prepare import network_of
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.stacked import obstacle
from covey.learn.machine import Machine
from covey.learn.work import Job, Logits, Plan, Train
from covey.models.choice import model_of


class Base(nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(64, 16), nn.Linear(16, 16), nn.Linear(16, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x.flatten(1)))
        return self.out(torch.relu(self.second(h)))


def network(**options: object) -> Network:
    return Network(model_of({"name": "lora", "base": f"{__name__}:Base", **options}), (8, 8), 3)


def samples() -> tuple[Tensor, Tensor]:
    x = torch.randint(0, 256, (12, 8, 8), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return x, torch.arange(12) % 3


def test_only_adapters_and_outputs_are_in_the_vector() -> None:
    net = network(rank=2)
    assert list(net.shapes) == ["first.a", "first.b", "second.a", "second.b", "out.weight", "out.bias"]
    assert net.d == 2 * (64 + 16) + 2 * (16 + 16) + 16 * 3 + 3
    assert set(network(rank=2, targets=["first"]).shapes) == {"first.a", "first.b", "out.weight", "out.bias"}
    assert "second.weight" in network(rank=2, train=["second", "out"]).shapes
    module = net.module()
    assert not module.first.base.weight.requires_grad
    assert not torch.equal(initial(net, 1), initial(net, 2))


def test_it_begins_at_the_base_and_equals_a_merged_layer() -> None:
    net = network(rank=2, alpha=6.0)
    x, y = samples()
    start = initial(net, 1)
    plain = net.module()
    net.write(start, plain)
    plain.first, plain.second = plain.first.base, plain.second.base
    inputs = x[:, None].float() / 255
    machine = Machine(net, x, y, kernel="loop")
    rows = torch.arange(12)
    (before,) = machine.compute([Job(rows, 0, Logits(start[None]))])
    with torch.no_grad():
        torch.testing.assert_close(before[0], plain(inputs))  # B is zero
    assert not obstacle(net)
    plan = Plan(lr=0.1, epochs=3, batch_size=4)
    (trained,) = machine.compute([Job(rows, 1, Train(start, plan))])
    (stacked,) = Machine(net, x, y, kernel="stacked").compute([Job(rows, 1, Train(start, plan))])
    torch.testing.assert_close(trained, stacked, rtol=0, atol=1e-6)
    module = net.module()
    net.write(trained, module)
    with torch.no_grad():
        adapted = module(inputs)
        for layer in (module.first, module.second):
            layer.base.weight += 3.0 * layer.b @ layer.a
            layer.b.zero_()
        torch.testing.assert_close(module(inputs), adapted, rtol=0, atol=1e-5)
    assert net.fingerprint == network(rank=2, alpha=6.0).fingerprint


needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="no transformers here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertModel

    place = tmp_path_factory.mktemp("base")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        BertModel(BertConfig(vocab_size=30, max_position_embeddings=12, **sizes)).save_pretrained(place)
    return place


def texts() -> Dataset:
    rng = np.random.default_rng(1)
    x = rng.integers(1, 30, (48, 6)).astype(np.int32)
    x[:, -1] = 0
    y = (x[:, 0] % 2).astype(np.int64)
    return Dataset("texts", x[:36], y[:36], x[36:], y[36:], ("even", "odd"), kind="tokens")


@needs_transformers
def test_a_transformer_from_a_folder(folder: Path) -> None:
    experiment = Experiment.of(model={"name": "lora", "base": str(folder), "rank": 2})
    net = network_of(experiment, texts())
    assert list(net.shapes)[-2:] == ["model.classifier.weight", "model.classifier.bias"] and net.d < 400
    assert all(name.rpartition(".")[2] in "ab" for name in list(net.shapes)[:-2])
    assert not torch.equal(initial(net, 1)[-18:], initial(net, 2)[-18:])  # the outputs are new, and keyed
    assert Experiment.of(experiment.table()).model == experiment.model
    data = texts()
    machine = Machine(net, data.x_train, data.y_train)
    rows = torch.arange(12)
    start = initial(net, 1)
    (trained,) = machine.compute([Job(rows, 1, Train(start, Plan(lr=0.1, batch_size=6)))])
    assert not torch.equal(trained, start)
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    before, whole = net.fingerprint, weights.read_bytes()
    try:
        weights.write_bytes(content)
        assert network_of(experiment, texts()).fingerprint != before  # another base is another network
    finally:
        weights.write_bytes(whole)


@needs_transformers
def test_algorithms_encryption_and_defences_run_on_adapters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from covey.data.federation import Federation

    data = texts()
    clients = tuple(np.array_split(np.arange(36), 3))
    federation = Federation(data, clients, None, data.y_test, np.full((3, 2), 0.5))
    common = {
        "model": {"name": "lora", "base": str(folder), "rank": 2},
        "clients": 3,
        "clusters": 2,
        "training": {"rounds": 1, "epochs": 1, "batch_size": 12, "lr": 0.1},
        "engine": {"workers": 1},
    }
    for more in (
        {"algorithm": "ifca"},
        {"algorithm": {"name": "mingledpie", "threshold": 1}, "encryption": "ckks"},
        {"algorithm": "ifca", "defence": "dp_sgd"},
    ):
        result = run(Experiment.of(common, **more), federation=federation, quiet=True)
        assert 0 <= result.accuracy["client_mean"] <= 1


@needs_transformers
def test_data_that_the_base_cannot_read(folder: Path) -> None:
    model = model_of({"name": "lora", "base": str(folder)})
    with pytest.raises(CoveyError, match="knows 30: encode the texts with the base's own tokenizer"):
        _ = Network(model, (6,), 2, "tokens", 31).d
    with pytest.raises(CoveyError, match="reads token ids, and the data is of kind 'image'"):
        _ = Network(model, (8, 8), 2).d
    with pytest.raises(CoveyError, match=r"float32|int64 \[3, 40\].*fails with"):
        _ = Network(model, (40,), 2, "tokens", 20).d
