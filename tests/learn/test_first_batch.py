"""The batch that a client takes first, for who compares models on it before training."""

from __future__ import annotations

import pytest
import torch

from covey.learn.schedule.batches import first_batch
from covey.learn.schedule.waves import lay_out
from covey.learn.work import Job, Plan, Train

PLANS = (
    Plan(steps=1, batch_size=8),
    Plan(epochs=3, batch_size=8),
    Plan(epochs=2, batch_size=8, last_batch="merge"),
    Plan(epochs=1, batch_size=8, last_batch="drop"),
    Plan(epochs=2, batch_size=0),
    Plan(steps=3, batch_size=8, clip=1.0, poisson=True),
)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("size", [1, 5, 8, 9, 25, 300])
def test_it_is_the_first_of_those_that_training_lays_out(plan: Plan, size: int) -> None:
    for stream in range(3):
        wave = lay_out([Job(torch.arange(size), stream, Train(torch.zeros(1), plan))], torch.device("cpu"))
        taken = wave.rows[0, 0, : int(wave.counts[0, 0])]
        assert torch.equal(first_batch(plan, stream, size), taken)
