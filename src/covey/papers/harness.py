"""How a paper's table is reproduced: experiments run over seeds, cells beside the paper's figures, a verdict per claim.

A paper is a module with a `TITLE` and `TABLES`, a dict from a stable name ("table3", "fig3") to a `Table`: a function from
`Options` to a `Reproduction`, and the datasets it can run on, its default first. Inside such a function

    options.run({...}, seeds)        one experiment over seeds: finished runs are read back, interrupted ones resumed
    options.tried({...}, seeds)      the same, for a table with a place for runs that diverge
    options.attempt({...}, seed)     a run that the table can do without, or why there is none
    options.quick                    a variant of a few minutes; it says in `settings` what it left out
    cell(row, column, values, paper) our values, seed by seed, beside the paper's

What the paper says of a table is another function, from its cells (`Sheet`) to `Statement`s. The harness judges them by the one
rule of `verdict.py`: after a run, and again from stored cells alone (`rejudged`), so that a sentence can be added without running.

Runs lie under the output folder by a hash of their configuration, so that tables share them and an interruption costs little.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from covey import files
from covey.data.sources.load import load
from covey.engines.prepare import device_of
from covey.engines.settle import described
from covey.errors import CoveyError, Unavailable, nearest
from covey.experiment.experiment import Experiment
from covey.learn.precision import ARITHMETIC
from covey.learn.precision import check as check_precision
from covey.papers import PAPERS
from covey.papers.cells import Cell, Sheet
from covey.papers.extent import refuse_other
from covey.papers.outcome import Diverged, Ended, Outcome, completed, finished, read
from covey.papers.verdict import Claim, Effect, Statement, judge
from covey.results.folder import RunFolder, hash_of
from covey.results.provenance import DATA, EXACT, UNKNOWN, ended, kinds, mixed, sitting, summary, versions


@dataclass(frozen=True)
class Reproduction:
    """A table as it came out."""

    paper: str
    table: str
    title: str
    dataset: str
    settings: dict[str, Any]
    cells: list[Cell]
    claims: list[Claim] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what a reader must know: readings, substitutes, what was cut
    command: str = ""
    seconds: float = 0.0  # of its runs, whenever they ran; else of its making
    versions: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    schema: int = 1
    runs: dict[str, Any] = field(default_factory=dict)  # what computed them: `provenance.summary`; {}: not recorded
    maps: list[dict[str, Any]] = field(
        default_factory=list
    )  # of dots without numbers that a cell could hold: `maps.Map`

    @property
    def name(self) -> str:
        dataset = f"-{self.dataset}" if self.dataset else ""
        return f"{self.paper}-{self.table}{dataset}{'-quick' if self.quick else ''}"

    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = files.finite(asdict(self))
        for one in content["cells"]:
            if not one["diverged"]:
                del one["diverged"]
        if not content["maps"]:
            del content["maps"]
        for effect in [effect for claim in content["claims"] for effect in claim["effects"]]:
            if not effect["lost"]:
                del effect["lost"]
        return content

    @classmethod
    def read(cls, path: Path) -> Reproduction:
        return cls.of(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, content: dict[str, Any]) -> Reproduction:
        """As `json` wrote it."""
        content = dict(content)
        cells = [Cell(**c) for c in content.pop("cells")]
        claims = [_claim(c) for c in content.pop("claims")]
        return cls(cells=cells, claims=claims, **content)

    def sheet(self) -> Sheet:
        return Sheet(self.cells, self.dataset, self.settings, self.quick)


def _claim(content: dict[str, Any]) -> Claim:
    """As stored; files from before there was one rule know two verdicts that no longer are, until they are judged again."""
    older = {"partly": "undecided", "not tested": "not measured"}
    effects = [Effect(**e) for e in content.pop("effects", [])]
    return Claim(**content | {"verdict": older.get(content["verdict"], content["verdict"])}, effects=effects)


UNFINISHED = "it is not finished"


@dataclass(frozen=True)
class Options:
    """What the command line asks of a table."""

    out: Path
    dataset: str = ""
    quick: bool = False
    seeds: int = 0  # 0: the table's own number
    device: str = "auto"
    workers: int = 0
    quiet: bool = False
    mixed: bool = False  # let a table have runs of different code, devices or arithmetic; it is marked
    # Of a GPU, as in engine.arithmetic; a run's name does not say it, so each but ieee has its own `out`.
    arithmetic: str = "ieee"
    read_only: bool = False  # attempts are read back where they are finished, and nothing runs
    failed: dict[str, str] = field(default_factory=dict, compare=False)  # name of an attempt -> why there is none
    seen: list[Ended] = field(default_factory=list, compare=False)  # by the table that is being made
    own_work: list[str] = field(default_factory=list, compare=False)  # datasets that the table computes on itself
    absent: list[str] = field(default_factory=list, compare=False)  # why it had to do without a run, once for each

    def __post_init__(self) -> None:
        if self.arithmetic not in ARITHMETIC:
            raise CoveyError(f"--arithmetic is {self.arithmetic!r}: choose {', '.join(ARITHMETIC)}")
        if self.arithmetic != "ieee" and self.device == "cpu":
            raise CoveyError(f"--arithmetic {self.arithmetic} is a GPU's, and --device is cpu: leave one of them out")

    def check_device(self) -> None:
        """Before anything runs: refuses an arithmetic that there is none of here. A CPU would compute in float32 without a word."""
        if self.arithmetic == "ieee":
            return
        device = device_of(Experiment.of({"engine": {"device": self.device}}))
        if device == "cpu":
            raise Unavailable(f"--arithmetic {self.arithmetic} is a GPU's, and torch finds none here: leave it out")
        try:
            check_precision(self.arithmetic, torch.device(device))
        except CoveyError as e:
            raise Unavailable(str(e)) from e

    def count(self, usual: int, quick: int = 1) -> int:
        """How many seeds: as asked, else `usual`, or `quick` of them in a quick run."""
        return self.seeds or (quick if self.quick else usual)

    def run(self, table: Mapping[str, Any], seeds: int = 1, first: int = 0) -> list[Outcome]:
        """One experiment with seeds `first`, `first` + 1, …; each run is finished, resumed, or read back if it is there."""
        ended = self.tried(table, seeds, first)
        lost = next((run for run in ended if isinstance(run, Diverged)), None)
        if lost:
            raise CoveyError(
                f"a run diverged (seed {lost.seed}), and this table has no place for one that did: {lost.why}"
            )
        return finished(ended)

    def tried(self, table: Mapping[str, Any], seeds: int = 1, first: int = 0) -> list[Ended]:
        """The same, for a table that says of a run that it diverged (`outcome.py`)."""
        return [self._admitted(self._one({**table, "seed": seed})) for seed in range(first, first + seeds)]

    def attempt(self, table: Mapping[str, Any], seed: int) -> Outcome | str:
        """A run that the table can do without; in words why there is none, where it is refused or may not run now."""
        ended = self._attempted(table, seed)
        if isinstance(ended, str):
            self.absent.append(ended)
            return ended
        self._admitted(ended)
        return ended

    def _attempted(self, table: Mapping[str, Any], seed: int) -> Outcome | str:
        try:
            experiment = Experiment.of({**table, "seed": seed})
            name, folder = hash_of(experiment), RunFolder.named_by_hash(self.out, experiment)
            if name in self.failed:
                return self.failed[name]
            if self.read_only and read(folder) is None:
                return UNFINISHED
            ended = self._one({**table, "seed": seed})
            return ended.why if isinstance(ended, Diverged) else ended
        except Unavailable:  # no property of the run: a table that said so would be worthless
            raise
        except CoveyError as e:
            return str(e)

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        """Said before later runs are chosen by what these reached: a rehearsal can hear no further (`rehearsal.py`)."""

    def alone(self) -> None:
        """Said once all runs were asked for, before the table computes by itself: a rehearsal need not hear that."""
        self.own_work.append(self.dataset)

    def _admitted(self, outcome: Ended) -> Ended:
        """A run that was computed as the table's others were; else the table would compare code or devices, not methods."""
        self.seen.append(outcome)
        for one in outcome.sittings:
            refuse_other(one.get(DATA, ""))
        self._refuse_other_arithmetic(outcome)
        odd = mixed(kinds(o.sittings for o in self.seen))
        if odd and not self.mixed:
            raise CoveyError(
                f"the runs in {self.out / 'runs'} were not all computed alike ({odd}): choose another --out, remove the older "
                "ones, or say --mixed, and the table is marked"
            )
        return outcome

    def _refuse_other_arithmetic(self, outcome: Ended) -> None:
        """Runs of one name can differ in it. Those from before it was kept are in float32."""
        asked = {EXACT, UNKNOWN} if self.arithmetic == "ieee" else {self.arithmetic}
        other = set(kinds([outcome.sittings])["arithmetic"]) - asked
        if other and not self.mixed:
            raise CoveyError(
                f"a run in {self.out / 'runs'} was computed in another arithmetic ({', '.join(other)}) than {self.arithmetic}: say "
                "which with --arithmetic, choose another --out, or say --mixed, and the table is marked"
            )

    def _one(self, table: dict[str, Any]) -> Ended:
        engine = {"device": self.device, "workers": self.workers, "arithmetic": self.arithmetic}
        experiment = Experiment.of({**table, "engine": engine})
        folder = RunFolder.named_by_hash(self.out, experiment)
        known = read(folder)
        if known is not None:
            return known
        self.check_device()
        self.say(f"{describe(experiment)} …")
        begin = time.perf_counter()
        ended = completed(experiment, folder, self.quiet)
        reached = f"{100 * ended.accuracy():.2f} %" if isinstance(ended, Outcome) else "diverged"
        self.say(f"    {reached} in {time.perf_counter() - begin:.0f} s")
        return ended

    def say(self, words: str) -> None:
        if not self.quiet:
            print(words, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Table:
    make: Callable[[Options], Reproduction]
    datasets: tuple[str, ...]  # the default first; ("",): needs none
    claims: Callable[[Sheet], list[Statement]]
    grows: bool = False  # made of what is finished, whatever is missing: it says itself what it lacks
    pictured: bool = False  # made of its findings' pictures, too, which runs of a pool draw for no other
    part_of: str = (
        ""  # a table that has all its runs and asks the same of them: where that is stored, it is no further evidence
    )

    @property
    def about(self) -> str:
        return (self.make.__doc__ or "").strip().split("\n")[0]


def tables(paper: str) -> dict[str, Table]:
    """The tables of a paper."""
    if paper not in PAPERS:
        raise CoveyError(f"there is no paper '{paper}'{nearest(paper, list(PAPERS))}")
    known: dict[str, Table] = import_module(PAPERS[paper]).TABLES
    return known


def reproduce(paper: str, table: str, options: Options, command: str = "") -> Reproduction:
    """One table on one dataset, with its command, time and versions filled in."""
    known = tables(paper)
    if table not in known:
        raise CoveyError(f"{paper} has no table '{table}'{nearest(table, list(known))}")
    chosen = known[table]
    dataset = options.dataset or chosen.datasets[0]
    if dataset not in chosen.datasets:
        able = ", ".join(d for d in chosen.datasets if d) or "no dataset at all"
        raise CoveyError(f"{paper}'s {table} runs on {able}, not on '{dataset}'")
    begin = time.perf_counter()
    asked = replace(options, dataset=dataset, seen=[], absent=[], own_work=[])
    process = sitting("cpu", "no training", "ieee", first_round=1)  # of tables that draw, attack or time without a run
    reproduction = chosen.make(asked)
    elapsed = time.perf_counter() - begin
    runs = list({id(o): o for o in asked.seen}.values())
    computing = sum(o.spent for o in runs)
    first = next(iter(finished(runs)), None)
    if not runs and dataset and asked.own_work:
        process |= {DATA: described(dataset, load(dataset))}
    values = vars(reproduction) | {
        "paper": paper,
        "table": table,
        "dataset": dataset,
        "quick": options.quick,
        "notes": [*reproduction.notes, *(_left_out(reproduction, asked) if chosen.grows else ())],
        "command": command,
        "seconds": computing or elapsed,
        "versions": first.result.get("versions", {}) if first else versions(),
        "runs": _provenance(runs, computing) if runs else summary([ended([process])], elapsed),
    }
    return rejudged(Reproduction(**values))


def _left_out(reproduction: Reproduction, asked: Options) -> list[str]:
    """In words, of a table that is made of what is finished and does not itself list what it lacks."""
    if not asked.absent or "missing" in reproduction.settings:
        return []
    every = len(asked.absent) + len(asked.seen)
    return [f"{len(asked.absent)} of {every} runs are not there, and what needs them is left out: {asked.absent[0]}."]


def _provenance(runs: Sequence[Ended], computing: float) -> dict[str, Any]:
    """Nothing where all runs are from before it was kept."""
    return summary([o.sittings for o in runs], computing) if any(o.sittings for o in runs) else {}


def rejudged(reproduction: Reproduction) -> Reproduction:
    """With the verdicts that its paper's statements get from its cells; nothing is run. Tables of others stay as they are."""
    table = tables(reproduction.paper).get(reproduction.table) if reproduction.paper in PAPERS else None
    if table is None:
        return reproduction
    sheet = reproduction.sheet()
    return replace(reproduction, claims=[judge(statement, sheet) for statement in table.claims(sheet)])


def stored(docs: Path) -> list[Reproduction]:
    """All reproductions among the documented results; other tables that lie there are not of papers."""
    read = []
    for path in sorted((docs / "results").glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as e:
            raise CoveyError(f"{path} is not JSON ({e}): restore it, or remove it and reproduce its table again") from e
        if isinstance(content, dict) and {"cells", "claims"} <= content.keys():
            read.append(Reproduction.of(content))
    return read


def describe(experiment: Experiment) -> str:
    """One line for the progress of a table."""
    t = experiment.training
    hidden = "" if experiment.encryption == "none" else f", {experiment.encryption}"
    return (
        f"{experiment.algorithm.name} on {experiment.dataset}{hidden}: {experiment.clients} clients, "
        f"{experiment.clusters} clusters, {t.rounds} rounds, seed {experiment.seed}"
    )
