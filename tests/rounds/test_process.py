"""What a run leaves behind in its process: nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap

import torch

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
