"""What becomes of the samples that make no whole batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from covey import randomness
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment, Training
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.machine import Machine
from covey.learn.schedule.waves import lay_out
from covey.learn.work import Job, Plan, Train

CPU = torch.device("cpu")


def made(name: str) -> tuple[Network, Tensor, Tensor]:
    x = (randomness.bits([1], 40 * 64)[0] % 256).view(40, 8, 8)
    return Network(name, (8, 8), 3), x.to(torch.uint8), randomness.bits([2], 40)[0] % 3


@pytest.mark.parametrize(
    ("last", "sizes"),
    [
        ("keep", {25: [8, 8, 8, 1], 16: [8, 8], 5: [5]}),
        ("drop", {25: [8, 8, 8], 16: [8, 8], 5: [5]}),
        ("merge", {25: [8, 8, 9], 16: [8, 8], 5: [5], 9: [9]}),
    ],
)
def test_batches_of_an_epoch(last: str, sizes: dict[int, list[int]]) -> None:
    plan = Plan(batch_size=8, epochs=2, last_batch=last)
    jobs = [Job(torch.arange(n), n, Train(torch.zeros(3), plan)) for n in sizes]
    wave = lay_out(jobs, CPU)
    for client, job in enumerate(wave.order):
        n = list(sizes)[job]
        own = wave.counts[:, client]
        assert own[own > 0].tolist() == sizes[n] * 2
        assert plan.steps_for(n) == 2 * len(sizes[n])
        assert [end - first for first, end in (plan.span(t, n) for t in range(len(sizes[n])))] == sizes[n]
        for epoch in range(2):  # nobody comes twice in one
            steps = range(epoch * len(sizes[n]), (epoch + 1) * len(sizes[n]))
            rows = torch.cat([wave.rows[t, client, : own[t]] for t in steps])
            assert len(rows.unique()) == len(rows) == sum(sizes[n])


def test_what_is_dropped_is_drawn_anew_in_every_epoch() -> None:
    plan = Plan(batch_size=8, epochs=6, last_batch="drop")
    wave = lay_out([Job(torch.arange(11), 1, Train(torch.zeros(3), plan))], CPU)
    assert len(wave.rows.unique()) == 11


@pytest.mark.parametrize("last", ["drop", "merge"])
@pytest.mark.parametrize("kernel", ["linear", "stacked"])
def test_kernels_agree_with_one_step_after_the_other(last: str, kernel: str) -> None:
    net, x, y = made("mlp")
    plan = Plan(lr=0.1, batch_size=8, epochs=2, last_batch=last)
    jobs = [Job(torch.arange(n), n, Train(initial(net, n), plan)) for n in (30, 17, 3)]
    expected = Machine(net, x, y, kernel="loop").compute(jobs)
    for got, want in zip(Machine(net, x, y, kernel=kernel).compute(jobs), expected):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_whole_batches_are_left_alone() -> None:
    net, x, y = made("mlp")
    plan = Plan(lr=0.1, batch_size=8)
    rows = torch.arange(24)
    results = [
        Machine(net, x, y).compute([Job(rows, 1, Train(initial(net, 1), replace(plan, last_batch=last)))])[0]
        for last in ("keep", "drop", "merge")
    ]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_word_that_is_none_of_them_is_refused() -> None:
    with pytest.raises(CoveyError, match=r"training.last_batch is 'merged': choose keep, drop, merge"):
        Training(last_batch="merged")
    assert Experiment.of(training={"last_batch": "drop"}).training.plan(1).last_batch == "drop"
