"""Accuracy against leak against cost, setting by setting.

First all attacks watch the unprotected experiment, and the weakest setting of what the algorithm protects by itself. Those that
learn something there watch all other settings, each from the place where it learned most. An attack that showed nothing of the
unprotected experiment is not tried on protected ones: a protection that opens a leak of its own would go unseen here, and
`covey audit` of that one setting would show it. Left out are attacks on what is no knowledge (integrity), and eavesdroppers beside
a server that makes the same attack and sees all that passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from covey import files
from covey.attacks.finding import NOT_MEASURED, VERDICTS, Finding
from covey.audit.frontier.lines import Setting, lines_of, unprotected
from covey.audit.matrix import LEAKING
from covey.audit.questions import Questions, Watch
from covey.audit.runs import Gathered, ahead, check_places, claimed_by, gather, heading, jobs_of
from covey.data.federation import Federation
from covey.engines.settle import settled
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.leaks import DEEDS, EAVESDROPPER, SERVER
from covey.rounds.side_by_side import Job
from covey.statistics import Mean, student


@dataclass(frozen=True)
class Gauge:
    """An attack that measures what a setting leaks: from one place, by one of its scores."""

    attack: str
    column: str
    row: str
    metric: str


@dataclass(frozen=True)
class Point:
    """A setting as it came out."""

    line: str  # "": without a defence
    words: str
    value: float | None
    accuracies: tuple[float, ...] = ()  # of clients on their own distribution, seed by seed
    cost: float | None = None  # bytes up and down, per client and round
    claimed: dict[str, float | None] = field(default_factory=dict)  # mechanism -> ε of the ledger
    leaks: dict[str, Finding] = field(default_factory=dict)  # attack -> its score, without its details
    problem: str = ""  # why there are no figures

    @property
    def accuracy(self) -> Mean:
        return student(self.accuracies)

    def json(self) -> dict[str, Any]:
        plain = {"line": self.line, "words": self.words, "value": self.value, "problem": self.problem}
        scores = {name: _stored(finding) for name, finding in self.leaks.items()}
        measured = {"accuracies": list(self.accuracies), "bytes": self.cost, "claimed": self.claimed, "leaks": scores}
        return plain | measured

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Point:
        """Back from `json`."""
        leaks = {name: score for name, entry in content["leaks"].items() if (score := Finding.of(name, entry))}
        value = files.number(content["value"])
        plain = {name: content[name] for name in ("line", "words", "problem", "claimed")}
        return cls(**plain, value=value, accuracies=tuple(content["accuracies"]), cost=content["bytes"], leaks=leaks)


def _stored(finding: Finding) -> dict[str, Any]:
    content = finding.json()
    del content["details"], content["variants"]
    return content


@dataclass(frozen=True)
class Varied:
    """A line in words: whose it is, what is varied, and whether the algorithm has it by itself."""

    label: str
    words: str
    by_itself: bool


@dataclass(frozen=True)
class Frontier:
    """What a table, a page and a sentence are written from."""

    heading: dict[str, Any]  # algorithm, dataset, clients, …: as an audit has it
    seeds: int
    lines: dict[str, Varied]  # by name
    gauges: tuple[Gauge, ...]
    points: tuple[Point, ...]  # line by line, from weak to strong; first the experiment without a defence
    silent: tuple[str, ...] = ()  # attacks that showed nothing to begin with, and are not swept

    def of_line(self, name: str) -> list[Point]:
        return [point for point in self.points if point.line == name]

    def json(self) -> dict[str, Any]:
        return {
            "heading": {**self.heading, "notes": list(self.heading.get("notes", ()))},
            "seeds": self.seeds,
            "lines": {name: vars(line) for name, line in self.lines.items()},
            "gauges": [vars(gauge) for gauge in self.gauges],
            "points": [files.finite(point.json()) for point in self.points],
            "silent": list(self.silent),
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Frontier:
        """Back from `json`."""
        return cls(
            heading=dict(content["heading"]),
            seeds=content["seeds"],
            lines={name: Varied(**line) for name, line in content["lines"].items()},
            gauges=tuple(Gauge(**gauge) for gauge in content["gauges"]),
            points=tuple(Point.of(point) for point in content["points"]),
            silent=tuple(content["silent"]),
        )


def frontier(
    experiment: Experiment,
    out: str | Path,
    protections: Sequence[str] = (),
    *,
    federation: Federation | None = None,
    quiet: bool = False,
    processes: bool = False,
) -> Frontier:
    """Sweeps the strengths of these protections (see `lines_of`), with `experiment.seeds` seeds each; runs lie under `out/runs`.

    Finished runs are read back and interrupted ones go on. `processes`: as in `audit`.
    """
    check_places(experiment)
    experiment = settled(experiment, federation)
    lines = lines_of(experiment, protections)
    if not lines:
        raise CoveyError(
            f"neither {experiment.algorithm.name} nor any defence declares a strength: name one (`covey list defences`)"
        )
    sweep = _Sweep(Path(out), federation, quiet, processes and federation is None)
    bare = [] if all(line.by_itself for line in lines) and experiment.defence is None else [unprotected(experiment)]
    questions = Questions(experiment)
    looked_for = watches_of(questions)
    weakest = [line.settings[0] for line in lines if line.by_itself]
    begun = sweep.measured([*bare, *weakest], looked_for)
    gauges, silent = gauges_of(questions, begun)
    watches = {Watch(gauge.attack, gauge.column) for gauge in gauges}
    if not gauges:
        raise CoveyError(
            "no attack learns anything of this experiment without protection, so there is nothing to weigh: "
            f"`covey audit` says what was tried ({', '.join(silent) or 'nothing could be'})"
        )
    rest = [setting for line in lines for setting in (line.settings[1:] if line.by_itself else line.settings)]
    every = {**begun, **sweep.measured(rest, watches)}
    ordered = [*bare, *(setting for line in lines for setting in line.settings)]
    return Frontier(
        heading=heading(replace(experiment, defence=None)),
        seeds=experiment.seeds,
        lines={line.name: Varied(line.label, line.words, line.by_itself) for line in lines},
        gauges=gauges,
        points=tuple(_point(setting, every[setting.words], gauges) for setting in ordered),
        silent=silent,
    )


@dataclass(frozen=True)
class _Sweep:
    out: Path
    federation: Federation | None
    quiet: bool
    processes: bool

    def measured(self, settings: Sequence[Setting], watches: set[Watch]) -> dict[str, Gathered | str]:
        """Setting, in words -> what its runs came to, or why they could not be made."""
        every: dict[str, Gathered | str] = {}
        if self.federation is None and settings:
            jobs = [self._jobs(setting, watches) for setting in settings]
            order = ahead(jobs, settings[0].experiment, self.processes, self.quiet)
        else:
            order = iter(range(len(settings)))
        for n in order:
            setting = settings[n]
            try:
                every[setting.words] = gather(
                    setting.experiment, self.out, True, federation=self.federation, chosen=watches
                )
            except CoveyError as problem:
                every[setting.words] = str(problem)
        return every

    def _jobs(self, setting: Setting, watches: set[Watch]) -> list[Job]:
        try:
            return jobs_of(setting.experiment, self.out, watches, setting.words)
        except CoveyError:  # which gathering will say
            return []


def watches_of(questions: Questions) -> set[Watch]:
    """What is looked for without protection: every attack on what could be learned, from every place that sees something else."""
    every = {watch for watch in questions.watches() if _row(questions, watch) not in DEEDS}
    return {watch for watch in every if watch.column != EAVESDROPPER or Watch(watch.attack, SERVER) not in every}


def _row(questions: Questions, watch: Watch) -> str:
    row = questions.declared[watch.attack].row
    return "" if row is None else row.name


def gauges_of(questions: Questions, begun: Mapping[str, Gathered | str]) -> tuple[tuple[Gauge, ...], tuple[str, ...]]:
    """(what leaks without protection: by which attack, from where, in which score; the attacks that showed nothing).

    CoveyError where none of the settings could be run.
    """
    problems = [problem for problem in begun.values() if isinstance(problem, str)]
    if len(problems) == len(begun):
        raise CoveyError(problems[0])
    best: dict[str, tuple[Gauge, Finding]] = {}
    tried: dict[str, None] = {}
    for gathered in (one for one in begun.values() if not isinstance(one, str)):
        for watch in gathered.scored:
            tried[watch.attack] = None
            score = gathered.score(watch)
            for one in (score, *score.variants):
                if one.verdict in LEAKING and (watch.attack not in best or _worse(one, best[watch.attack][1])):
                    best[watch.attack] = Gauge(watch.attack, watch.column, _row(questions, watch), one.metric), one
    return tuple(gauge for gauge, _ in best.values()), tuple(name for name in tried if name not in best)


def _worse(one: Finding, other: Finding) -> bool:
    """The graver verdict, then the greater excess; of equals the first place counts."""
    return (-VERDICTS.index(one.verdict), one.excess) > (-VERDICTS.index(other.verdict), other.excess)


def _point(setting: Setting, gathered: Gathered | str, gauges: Sequence[Gauge]) -> Point:
    bare = Point(setting.line, setting.words, setting.value)
    if isinstance(gathered, str):
        return replace(bare, problem=gathered)
    results = list(gathered.undisturbed.values())
    accuracies = [files.number(result["accuracy"].get("client_mean")) for result in results]
    known = tuple(value for value in accuracies if value is not None)
    if not known:
        return replace(bare, problem="its runs have no accuracy to weigh")
    bytes_ = [sum(result["bytes"].get(way) or 0.0 for way in ("up", "down")) for result in results]
    leaks = {gauge.attack: score for gauge in gauges if (score := _score(gauge, gathered)) is not None}
    return replace(
        bare,
        accuracies=known,
        cost=sum(bytes_) / len(bytes_),
        claimed=claimed_by(results),
        leaks=leaks,
    )


def _score(gauge: Gauge, gathered: Gathered) -> Finding | None:
    """The gauge's score of a setting: of several attackers with the same measure, such as one who reckons with noise, the worst."""
    watch = Watch(gauge.attack, gauge.column)
    if watch not in gathered.scored:
        return None
    score = gathered.score(watch)
    alike = [one for one in (score, *score.variants) if one.metric == gauge.metric and one.verdict != NOT_MEASURED]
    return replace(max(alike, key=lambda one: one.excess), details={}, variants=[]) if alike else None
