"""Clients that take one step from one model go through it as one batch, and arrive where the loop kernel takes each of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from covey import randomness
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels import factors, kernels
from covey.learn.kernels.one_start import does
from covey.learn.machine import Machine
from covey.learn.work import Head, Job, Plan, Train
from covey.models import MODELS
from covey.models.classifier import Classifier
from covey.models.spec import Spec

SIZES = (12, 8, 5, 1, 9)  # some have less than a batch
STEP = Plan(lr=0.1, batch_size=8, steps=1)
PLANS = {
    "plain": STEP,
    "momentum": STEP.but(momentum=0.9),
    "decay": STEP.but(weight_decay=0.05),
    "proximal": STEP.but(proximal=0.5),
    "dropout": STEP.but(dropout=0.4),
    "everything": STEP.but(momentum=0.5, weight_decay=0.05, proximal=0.5, dropout=0.4),
    "clip": STEP.but(clip=0.7),
    "clip, momentum, dropout": STEP.but(clip=0.7, momentum=0.9, dropout=0.4),
    "noise": STEP.but(clip=0.7, noise=0.3),
    "poisson": STEP.but(clip=0.7, noise=0.3, poisson=True, batch_size=2),
}
REQUESTS = ["", "head", "weights", "on", "correction anchor", "moves", "head weights on correction anchor moves"]
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
    ),
]


@pytest.fixture(autouse=True)
def all_are_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "HEAVY", 0)


def network(name: str = "cnn") -> Network:
    return Network(name, (16, 16, 3), 3)


def machine(net: Network, kernel: str, device: str = "cpu", chunk: int = len(SIZES)) -> Machine:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (sum(SIZES), *net.input_shape), generator=generator).to(torch.uint8)
    y = torch.randint(0, net.classes, (sum(SIZES),), generator=generator)
    return Machine(net, x, y, device=device, kernel=kernel, chunk=chunk)


def jobs_of(net: Network, plan: Plan, starts: list[int], asked: str = "") -> list[Job]:
    """One for each size; client i begins at model starts[i]."""
    d = net.d + (net.head_size(2) if "head" in asked else 0)
    models = torch.stack([0.1 * randomness.normals([n], d)[0] for n in range(max(starts) + 1)])
    models[:, : net.d] = torch.stack([initial(net, n) for n in range(len(models))])
    jobs = []
    for i, (rows, start) in enumerate(zip(torch.arange(sum(SIZES)).split(list(SIZES)), starts)):
        work = Train(
            models[start],
            plan,
            anchor=models[start] + 0.05 if "anchor" in asked else None,
            correction=0.02 * randomness.normals([50 + i], d)[0] if "correction" in asked else None,
            weights=2 * randomness.uniforms([i], len(rows))[0] if "weights" in asked else None,
            on=torch.arange(len(rows) - 1, 0, -2) if "on" in asked.split() and len(rows) > 3 else None,
            head=Head(randomness.bits([i], len(rows))[0] % 2, 2, 0.7) if "head" in asked else None,
            moves=torch.arange(net.d) % 3 != i % 2 if "moves" in asked else None,
        )
        jobs.append(Job(rows, randomness.key(1, i), work))
    return jobs


def passes(on: Machine, jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Samples in each pass through the first layer."""
    seen: list[int] = []
    forward = nn.Conv2d.forward

    def counted(layer: nn.Conv2d, x: Tensor) -> Tensor:
        if layer.in_channels == 3:
            seen.append(len(x))
        return forward(layer, x)

    with monkeypatch.context() as patch:
        patch.setattr(nn.Conv2d, "forward", counted)
        on.compute(jobs)
    return seen


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("starts", [[0] * 5, [0, 1, 0, 1, 1]], ids=["one model", "two models"])
@pytest.mark.parametrize("asked", REQUESTS)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_everybody_arrives_where_the_loop_takes_them(plan: Plan, asked: str, starts: list[int], device: str) -> None:
    net = network()
    jobs = jobs_of(net, plan, starts, asked)
    assert machine(net, "streams").kernel.joins(plan)
    expected = machine(net, "stacked" if plan.clip else "loop").compute(jobs)  # the loop clips by the same factors
    on = machine(net, "streams", device)
    for _ in range(1 if device == "cpu" else 3):  # on a GPU the second captures, and the third replays
        for got, want, job in zip(on.compute(jobs), expected, jobs):
            assert not torch.equal(want, job.work.start)  # type: ignore[union-attr]
            torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-6 if device == "cpu" else 1e-5)


def test_a_model_is_passed_once_for_all_who_begin_there(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network()
    on, slots = machine(net, "streams"), 8
    assert does(net)  # found out by trying, in passes of their own
    assert passes(on, jobs_of(net, STEP, [0] * 5), monkeypatch) == [5 * slots]
    assert sorted(passes(on, jobs_of(net, STEP, [0, 1, 0, 1, 1]), monkeypatch)) == [2 * slots, 3 * slots]
    # Of few clients a model each, who would go one by one, all go side by side; so do those of several steps.
    assert len(passes(on, jobs_of(net, STEP, [0, 1, 2, 3, 3]), monkeypatch)) == 5
    assert len(passes(on, jobs_of(net, STEP.but(steps=2), [0] * 5), monkeypatch)) == 2 * 5
    assert passes(machine(net, "streams", chunk=2), jobs_of(net, STEP, [0] * 5), monkeypatch) == [16, 16, 8]
    assert passes(on, jobs_of(net, PLANS["clip"], [0] * 5), monkeypatch) == [5 * slots]
    monkeypatch.setattr(kernels, "HEAVY", 4_000_000)
    assert len(passes(on, jobs_of(net, STEP, [0] * 5), monkeypatch)) == 5
    assert [
        Machine(
            faces,
            torch.zeros(1, *faces.input_shape, dtype=torch.uint8),
            torch.zeros(1, dtype=torch.int64),
            kernel="streams",
        ).kernel.joins(STEP.but(batch_size=32))
        for faces in (Network("lfw_cnn", (62, 47, 3), 2), Network("lfw_cnn", (32, 32, 3), 2))
    ] == [True, False]


def test_where_products_are_rounded_norms_are_those_of_the_gradients_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = machine(network(), "streams").kernel
    joined = {}
    for arithmetic in ("ieee", "tf32", "bf16"):
        monkeypatch.setattr(kernels, "of_products", lambda arithmetic=arithmetic: arithmetic)
        joined[arithmetic] = [kernel.joins(plan) for plan in (STEP, PLANS["clip"])]
    assert joined == {"ieee": [True, True], "tf32": [True, False], "bf16": [False, False]}


def test_the_models_that_clients_begin_at_stay_as_they_are() -> None:
    net = network()
    jobs = jobs_of(net, STEP.but(weight_decay=0.05), [0] * 5)
    before = jobs[0].work.start.clone()  # type: ignore[union-attr]
    first = machine(net, "streams").compute(jobs)
    assert torch.equal(jobs[0].work.start, before)  # type: ignore[union-attr]
    assert len({tuple(model.tolist()) for model in first}) == 5


def test_only_networks_of_convolutions_and_linear_layers_are_done() -> None:
    images = [name for name, spec in MODELS.items() if spec.layout == "image"]
    assert {name for name in images if does(Network(name, (32, 32, 3), 3))} == {"cnn", "cnn5", "lfw_cnn"} < set(images)
    assert not does(Network("gru", (7,), 3, "tokens"))
    net = network("lfw_cnn")
    jobs = jobs_of(net, STEP, [0] * 5)
    for got, want in zip(machine(net, "streams").compute(jobs), machine(net, "loop").compute(jobs)):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["IN_PLACE", "DOUBLED"])
def test_networks_of_others_arrive_there_too(name: str) -> None:
    """A package may bring a network of covey's shape, with what changes a layer's outputs in place or a layer of its own."""
    net = Network(f"support.own_models:{name}", (8, 8, 3), 3)
    assert net.plain is does(net) is (name == "IN_PLACE")
    jobs = jobs_of(net, STEP, [0] * 5)
    for got, want in zip(machine(net, "streams").compute(jobs), machine(net, "loop").compute(jobs)):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def _aside(channels: int, classes: int) -> Classifier:
    """With a layer that nothing passes: its weights stay as they are."""
    body = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten())
    classifier = Classifier(body, 4 * 6 * 6, classes)
    body[0].aside = nn.Linear(3, 2)
    return classifier


ASIDE = Spec(
    name="aside",
    title="a layer that nothing passes",
    layout="image",
    make=lambda shape, classes, _: _aside(shape[0], classes),
    parameters=1,
)


@pytest.mark.parametrize("plan", ["plain", "everything", "clip"])
def test_layers_that_nothing_passes_stay_as_they_are(plan: str) -> None:
    net = Network(f"{__name__}:ASIDE", (8, 8, 3), 3)
    assert does(net)
    jobs = jobs_of(net, PLANS[plan], [0] * 5)
    for got, want in zip(machine(net, "streams").compute(jobs), machine(net, "loop").compute(jobs)):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("plan", "most"), [("plain", 80), ("clip", 105)])
def test_a_step_has_few_operations(plan: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU each is a launch, and those are what a step costs. There were 103 while each parameter had sums and adds of its own,
    and 167 while samples were unfolded for their norms, and again for their sums.
    """

    class Counted(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            self.count += not (function.is_view or function._schema.name in ("aten::detach", "aten::_unsafe_view"))
            return function(*given, **(named or {}))

    monkeypatch.setitem(factors.ROOM, "cpu", 10**9)
    net = Network("lfw_cnn", (32, 32, 3), 3)
    on = machine(net, "streams")
    steps, accumulate = list[int](), on.kernel._from_one  # type: ignore[attr-defined]

    def counted(*given: Any) -> None:
        with Counted() as mode:
            accumulate(*given)
        steps.append(mode.count)

    on.kernel._from_one = counted  # type: ignore[attr-defined]
    on.compute(jobs_of(net, PLANS[plan], [0] * 5))
    assert len(steps) == 1 and steps[0] <= most
