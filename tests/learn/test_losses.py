"""Losses: by task and by name, in closed form as autograd has them, one's own; and what reads a loss reads that one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from covey import randomness
from covey.errors import CoveyError
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.losses import LOSSES
from covey.learn.machine import Machine
from covey.learn.work import Fisher, Gradient, Job, Losses, Plan, SampleLosses, Train

CASES = [("classes", ""), ("labels", ""), ("numbers", ""), ("numbers", "mae"), ("numbers", "huber")]
OWN = "support.own_models:smoothed"


def network(task: str, loss: str, model: str = "fcnn") -> Network:
    return Network(model, (6,), 3, "real", task=task, loss_name=loss)


def samples(task: str) -> tuple[Tensor, Tensor]:
    x = randomness.normals([1], 20 * 6)[0].view(20, 6)
    if task == "classes":
        return x, torch.arange(20) % 3
    y = randomness.normals([2], 60)[0].view(20, 3) * 2
    return x, (y > 0).float() if task == "labels" else y


@pytest.mark.parametrize(("task", "loss"), CASES)
def test_the_closed_form_is_autograds(task: str, loss: str) -> None:
    """The linear kernel against the loop, and the loss by hand."""
    net = network(task, loss)
    x, y = samples(task)
    at, rows = initial(net, 1), torch.arange(20)
    works = [
        Train(at, Plan(lr=0.05, batch_size=6, momentum=0.5)),
        Train(at, Plan(lr=0.05, batch_size=6, clip=0.1)),
        Gradient(at),
        Fisher(at),
        Losses(at[None]),
        SampleLosses(at[None]),
    ]
    jobs = [Job(rows, 3, work) for work in works]
    closed, looped = (Machine(net, x, y, kernel=kernel).compute(jobs) for kernel in ("linear", "loop"))
    for a, b in zip(closed, looped):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-6)
    module = net.module()
    net.write(at, module)
    with torch.no_grad():
        outputs = module(x)
    error = outputs - y if task == "numbers" else outputs
    by_hand = {
        "classes": lambda: outputs.logsumexp(1) - outputs[rows, y.long()],
        "labels": lambda: (torch.log1p(outputs.exp()) - y * outputs).mean(1),
        "numbers": lambda: error.square().mean(1),
        "mae": lambda: error.abs().mean(1),
        "huber": lambda: torch.where(error.abs() < 1, error.square() / 2, error.abs() - 0.5).mean(1),
    }[loss or task]()
    torch.testing.assert_close(looped[-1][0], by_hand, rtol=0, atol=1e-5)
    assert net.loss.name in LOSSES


def test_an_own_loss_is_the_one_that_is_made_small() -> None:
    plain, own = network("classes", ""), network("classes", OWN)
    x, y = samples("classes")
    at, rows = initial(plain, 1), torch.arange(20)
    machine = Machine(own, x, y)
    assert machine.kernel.name == "loop"  # its gradient is known to autograd only
    with pytest.raises(CoveyError, match="the linear kernel computes covey's stacks of linear layers and losses"):
        Machine(own, x, y, kernel="linear")
    jobs = [Job(rows, 1, Train(at, Plan(lr=0.05, epochs=20, batch_size=0))), Job(rows, 1, Losses(at[None]))]
    trained, before = machine.compute(jobs)
    [after] = machine.compute([Job(rows, 1, Losses(trained[None]))])
    assert after < before
    assert before != Machine(plain, x, y).compute(jobs[1:])[0]
    stacked = Machine(own, x, y, kernel="stacked").compute(jobs[:1])[0]
    torch.testing.assert_close(stacked, trained, rtol=0, atol=1e-5)


def test_targets_must_fit_the_task() -> None:
    x, y = samples("numbers")
    for task, wrong, words in [
        ("numbers", y[:, :2], r"have shape \[20, 2\]: expected \[20, 3\]"),
        ("numbers", y / 0, "hold NaN or infinite"),
        ("labels", y, "must be 0 or 1"),
        ("classes", y[:, 0], r"labels are float32 \[20\]: expected one whole number"),
    ]:
        with pytest.raises(CoveyError, match=words):
            Machine(network(task, ""), x, wrong)
