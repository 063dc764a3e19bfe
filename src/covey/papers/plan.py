"""What every table needs, what of it is stored, and what its runs took: `covey reproduce --plan`.

Runs are heard from the tables themselves (`rehearsal.py`); seconds are those of the stored runs, added up, on the device that the
table names. So a table that was never run has no seconds, and nothing here is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from covey.errors import CoveyError
from covey.papers.extent import STORED_PARTS, WHOLE
from covey.papers.harness import Options, Reproduction, stored
from covey.papers.named import ASKED, ITEMS, PAPER, Named
from covey.papers.pages.content import about_of
from covey.papers.pages.markdown import dataset_name, table
from covey.papers.pool import chosen, command_of
from covey.papers.rehearsal import Item, asked, items
from covey.results.provenance import DATA, differing

FULL, ONE, SEEDLESS, QUICK, OTHER, NONE = KINDS = (
    "full",
    "one seed",
    "without seeds' values",
    "quick",
    "nothing of what is printed",
    "not run",
)
STATES = (FULL, "in part", "missing")  # of an item that the papers print, over its datasets
HEAD = ("table", "stored", "seeds", "runs", "rounds", "seconds of its runs", "computed by")
ITEM_HEAD = ("item", "state", "full on", "not full on", "left out of it")
SUBSETS = (
    "All rows on these datasets are of a part of them, which is what there is here: CIFAR-100 (16,000 of 60,000), EMNIST ByMerge "
    "(39,251 images of its test part), UTKFace (4,500 of 23,705 faces, 32 by 32). MNIST, Fashion-MNIST and Location-30 are whole. "
    "CIFAR-10 can be had whole (`cifar10_full.npz`): what was made on a part of it says so, and what is run from now on takes what "
    "is there."
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
    seconds: float  # of the stored runs, or of a table that has none; 0: not recorded
    device: str
    part: str = ""  # of the dataset, where the stored table is not on all that can be had of it
    without: int = 0  # figures that the paper prints and the stored table has none of ours for

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
    return lines_of(items(papers), options, docs)


def lines_of(wanted: Sequence[Item], options: Options, docs: Path) -> list[Line]:
    """Of these tables alone."""
    known = {one.name: one for one in stored(docs)}
    return [_line(item, options, known) for item in wanted]


def picked(paper: str, table: str, dataset: str, patterns: Sequence[str]) -> list[Item]:
    """The tables that a command line names, by a paper or by patterns; without a word, all."""
    if patterns:
        return chosen(patterns)
    found = [
        one for one in items([paper] if paper else ()) if table in ("", one.table) and dataset in ("", one.dataset)
    ]
    if not found:
        asked_for = " on ".join(f"'{word}'" for word in (table, dataset) if word)
        raise CoveyError(f"there is no table {asked_for}: `covey reproduce {paper}".rstrip() + "` lists what there is")
    return found


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
        seconds=_seconds(one, bool(needed.runs)),
        device=_computed_by(one),
        without=_without(one),
        part=_part(one),
    )


def _seconds(one: Reproduction | None, runs: bool) -> float:
    """Of the stored runs; of a table that has none, those of the whole command."""
    if one is None:
        return 0.0
    return float(one.runs.get("seconds", 0.0 if runs else one.seconds))


def _part(one: Reproduction | None) -> str:
    if one is None or any(WHOLE in line for line in one.runs.get(DATA, ())):
        return ""
    return STORED_PARTS.get(one.dataset, "")


def _without(one: Reproduction | None) -> int:
    return sum(c.paper is not None and c.ours is None for c in one.cells) if one else 0


def _computed_by(one: Reproduction | None) -> str:
    """The device, and whether the runs of the table differ in anything that can change a figure."""
    if one is None or not one.runs:
        return ""
    odd = differing(one.runs)
    return ", ".join(one.runs["device"]) + (f"; mixed {', '.join(odd)}" if odd else "")


def _kind(one: Reproduction | None, runs: bool) -> str:
    if one is None:
        return NONE
    if one.quick:
        return QUICK
    measured = [c for c in one.cells if c.n > 1]
    printed = [c for c in one.cells if c.paper is not None]
    if printed and all(c.ours is None for c in printed):
        return OTHER
    timed = any(c.unit == "s" for c in one.cells)
    if (runs or timed) and not measured:  # what is computed from a formula needs no second run
        return ONE
    return FULL if all(len(c.values) == c.n for c in measured) else SEEDLESS


def counted(lines: Sequence[Line]) -> str:
    kinds = [line.kind for line in lines]
    listed = ", ".join(f"{kinds.count(kind)} {kind}" for kind in KINDS)
    what = "table or figure" if len(lines) == 1 else "tables and figures"
    return f"{len(lines)} {what}, by dataset: {listed}."


def item_state(item: Named, lines: Mapping[str, Line]) -> str:
    """Full where it is on all of its datasets; missing where nothing is stored of any."""
    kinds = {lines[table].kind for table in item.tables}
    return STATES[0] if kinds == {FULL} else STATES[2] if kinds == {NONE} else STATES[1]


def counted_items(lines: Sequence[Line]) -> list[str]:
    """How much there is of what the papers print, of what was asked for beside it, and beyond both."""
    known = {line.item.name: line for line in lines}
    named = _named(known)
    sentences = []
    for whose, words in ((PAPER, "tables and figures of the papers"), (ASKED, "more that the project asked for")):
        states = [item_state(item, known) for item in named if item.whose == whose]
        listed = ", ".join(f"{states.count(state)} {state}" for state in STATES)
        sentences += [f"{len(states)} {words}, over all their datasets: {listed}."] if states else []
    inside = {table for item in ITEMS for table in item.tables}
    beyond = [line.kind for line in lines if line.item.name not in inside]
    return sentences + (
        [f"{len(beyond)} tables by dataset are beyond both: {beyond.count(FULL)} of them full."] if beyond else []
    )


def closing(lines: Sequence[Line]) -> list[str]:
    """What stands below a list: of whole papers also how much there is of what they print, which a part of one does not say."""
    whole = items(list(dict.fromkeys(line.item.paper for line in lines)))
    return [*(counted_items(lines) if len(lines) == len(whole) else []), counted(lines)]


def _named(known: Mapping[str, Line]) -> list[Named]:
    return [item for item in ITEMS if all(table in known for table in item.tables)]


def item_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Of each item its state, where it is full, and what lacks where it is not."""
    known = {line.item.name: line for line in lines}
    return [
        [
            f"{about_of(item.paper).label}, {item.label}" + f" ({ASKED})" * (item.whose == ASKED),
            item_state(item, known),
            ", ".join(_where(known[t], item.words(t)) for t in item.tables if known[t].kind == FULL),
            "<br>".join(
                f"{_where(known[t], item.words(t))}: {_lack(known[t])}" for t in item.tables if known[t].kind != FULL
            ),
            item.limits,
        ]
        for item in _named(known)
    ]


def _where(line: Line, words: str = "") -> str:
    name = dataset_name(line.item.dataset) if line.item.dataset else "no data needed"
    name += f" with {words}" * bool(words)
    name += f" ({line.part})" * bool(line.part)
    if not line.without or line.kind == NONE:
        return name
    return f"{name} ({line.without} of its printed figures have no number of ours)"


def _lack(line: Line) -> str:
    if line.kind != NONE or not line.runs:
        return line.kind
    return f"{line.kind} ({line.runs}{' and more' * line.more} runs, {line.rounds:,} rounds)"


def markdown(lines: Sequence[Line]) -> str:
    """The page `docs/coverage.md`."""
    head = [
        "# What is stored of the papers, and what it costs",
        "Made by `covey reproduce --plan --docs`. *Full*: every figure with its seeds' own values, from which verdicts are "
        "computed. *One seed*: no interval. *Without seeds' values*: stored before these were kept, as means and deviations. "
        "*Quick*: a smaller variant. Seconds are of all runs of a table together, on a device that they may have shared. "
        "Tables share runs. *And more*: these decide which follow. *Mixed*: runs of one table that differ in code or device.",
        " ".join(counted_items(lines)),
        counted(lines),
        "Many tables at once: `covey reproduce --many 'mingledpie/*/mnist' --minutes 60`; one alone: "
        "`covey reproduce PAPER --table TABLE --dataset DATASET`.",
        "On a GPU `--arithmetic torch`, `tf32` or `bf16` computes the runs in less than float32 "
        "([what each is](simulation_at_scale.md#what-a-gpu-computes-in)): in torch's, ResNet-18 trains in "
        "28 % of the time on an H200 ([459 of 1,625 ms](benchmarks.md); the small CNN in 85 %), and it is what other code computes "
        "in unless told otherwise. Such runs lie in a folder of their own, no table mixes them with others unless "
        "`--mixed` is said, and it says which it was made in.",
        SUBSETS,
    ]
    items = [
        "## What the papers print",
        "An item is *full* where it is on every dataset that its paper, or the project's issue, has it on; *in part* where some of "
        "it is stored; *missing* where nothing is. Each has its command, and what is not run waits for nothing but time on a "
        "machine: its runs and rounds stand in brackets. A printed figure without a number of ours: a target that no run reached, "
        "a rival that could not be rebuilt or was not run. Tables that neither asks for are in the list below, and not here.",
        table(list(ITEM_HEAD), item_rows(lines)),
        "## All tables by dataset",
    ]
    return "\n\n".join([*head, *items, table(list(HEAD), [line.words() for line in lines])]) + "\n"
