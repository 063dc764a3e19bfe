"""What a run leaves behind in its process: nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from covey import Experiment, Federation, run
from covey.learn.flat import Network
from covey.learn.objective import activations
from covey.rounds import process


def test_objects_of_a_run_are_collected_also_where_others_have_frozen_theirs() -> None:
    code = """
        import gc
        from covey.rounds.process import old_objects_left_alone

        class Cycle:
            def __init__(self):
                self.own = self

        with old_objects_left_alone():
            Cycle()
            with old_objects_left_alone():  # a run of an attack
                Cycle()
            gc.collect()
            assert not [o for o in gc.get_objects() if isinstance(o, Cycle)], "kept while the run goes on"
            Cycle()
        gc.collect()
        print([o for o in gc.get_objects() if isinstance(o, Cycle)], gc.get_freeze_count())
    """
    program = "import gc; from covey.rounds import process\n{}\n" + textwrap.dedent(code)
    for before, frozen in (("", False), ("gc.freeze()", True)):
        done = subprocess.run(
            [sys.executable, "-c", program.format(before)], capture_output=True, text=True, timeout=120, check=True
        )
        kept, count = done.stdout.split()
        assert kept == "[]"
        assert (int(count) > process.PYTHONS_OWN) == frozen  # what others froze stays so


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
