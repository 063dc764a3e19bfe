"""What a machine answers, against one sample at a time with autograd; and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from covey import randomness
from covey.algorithms.contract import Predictor
from covey.engines.evaluation import Examiner
from covey.errors import CoveyError, NotFinite
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.graph import Replays, widths
from covey.learn.kernels.kernels import choose
from covey.learn.machine import Machine
from covey.learn.schedule.waves import Together, lay_out
from covey.learn.work import (
    Compute,
    Fisher,
    Gradient,
    GradientNorms,
    Head,
    Job,
    Logits,
    Losses,
    Plan,
    SampleGradients,
    SampleLosses,
    Train,
)

CASES = [("fcnn", "linear"), ("mlp", "linear"), ("fcnn_leaky", "linear"), ("softmax", "linear")]
CASES += [("fcnn", "loop"), ("cnn", "loop"), ("cnn", "stacked"), ("gru", "loop")]


def made(name: str) -> tuple[Network, Tensor, Tensor]:
    net = Network("gru", (6,), 3, "tokens", 9) if name == "gru" else Network(name, (8, 8), 3)
    top, kind = (9, torch.int32) if name == "gru" else (256, torch.uint8)
    x = (randomness.bits([1], 40 * 64)[0] % top).view(40, -1)[:, : 6 if name == "gru" else 64]
    return net, x.reshape(40, *net.input_shape).to(kind), randomness.bits([2], 40)[0] % 3


def plainly(net: Network, model: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(logits [n, classes], losses [n], gradients [n, d]), one sample at a time."""
    module = net.module()
    net.write(model, module)
    inputs = x.long() if net.kind == "tokens" else x.float() / 255
    if net.spec.layout == "image":
        inputs = inputs[:, None]
    logits, losses, gradients = [], [], []
    for sample, label in zip(inputs, y):
        out = module(sample[None])
        loss = F.cross_entropy(out, label[None])
        gradient = torch.autograd.grad(loss, list(module.parameters()))
        logits.append(out[0].detach())
        losses.append(loss.detach())
        gradients.append(torch.cat([g.reshape(-1) for g in gradient]))
    return torch.stack(logits), torch.stack(losses), torch.stack(gradients)


@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_answers(name: str, kernel: str) -> None:
    """Largest absolute difference seen when this was written: 2.4e-6."""
    net, x, y = made(name)
    models = torch.stack([initial(net, i) * 2 for i in range(3)])
    rows = [torch.arange(0, 12), torch.arange(12, 17), torch.tensor([39, 20])]
    machine = Machine(net, x, y, kernel=kernel)
    jobs = []
    for client, own in enumerate(rows):
        at = models[client]
        works = [Losses(models), Gradient(at), Fisher(at), SampleLosses(models), GradientNorms(at), Logits(models)]
        works.append(Losses(models[client : client + 1]))  # a model of its own
        works += [SampleGradients(at, last) for last in (1, net.head_size(net.classes), net.d // 2, net.d)]
        jobs += [Job(own, client, work) for work in works]
    answers = iter(machine.compute(jobs))
    for client, own in enumerate(rows):
        truth = [plainly(net, model, x[own], y[own]) for model in models]
        logits, losses, gradients = (torch.stack(part) for part in zip(*truth))
        expected = [
            losses.mean(1),
            gradients[client].mean(0),
            gradients[client].square().mean(0),
            losses,
            gradients[client].norm(dim=1),
            logits,
            losses[client].mean()[None],
            *(gradients[client][:, -last:] for last in (1, net.head_size(net.classes), net.d // 2, net.d)),
        ]
        for want in expected:
            torch.testing.assert_close(next(answers), want, rtol=1e-5, atol=5e-6)


def test_part_of_a_clients_samples() -> None:
    net, x, y = made("fcnn")
    at, rows, on = initial(net, 1), torch.arange(10, 30), torch.tensor([3, 0, 7])
    machine = Machine(net, x, y)
    for make in (
        lambda on: SampleLosses(at[None], on),
        lambda on: Fisher(at, on),
        lambda on: GradientNorms(at, on),
        lambda on: SampleGradients(at, 9, on),
    ):
        part, whole = machine.compute([Job(rows, 1, make(on)), Job(rows[on], 1, make(None))])
        torch.testing.assert_close(part, whole)


def test_many_samples_are_computed_in_parts() -> None:
    net, x, y = made("softmax")
    rows = torch.arange(40).repeat(60)  # 2,400: more than one part
    at = initial(net, 1)
    for kernel in ("linear", "loop"):
        machine = Machine(net, x, y, kernel=kernel)
        for work in (Losses(at[None]), Gradient(at), Fisher(at)):
            many, few = machine.compute([Job(rows, 1, work), Job(torch.arange(40), 1, work)])
            torch.testing.assert_close(many, few, rtol=1e-5, atol=1e-6)


def test_an_examiner_tells_the_groups_apart() -> None:
    """Weights that copy the brightest of three pixels to the outputs: right exactly where the label is that pixel."""
    net = Network("softmax", (3,), 3, "real")
    x, y = torch.eye(3)[[0, 1, 2, 0, 1]], torch.tensor([0, 1, 0, 0, 2])
    good = torch.cat([torch.eye(3).reshape(-1), torch.zeros(3)])
    to_all = torch.cat([torch.zeros(9), torch.tensor([0.0, 0.0, 5.0])])  # the second says class 2 to everything
    use = Predictor(torch.stack([good, to_all]))
    examiner = Examiner(Machine(net, x, y), np.arange(5), np.array([0, 0, 0, 1, 1]), 3)
    assert examiner.tested.tolist() == [3, 2, 0]
    assert examiner.by_group(use, {}).tolist() == [[2 / 3, 1 / 2, 0], [0, 1 / 2, 0]]
    mixed = replace(use, index=None, weights=torch.tensor([0.0, 1.0]))  # the mixture is the second model alone
    assert examiner.by_group(mixed, {}).tolist() == [[0, 1 / 2, 0]]
    few = Examiner(Machine(net, x, y), np.array([2, 4]), np.array([0, 0, 0, 1, 1]), 2)
    assert few.by_group(use, {}).tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("plan", [Plan(lr=0.1, batch_size=8), Plan(lr=0.1, batch_size=8, epochs=2, momentum=0.9)])
@pytest.mark.parametrize("correct", [False, True])
def test_a_falling_rate_captures_one_step(plan: Plan, correct: bool) -> None:
    """What a graph bakes in is not the rate: SCAFFOLD's correction and momentum scale with it in buffers."""
    net, x, y = made("mlp")
    machine, device = Machine(net, x, y), torch.device("cpu")
    linear = choose("linear", net, machine.samples, device)
    replays = Replays(machine.samples, net.features, linear._accumulate, budget=1e9)
    correction = torch.full((net.d,), 0.03) if correct else None
    for round in range(4):
        falling = replace(plan, lr=plan.lr * 0.7**round)
        asked = [Job(torch.arange(20), i, Train(initial(net, i), falling, correction=correction)) for i in range(2)]
        wave = lay_out(asked, device)
        got, expected = replays.run(wave, 1e3), machine.compute(asked)
        for i, job in enumerate(wave.order):
            torch.testing.assert_close(got[i], expected[job], rtol=0, atol=1e-6)
    assert len(replays._kept) == 1


@pytest.mark.parametrize("plan", [Plan(lr=0.1, batch_size=8), Plan(lr=0.1, batch_size=8, epochs=2, momentum=0.9)])
@pytest.mark.parametrize("correct", [False, True])
def test_replayed_step_without_a_graph(plan: Plan, correct: bool) -> None:
    """What a CUDA graph replays, run eagerly: counter, fixed buffers, empty clients added, clients that are done held."""
    net, x, y = made("mlp")
    device = torch.device("cpu")
    machine = Machine(net, x, y)
    correction = torch.full((net.d,), 0.03) if correct else None
    starts = [initial(net, i) for i in range(3)]

    def jobs(sizes: tuple[int, ...], key: int) -> list[Job]:
        return [
            Job(torch.arange(s), key + i, Train(starts[i], plan, correction=correction)) for i, s in enumerate(sizes)
        ]

    stacked = choose("linear", net, machine.samples, device)
    replays = Replays(machine.samples, net.features, stacked._accumulate, budget=1e9)
    for sizes, key in (((30, 17, 3), 5), ((20, 30), 6), ((9, 25, 30), 7)):  # the later ones reuse the buffers
        asked = jobs(sizes, key)
        wave = lay_out(asked, device)
        got = replays.run(wave.padded(3), 1e3)
        expected = machine.compute(asked)
        for i, job in enumerate(wave.order):
            torch.testing.assert_close(got[i], expected[job], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "plan", [Plan(lr=0.1, batch_size=2), Plan(lr=0.1, batch_size=2, momentum=0.9, weight_decay=0.1)]
)
def test_steps_of_few_clients_are_computed_for_few(plan: Plan) -> None:
    net, x, y = made("mlp")
    device, machine, sizes = torch.device("cpu"), Machine(net, x, y), (40, 30, *[3] * 28)
    asked = [Job(torch.arange(s), i, Train(initial(net, i % 3), plan)) for i, s in enumerate(sizes)]
    linear, wave, seen = choose("linear", net, machine.samples, device), lay_out(asked, device), list[int]()

    def accumulate(target: Tensor, *more: Any) -> None:
        seen.append(len(target))
        linear._accumulate(target, *more)

    replays = Replays(machine.samples, net.features, accumulate, budget=1e9)
    got, expected = replays.run(wave, 1e3), machine.compute(asked)
    for i, job in enumerate(wave.order):
        torch.testing.assert_close(got[i], expected[job], rtol=0, atol=1e-6)
    assert seen == [30, 30, *[8] * 18]


def test_how_many_clients_a_step_is_computed_for() -> None:
    assert widths([3, 3, 3]) == [3, 3, 3]
    assert widths([20, *[5] * 99]) == [*[100] * 5, *[7] * 15]
    assert widths([10, *[5] * 99]) == [100] * 10  # five steps are not worth a capture …
    assert widths([10, *[5] * 99], known={100, 50, 25}) == [*[100] * 5, *[25] * 5]  # … unless there is one
    assert widths([40, *[20] * 40, *[2] * 59]) == [*[100] * 2, *[50] * 18, *[7] * 20]


def test_global_generator_is_left_alone() -> None:
    net, x, y = made("cnn")
    torch.manual_seed(3)
    before = torch.get_rng_state()
    plan = Plan(batch_size=8, clip=1.0, noise=1.0, dropout=0.5)
    for kernel in ("loop", "stacked"):
        Machine(net, x, y, kernel=kernel).compute([Job(torch.arange(9), 1, Train(initial(net, 1), plan))])
    assert torch.equal(before, torch.get_rng_state())


def test_values_that_are_no_numbers_are_told_by_the_place_of_their_job() -> None:
    """Of jobs in several groups, whose checks wait until all have been computed; one that is lenient is not checked."""
    net, x, y = made("fcnn")
    good, rows = initial(net, 1), torch.arange(4)
    starts = [good, good, torch.full_like(good, float("nan")), good]
    jobs = [Job(rows, i, Train(start, Plan(epochs=1 + i % 2))) for i, start in enumerate(starts)]
    with pytest.raises(NotFinite, match="local training gave values that are not finite") as raised:
        Machine(net, x, y).compute(jobs)
    assert raised.value.of == (2,)
    lenient = [replace(job, lenient=True) for job in jobs]
    assert [bool(v.isfinite().all()) for v in Machine(net, x, y).compute(lenient)] == [True, True, False, True]


def test_refusals() -> None:
    net, x, y = made("fcnn")
    machine = Machine(net, x, y)
    at, rows = initial(net, 1), torch.arange(4)
    nobody = torch.zeros(0, dtype=torch.int64)
    for job in (Job(nobody, 1, Losses(at[None])), Job(nobody, 1, Train(at, Plan())), Job(rows, 1, Fisher(at, nobody))):
        with pytest.raises(CoveyError, match="a client has no samples"):
            machine.compute([job])
    with pytest.raises(CoveyError, match="a model of 7 was given: it must have 13603 parameters"):
        machine.compute([Job(rows, 1, Gradient(torch.zeros(7)))])
    for work in (
        Train(at, Plan(), correction=at[:-1]),
        Train(at, Plan(proximal=1.0), anchor=at[:-1]),
        Train(at, Plan(), weights=torch.ones(3)),
        Train(torch.cat([at, at[: net.head_size(2)]]), Plan(), head=Head(torch.zeros(3, dtype=torch.int64))),
    ):
        with pytest.raises(CoveyError, match=r"the (correction|anchor|weights|head's labels) .* must have"):
            machine.compute([Job(rows, 1, work)])
    with pytest.raises(CoveyError, match="Compute"):
        machine.compute([Job(rows, 1, Compute("phase", len, ((),)))])
    with pytest.raises(CoveyError, match="losses gave values that are not finite"):
        machine.compute([Job(rows, 1, Losses(torch.full_like(at, float("nan"))[None]))])
    with pytest.raises(CoveyError, match="unknown kernel 'lineer', did you mean 'linear'"):
        Machine(net, x, y, kernel="lineer")
    with pytest.raises(CoveyError, match="'cnn' has others"):
        Machine(Network("cnn", (8, 8), 3), x, y, kernel="linear")
    with pytest.raises(CoveyError, match="labels run from 0 to 2, the network has 2 classes"):
        Machine(Network("fcnn", (8, 8), 2), x, y)
    with pytest.raises(CoveyError, match="one label per sample"):
        Machine(net, x, y[:-1])
    with pytest.raises(CoveyError, match=r"was built for \(9, 9\)"):
        Machine(Network("fcnn", (9, 9), 3), x, y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_missing_gpu_is_said() -> None:
    net, x, y = made("fcnn")
    with pytest.raises(CoveyError, match="torch finds no GPU"):
        Machine(net, x, y, device="cuda")


def test_nothing_asked() -> None:
    net, x, y = made("fcnn")
    assert Machine(net, x, y).compute([]) == []


def test_imports_with_torch_and_numpy_alone() -> None:
    """A GPU machine may have nothing else."""
    blocked = [
        "sklearn",
        "scipy",
        "ot",
        "numba",
        "seal",
        "gmpy2",
        "rbcl",
        "cryptography",
        "dp_accounting",
        "typer",
        "rich",
        "jinja2",
        "PIL",
    ]
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); import covey.learn.machine, covey.models"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_clients_that_change_a_plan_alike_hold_the_same_one() -> None:
    plan = Plan(lr=0.1)
    assert plan.but(proximal=0.5) is Plan(lr=0.1).but(proximal=0.5) == replace(plan, proximal=0.5)
    assert plan.but(proximal=0.25).proximal == 0.25 and plan.proximal == 0
    with pytest.raises(CoveyError, match=r"training\.lr is -1"):
        plan.but(lr=-1)


def test_rows_of_the_same_clients_stay_on_the_device() -> None:
    together = Together(torch.device("meta"))  # any but the CPU
    first, second, third = torch.arange(3), torch.arange(2), torch.arange(2)
    joined = together.of([first, second])
    assert together.of([first, second]) is joined and joined.shape == (5,)
    assert together.of([first, third]) is not joined
    here = Together(torch.device("cpu"))
    assert torch.equal(here.of([second, first]), torch.tensor([0, 1, 0, 1, 2]))
