"""What an algorithm or a defence notes about itself, and how to show it: `measures = {"condition": Measure("Condition of H")}`.

The key is the name under which it calls `note` (without "picture:"). What is noted without a declaration is shown under its own
name, so that a declaration is a courtesy to readers and never a condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from covey.errors import CoveyError

LINE = "line"  # a number per round, or a short list of them; of a long list (one number per client) its spread
QUANTILES = "quantiles"  # five numbers per round: smallest, lower quarter, median, upper quarter, largest
MATRIX = "matrix"  # the last table
NOISE = "noise"  # a line that stands with the privacy ledger
DISTANCES = "distances"  # how far clients are from each other [n, n], or from one of them [n]
GROUPS = "groups"  # client -> whom it learns with; drawn with the distances
HIDDEN = "hidden"  # attacks are scored against it, or another picture says it; a chart of it would say nothing
WAYS = (LINE, QUANTILES, MATRIX, NOISE, DISTANCES, GROUPS, HIDDEN)


LEADS = "leads"  # in a record of accuracies: which of them leads, where it is not the mean over clusters


@dataclass(frozen=True)
class Measure:
    title: str
    unit: str = ""  # what stands at the axis
    words: str = ""  # how to read it, in a sentence or two
    shown: str = LINE
    axes: tuple[str, str] = ("row", "col")  # of a matrix
    beside: str = ""  # a sentence with the last values of other notes in braces; left out where one of them is missing
    alarm: float = math.inf  # a run that recorded as much ends with `warning`
    warning: str = ""  # "{}" stands for the largest value
    secret: bool = False  # attacks of a simulation are scored against it: a deployed server does not write it down

    def __post_init__(self) -> None:
        if self.shown not in WAYS:
            raise CoveyError(f"a measure is shown as {self.shown!r}: choose one of {', '.join(WAYS)}")


CLOCK, STALENESS, STALEST, DISCARDED = "simulated_time", "staleness", "stalest", "discarded"
OF_ROUNDS: Mapping[str, Measure] = {  # what rounds note that are asynchronous, or whose clients take simulated time
    CLOCK: Measure("Simulated time", "time", "A model of time: nothing of it was measured with a clock."),
    STALENESS: Measure(
        "Staleness, mean", "rounds", "How many rounds old the models were that a round's replies were trained from."
    ),
    STALEST: Measure(
        "Staleness, most", "rounds", "Of the oldest reply that a round took; participation.max_staleness bounds it."
    ),
    DISCARDED: Measure("Discarded", "trainings", "That took more rounds than participation.max_staleness."),
}
