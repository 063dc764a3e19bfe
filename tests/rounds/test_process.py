"""What a run leaves behind in its process: nothing."""

from __future__ import annotations

import gc
import multiprocessing
import os
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch

from covey import Experiment, Federation, run
from covey.learn.flat import Network
from covey.learn.objective import activations
from covey.rounds import process


class Cycle:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.own = self


def cycles() -> int:
    gc.collect()
    return sum(isinstance(one, Cycle) for one in gc.get_objects())


def a_run_with_one_inside(answers: Connection, frozen: bool) -> None:
    process._frozen_by_others.cache_clear()
    gc.unfreeze()
    if frozen:
        gc.freeze()
    with process.old_objects_left_alone():
        Cycle()
        with process.old_objects_left_alone():  # a run of an attack
            Cycle()
        under_way = cycles()
        Cycle()
    answers.send((under_way, cycles(), gc.get_freeze_count() > process.PYTHONS_OWN))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process of its own, with everything loaded")
@pytest.mark.parametrize("frozen", [False, True])
def test_objects_of_a_run_are_collected_also_where_others_have_frozen_theirs(frozen: bool) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=a_run_with_one_inside, args=(theirs, frozen))
    child.start()
    theirs.close()
    kept_meanwhile, kept, still_frozen = ours.recv()
    child.join()
    assert (kept_meanwhile, kept) == (0, 0)
    assert still_frozen == frozen  # what others froze stays so


def test_counting_activations_keeps_no_network_alive() -> None:
    def held() -> int:
        gc.collect()
        return sum(o.numel() for o in gc.get_objects() if isinstance(o, torch.Tensor))

    activations(Network("cnn", (8, 8), 10))
    before = held()
    activations(Network("cnn", (8, 8), 10))
    assert held() == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kernel", ["auto", "streams"])
def test_a_run_leaves_no_memory_of_the_gpu_behind(kernel: str) -> None:
    """Captured steps go with the run. Libraries keep a workspace for each stream, so all runs take the same streams."""
    x = np.random.default_rng(0).integers(0, 256, (64, 28, 28)).astype(np.uint8)
    y = np.arange(64) // 4 % 10
    data = Federation.from_arrays(x, y, clients=np.arange(64) % 4)
    experiment = Experiment.of(
        algorithm="fedavg",
        model="cnn",
        clusters=1,
        training={"rounds": 4, "batch_size": 8, "lr": 0.05},
        engine={"device": "cuda", "kernel": kernel},
    )
    held = []
    for _ in range(4):
        run(experiment, federation=data, quiet=True)
        gc.collect()
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_allocated())
    assert held[3] <= held[1] + 2**20, held  # what the first leaves is the libraries' own
