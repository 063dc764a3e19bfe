"""A step of the loop kernel on a CPU, in one thread as workers compute: torch's convolutions beside covey's own loops, in turns.

    PYTHONPATH=src OMP_WAIT_POLICY=passive python benchmarks/bench_narrow.py [--models cnn] [--turns 5]

Milliseconds of computing (other users of the machine disturb them less), medians over the turns, and the ratio in the same turn
with the smallest and largest. Networks that the loops are not for are computed by torch twice: their ratio is 1.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from covey.engines.allocation import keep_freed
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.loop import Loop
from covey.learn.samples import Samples

SHAPES = ((28, 28), (32, 32, 3), (16, 16), (8, 8))
BATCHES = (8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 500)


def stepper(samples: Samples, batch: int, own_loops: bool) -> Callable[[], None]:
    network = samples.network
    trainee = Loop(network, samples, torch.device("cpu"), own_loops).trainee(0, 1.0)
    trainee.begin(initial(network, 1))
    model = trainee.trained_views(trainee.model)
    generator, factor = torch.Generator().manual_seed(1), torch.full((batch,), 1 / batch)

    def step() -> None:
        rows = torch.randint(0, len(samples.x), (batch,), generator=generator)
        gradients = trainee.gradients((samples.inputs(rows), samples.labels(rows), None, None, None), factor)
        torch._foreach_add_(model, gradients, alpha=-0.01)

    return step


def milliseconds(step: Callable[[], None], times: int) -> float:
    begin = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - begin) / times * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="cnn")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed()
    for model in options.models.split(","):
        for shape in SHAPES:
            x = torch.randint(0, 256, (600, *shape), dtype=torch.uint8)
            samples = Samples(Network(model, shape, 10), x, torch.randint(0, 10, (600,)), torch.device("cpu"))
            for batch in BATCHES:
                torchs, own = (stepper(samples, batch, yes) for yes in (False, True))
                own()
                times = max(2, int(60 / milliseconds(torchs, 3)))
                turns = [(milliseconds(torchs, times), milliseconds(own, times)) for _ in range(options.turns)]
                before, after = (statistics.median(side) for side in zip(*turns))
                ratios = sorted(a / b for a, b in turns)
                print(
                    f"{model:8} {'×'.join(map(str, shape)):8} batch {batch:3}: torch {before:7.3f}, own {after:7.3f}, "
                    f"{statistics.median(ratios):.2f} × ({ratios[0]:.2f}–{ratios[-1]:.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
