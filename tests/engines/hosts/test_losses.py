"""Last losses are those of the very models that they were computed of."""

from __future__ import annotations

import gc
from weakref import ref

import torch

from covey.engines.hosts.losses import LastLosses


def test_losses_are_known_of_the_same_models_and_rows_only() -> None:
    losses = LastLosses(phase=lambda round: round // 10, most=8)
    models, found = torch.zeros(2, 3), torch.tensor([1.0, 2.0])
    losses.keep(5, 1, models, found)
    assert losses.of(5, 2, models) is found
    assert losses.of(6, 2, models) is None
    assert losses.of(5, 12, models) is None  # it holds other rows then
    assert losses.of(5, 2, models.clone()) is None
    models.add_(1)
    assert losses.of(5, 2, models) is None  # no more what they were


def test_nobody_keeps_models_alive_and_few_are_known() -> None:
    losses = LastLosses(phase=lambda round: 0, most=2)
    models = [torch.zeros(1, 3) for _ in range(3)]
    for who, one in enumerate(models):
        losses.keep(who, 1, one, torch.zeros(1))
    assert [losses.of(who, 1, one) is not None for who, one in enumerate(models)] == [False, False, True]
    last = ref(models[2])
    del models, one
    gc.collect()
    assert last() is None
