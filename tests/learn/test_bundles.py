"""Bundles train as their jobs do, on a CPU and on a GPU, laid out eagerly and from a recording."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from covey import randomness
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels import graph
from covey.learn.kernels.linear import Linear
from covey.learn.machine import Machine
from covey.learn.work import Bundle, Job, Losses, Plan, SampleLosses, Train
from covey.randomness import Streams

PLANS = {
    "plain": Plan(lr=0.1, batch_size=8, epochs=2),
    "steps": Plan(lr=0.1, batch_size=8, steps=5),
    "merged": Plan(lr=0.1, batch_size=8, epochs=2, last_batch="merge"),
    "proximal": Plan(lr=0.1, batch_size=8, proximal=0.5),
    "noise": Plan(lr=0.1, batch_size=8, clip=0.7, noise=0.3),
    "poisson": Plan(lr=0.1, batch_size=4, clip=0.7, poisson=True),
    "dropout": Plan(lr=0.1, batch_size=8, dropout=0.4),
}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
    ),
]


def machine(device: str, count: int) -> Machine:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, 4, 4), generator=generator).to(torch.uint8)
    y = torch.randint(0, 3, (count,), generator=generator)
    return Machine(Network("fcnn", (4, 4), 3), x, y, device=device)


def both(own: bool, plan: Plan, sizes: tuple[int, ...], on: Machine, round: int) -> tuple[list[Job], Bundle]:
    """The same training as jobs and as a bundle; `own`: starts and corrections differ by client."""
    n, rows = len(sizes), torch.arange(sum(sizes)).flip(0)
    models = torch.stack([initial(on.network, i if own else 0) for i in range(n)])
    corrections = 0.01 * models if own else None
    keys = [randomness.key(0, round, i, 0) for i in range(n)]
    jobs = [
        Job(part, key, Train(model, plan, correction=None if corrections is None else corrections[i]))
        for i, (part, key, model) in enumerate(zip(torch.split(rows, list(sizes)), keys, models))
    ]
    start = (models if own else models[0]).to(on.device)
    correction = None if corrections is None else corrections.to(on.device)
    return jobs, Bundle(
        Train(start, plan, correction=correction), Streams(0, round, range(n)), rows.to(on.device), np.array(sizes)
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(9, 9, 9), (9, 21, 4, 1, 9)], ids=["even", "uneven"])
@pytest.mark.parametrize("own", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("plan", PLANS)
def test_as_its_jobs(plan: str, own: bool, sizes: tuple[int, ...], device: str) -> None:
    here, there = machine("cpu", sum(sizes)), machine(device, sum(sizes))
    rows: Tensor | None = None
    for round in (7, 7, 70, 700):  # on a GPU: eagerly, then captured, then replayed with other keys
        jobs, bundle = both(own, PLANS[plan], sizes, there, round)
        rows = bundle.rows if rows is None else rows  # a recording is of rows that lie at one place
        got = there.train_bundle(Bundle(bundle.work, bundle.streams, rows, bundle.sizes)).cpu()
        for one, want in zip(got, here.compute(jobs), strict=True):
            torch.testing.assert_close(one, want, rtol=0, atol=1e-5 if device == "cuda" else 1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [(9, 9, 9), (9, 21, 4, 1, 9)], ids=["even", "uneven"])
def test_losses_as_its_jobs(sizes: tuple[int, ...], device: str) -> None:
    here, there = machine("cpu", sum(sizes)), machine(device, sum(sizes))
    models = torch.stack([initial(here.network, i) for i in range(4)])
    rows = torch.arange(sum(sizes))
    wanted = here.compute([Job(part, 0, Losses(models)) for part in torch.split(rows, list(sizes))])
    got = there.losses_of_bundle(models.to(there.device), rows.to(there.device), np.array(sizes))
    torch.testing.assert_close(got, torch.stack(wanted), rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["fcnn", "cnn", "gru"])
def test_losses_from_a_recording(name: str) -> None:
    """Eagerly, captured, replayed with other models and rows; and what somebody keeps is not overwritten."""
    shape, vocabulary = ((12,), 30) if name == "gru" else ((28, 28), 0)
    x = torch.randint(0, vocabulary or 256, (60, *shape)).to(torch.int64 if vocabulary else torch.uint8)
    y = torch.randint(0, 3, (60,))
    network = Network(name, shape, 3, "tokens" if vocabulary else "image", vocabulary)
    here, there = Machine(network, x, y), Machine(network, x, y, device="cuda")
    assert there.records(20, 2)
    kept: list[tuple[Tensor, Tensor]] = []
    for turn in range(4):
        models = torch.stack([initial(network, 2 * turn + i) for i in range(2)])
        for kind in (Losses, SampleLosses):
            jobs = [Job(rows, 0, kind(models)) for rows in torch.randperm(60)[:20].split(10)]
            for got, want in zip(there.compute(jobs), here.compute(jobs), strict=True):
                kept.append((got, want))
    for got, want in kept:
        torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-5)


def test_what_comes_in_every_round_stays_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside keys that come once; and what had to go is not captured again and again."""
    captured: list[object] = []

    class Stand:
        def __init__(self, given: object, device: object, function: object) -> None:
            captured.append(function)

        def replay(self, given: object) -> tuple[Tensor, ...]:
            return ()

    monkeypatch.setattr(graph, "Recording", Stand)
    monkeypatch.setattr(graph, "there", lambda tensor, device: tensor)
    for mix, wanted in (([("a",), ("once",)], 1), ([("a",), ("a",), ("b",), ("b",), ("c",), ("c",)], 3)):
        captured.clear()
        recordings = graph.Recordings(torch.device("cuda"), 2)
        for turn in range(20):
            for key in mix:
                recordings((*key, turn) if key == ("once",) else key, (torch.zeros(1),), lambda x: (x,))
        assert len(captured) == wanted


@pytest.mark.parametrize("name", ["fcnn", "softmax"])
def test_outputs_of_many_models_in_one_product(name: str) -> None:
    net = Network(name, (4, 4), 3)
    x = torch.randint(0, 256, (20, 4, 4), dtype=torch.uint8)
    samples = Machine(net, x, torch.zeros(20, dtype=torch.int64)).samples
    linear, models = Linear(net, samples), torch.stack([initial(net, i) for i in range(3)])
    inputs = samples.inputs(torch.arange(20))
    one_by_one = torch.stack([linear.logits(model, inputs) for model in models])
    torch.testing.assert_close(linear.logits_of_all(models, inputs), one_by_one)
