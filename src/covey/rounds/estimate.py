"""What a run will cost, seen by running its first rounds: time, bytes and memory of the very code that the run would take."""

from __future__ import annotations

import itertools
import resource
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from covey.data.federation import Federation
from covey.engines.prepare import prepare
from covey.experiment.experiment import Experiment
from covey.report.format import counted, duration, size
from covey.rounds.loop import run

MOST_ROUNDS, ENOUGH_SECONDS = 3, 20.0  # rounds that are tried: later ones may send what the first has nothing of yet


@dataclass(frozen=True)
class Estimate:
    dataset: str
    sizes: tuple[int, int]  # samples of the smallest and of the largest client
    clients: int
    model: str
    parameters: int
    participants: int  # of the last round that was tried
    tried: int  # rounds
    rounds: int  # of the whole run, over all its seeds
    round_seconds: float
    up: float  # bytes of a client in a round
    down: float
    memory: int  # bytes, at the peak of this process
    worker_memory: int  # … and of its largest worker

    @property
    def seconds(self) -> float:
        return self.rounds * self.round_seconds

    @property
    def traffic(self) -> float:
        """Bytes of all clients in all rounds."""
        return self.rounds * self.participants * (self.up + self.down)

    def lines(self) -> list[str]:
        least, most = self.sizes
        samples = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        workers = f", {size(self.worker_memory)} in the largest worker" if self.worker_memory else ""
        return [
            f"data        {self.dataset}: {self.clients:,} clients of {samples} samples",
            f"model       {self.model}: {self.parameters:,} parameters",
            f"one round   {duration(self.round_seconds)} for {self.participants:,} clients; {size(self.up)} up and "
            f"{size(self.down)} down each",
            f"whole run   about {duration(self.seconds)} and {size(self.traffic)} over all links in "
            f"{counted(self.rounds, 'round')} (as the first {self.tried} went, without attacks)",
            f"memory      {size(self.memory)} at the peak of this process{workers}",
        ]


def estimate(experiment: Experiment, federation: Federation | None = None) -> Estimate:
    """Runs a few rounds without attacks and keeps nothing of them. A target, which may end a run sooner, is not looked at."""
    ends, last = [time.monotonic()], dict[str, Any]()

    def enough(record: dict[str, Any], state: Any) -> None:
        ends.append(time.monotonic())
        last.update(record)
        if len(ends) > MOST_ROUNDS or ends[-1] - ends[0] > ENOUGH_SECONDS:
            raise StopIteration

    once = replace(experiment, attacks=(), seeds=1, training=replace(experiment.training, target=0.0))
    data, network, _ = prepare(once, federation)
    run(once, federation=data, callbacks=[enough], quiet=True)
    tried = len(ends) - 1
    # The first round also starts workers: with later ones at hand it does not count.
    each = [b - a for a, b in itertools.pairwise(ends)]
    sizes = data.holdings.sizes.tolist()
    return Estimate(
        dataset=data.dataset.name,
        sizes=(min(sizes), max(sizes)),
        clients=len(sizes),
        model=str(experiment.model),
        parameters=network.d,
        participants=last["participants"],
        tried=tried,
        rounds=experiment.training.rounds * experiment.seeds,
        round_seconds=min(each[1:] or each),
        up=last["bytes"]["up"],
        down=last["bytes"]["down"],
        memory=_peak(resource.RUSAGE_SELF),
        worker_memory=_peak(resource.RUSAGE_CHILDREN),
    )


def _peak(of: int) -> int:
    largest = resource.getrusage(of).ru_maxrss
    return largest if sys.platform == "darwin" else 1024 * largest
