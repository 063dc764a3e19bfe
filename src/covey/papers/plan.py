"""What every table needs, what of it is stored, and what its runs took: `covey reproduce --plan`.

Runs are heard from the tables themselves (`rehearsal.py`); seconds are those of the stored runs, added up, on the device that the
table names. So a table that was never run has no seconds, and nothing here is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from covey.papers.harness import Options, Reproduction, stored
from covey.papers.pool import command_of
from covey.papers.rehearsal import Item, asked, items
from covey.results.provenance import MATTERS

FULL, ONE, SEEDLESS, QUICK, NONE = KINDS = ("full", "one seed", "without seeds' values", "quick", "not run")
HEAD = ("table", "stored", "seeds", "runs", "rounds", "seconds of its runs", "computed by")
SUBSETS = (
    "All rows on these datasets are of a part of them, which is what there is here: CIFAR-10 (20,000 of 50,000 training, 5,000 of "
    "10,000 test images), CIFAR-100 (16,000 of 60,000), EMNIST ByMerge (39,251 images of its test part), UTKFace (4,500 of 23,705 "
    "faces, 32 by 32). MNIST, Fashion-MNIST and Location-30 are whole."
)


@dataclass(frozen=True)
class Line:
    """One table on one dataset."""

    item: Item
    command: str
    runs: int
    rounds: int
    more: bool  # further runs follow from what these reach
    alone: bool  # it computes beside its runs
    kind: str  # of what is stored
    seeds: str
    seconds: float  # of the stored runs; 0: not recorded
    device: str

    def words(self) -> list[str]:
        count = f"{self.runs}{' and more' * self.more}" if self.runs else "its own"
        seconds = f"{self.seconds:,.0f}" if self.seconds else "–"
        return [
            self.item.name,
            self.kind,
            self.seeds,
            count,
            f"{self.rounds:,}" if self.runs else "",
            seconds,
            self.device,
        ]


def lines(papers: Sequence[str], options: Options, docs: Path) -> list[Line]:
    """In the order of papers and tables."""
    known = {one.name: one for one in stored(docs)}
    return [_line(item, options, known) for item in items(papers)]


def _line(item: Item, options: Options, known: Mapping[str, Reproduction]) -> Line:
    name = "-".join(part for part in (item.paper, item.table, item.dataset) if part)
    one = known.get(name) or known.get(f"{name}-quick")
    needed = asked(item, options)
    repetitions = sorted({c.n for c in one.cells if c.n}) if one else []
    return Line(
        item=item,
        command=command_of(item, options),
        runs=len(needed.runs),
        rounds=sum(run.training.rounds for run in needed.runs.values()),
        more=needed.more,
        alone=needed.alone,
        kind=_kind(one, bool(needed.runs)),
        seeds=f"{repetitions[-1]}" if repetitions else "",
        seconds=float(one.runs.get("seconds", 0.0)) if one else 0.0,
        device=_computed_by(one),
    )


def _computed_by(one: Reproduction | None) -> str:
    """The device, and whether the runs of the table differ in anything that can change a figure."""
    if one is None or not one.runs:
        return ""
    odd = [name for name in MATTERS if len(one.runs.get(name, ())) > 1]
    return ", ".join(one.runs["device"]) + (f"; mixed {', '.join(odd)}" if odd else "")


def _kind(one: Reproduction | None, runs: bool) -> str:
    if one is None:
        return NONE
    if one.quick:
        return QUICK
    measured = [c for c in one.cells if c.n > 1]
    if runs and not measured:
        return ONE
    return FULL if all(len(c.values) == c.n for c in measured) else SEEDLESS


def counted(lines: Sequence[Line]) -> str:
    kinds = [line.kind for line in lines]
    listed = ", ".join(f"{kinds.count(kind)} {kind}" for kind in KINDS)
    return f"{len(lines)} tables and figures, by dataset: {listed}."


def markdown(lines: Sequence[Line]) -> str:
    """The page `docs/coverage.md`."""
    from covey.papers.pages.markdown import table

    head = [
        "# What is stored of the papers, and what it costs",
        "Made by `covey reproduce --plan --docs`. *Full*: every figure with its seeds' own values, from which verdicts are "
        "computed. *One seed*: no interval. *Without seeds' values*: stored before these were kept, as means and deviations. "
        "*Quick*: a smaller variant. Seconds are of all runs of a table together, on a device that they may have shared. "
        "Tables share runs. *And more*: these decide which follow. *Mixed*: runs of one table that differ in code or device.",
        counted(lines),
        "Many tables at once: `covey reproduce --many 'mingledpie/*/mnist' --minutes 60`; one alone: "
        "`covey reproduce PAPER --table TABLE --dataset DATASET`.",
        SUBSETS,
    ]
    return "\n\n".join([*head, table(list(HEAD), [line.words() for line in lines])]) + "\n"
