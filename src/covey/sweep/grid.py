"""A sweep: the product of values × seeds as runs side by side, then one page and one table that compare the settings.

    covey run ifca-digits --sweep training.lr=0.1,0.01 --sweep clusters=3,5 --seeds 5

Every setting has a folder (`lr=0.1,clusters=3`) like that of `covey run --set seeds=5`: a folder per seed, and their mean. What
is finished is not run again, so the same command goes on after an interruption, and a longer list of values adds to what is
there. A run that fails costs only itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from covey import config, files
from covey.engines.settle import settled
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.metrics.metric import resolve
from covey.results.folder import RunFolder, hash_of
from covey.results.provenance import versions
from covey.rounds.completion import refuse_other_data
from covey.rounds.result import numbers, read_result, summarise_seeds
from covey.rounds.side_by_side import Job, alone, completing, spread_over
from covey.sweep.text import lines

MANY = 500  # runs: beyond, it may be a slip of the keyboard
_CHOSEN = ("algorithm", "partition", "defence", "compression")  # keys whose bare name stands for a table with it


@dataclass(frozen=True)
class Axis:
    """A key and the values it takes, as they were written."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One setting."""

    values: dict[str, str]
    experiment: Experiment

    @property
    def name(self) -> str:
        """For people and for the file system: the end of every key is enough where it is unique."""
        ends = [key.rsplit(".", 1)[-1] for key in self.values]
        keys = ends if len(set(ends)) == len(ends) else list(self.values)
        words = ",".join(f"{key}={value}" for key, value in zip(keys, self.values.values()))
        return re.sub(r"[^\w.,=+-]+", "-", words)[:120] or str(self.experiment.algorithm.name)


@dataclass(frozen=True)
class Summary:
    """A setting's figures over its finished seeds."""

    values: dict[str, str]
    name: str
    seeds: list[int]
    mean: dict[str, float]  # by dotted path in result.json
    std: dict[str, float]  # empty for a single seed


@dataclass(frozen=True)
class Sweep:
    """A sweep as it came out."""

    folder: Path
    command: str
    axes: list[str]
    settings: list[Summary]
    failed: dict[str, str]  # run -> why
    page: Path | None
    asked: tuple[str, ...] = ()  # names of the metrics that the experiment asks for

    def json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "command": self.command,
            "axes": self.axes,
            "settings": [files.finite(vars(s)) for s in self.settings],
            "failed": self.failed,
            "page": self.page.name if self.page else None,
            "versions": versions(),
        }


def axis(text: str) -> Axis:
    """`key=a,b,c`; commas within brackets, braces or quotes belong to a value."""
    key, equals, listed = (part.strip() for part in text.partition("="))
    values = _listed(listed)
    if not equals or not key or not all(values):
        raise CoveyError(f"--sweep {text!r}: expected key=value,value,…, for example training.lr=0.1,0.01")
    if key in ("seed", "seeds", "out") or key.split(".")[0] == "engine":
        raise CoveyError(
            f"--sweep cannot vary '{key}': use --seeds for repetitions, --set for the engine, --out for the folder"
        )
    if len(set(values)) < len(values):
        raise CoveyError(f"--sweep {text!r} lists a value twice: list it once")
    return Axis(key, tuple(values))


def _listed(text: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if letter == "," and not depth and not quote:
            parts.append("")
            continue
        parts[-1] += letter
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
    return [part.strip() for part in parts]


def points(table: Mapping[str, Any], axes: Sequence[Axis]) -> list[Point]:
    """Every combination of values; each is checked here, before anything runs."""
    keys = [a.key for a in axes]
    if len(set(keys)) < len(keys):
        raise CoveyError(f"--sweep names '{max(keys, key=keys.count)}' twice: list all its values in one")
    by_name: dict[str, Point] = {}
    for chosen in itertools.product(*(a.values for a in axes)):
        values = dict(zip(keys, chosen))
        changed: Mapping[str, Any] = table
        for key, value in values.items():
            assigned = config.assign({}, f"{key}={value}")
            for choice in _CHOSEN:
                if isinstance(assigned.get(choice), str):
                    assigned[choice] = {"name": assigned[choice]}
            changed = config.merge(changed, assigned)
        try:
            experiment = settled(Experiment.of(changed))
        except CoveyError as e:
            raise CoveyError(f"the sweep's setting {', '.join(f'{k}={v}' for k, v in values.items())}: {e}") from e
        point = Point(values, replace(experiment, engine=alone(experiment.engine), seeds=1, out=""))
        if point.name in by_name:
            raise CoveyError(f"two settings of the sweep are called {point.name}: leave one of them out")
        by_name[point.name] = point
    return list(by_name.values())


def sweep(
    table: Mapping[str, Any],
    sweeps: Sequence[str],
    seeds: int = 0,
    out: Path | None = None,
    *,
    quiet: bool = False,
    yes: bool = False,
    command: str = "",
) -> Sweep:
    """Runs what is not finished yet, then summarises. What failed is in the result; the others are kept."""
    base = Experiment.of(table)
    axes = [axis(text) for text in sweeps]
    settings = points(table, axes)
    count = seeds or base.seeds
    if len(settings) * count > MANY and not yes:
        raise CoveyError(
            f"the sweep has {len(settings) * count:,} runs: add --yes if that is meant, or list fewer values"
        )
    folder = out or (Path(base.out) if base.out else _usual_folder(base))
    jobs = {point.name: _jobs(point, RunFolder(folder / point.name), count) for point in settings}
    title = f"sweep of {base.algorithm.name} on {base.data_name}"
    every = [job for of_point in jobs.values() for job in of_point]
    ended = completing(every, partial(spread_over, base), title, quiet)
    failed = {job.title: problem for job, problem in ended if problem}
    summaries = []
    for point in settings:
        done = [job for job in jobs[point.name] if job.folder.finished]
        if done:
            summaries.append(_summary(point, RunFolder(folder / point.name), done, command))
    asked = tuple(resolve(name).name for name in base.evaluation.metrics)
    whole = Sweep(folder, command, [a.key for a in axes], summaries, failed, _page(folder, summaries), asked)
    files.write_json(folder / "sweep.json", whole.json())
    files.write_atomically(folder / "summary.txt", ("\n".join(lines(whole)) + "\n").encode())
    return whole


def _usual_folder(base: Experiment) -> Path:
    """The same for the same experiment, whatever is swept: so a sweep finds what is finished."""
    which = hash_of(replace(base, seeds=1))[:6]
    return Path("runs") / f"sweep-{base.algorithm.name}-{base.stem}-{which}"


def _jobs(point: Point, folder: RunFolder, count: int) -> list[Job]:
    """One job per seed, its config.toml written; a folder with a run of other settings is refused."""
    first = point.experiment.seed
    jobs = []
    for seed in range(first, first + count):
        job = Job(f"{point.name} seed {seed}", replace(point.experiment, seed=seed), folder.seed(seed))
        job.folder.refuse_other(job.experiment)
        refuse_other_data(job.experiment, job.folder)
        if not job.folder.config.is_file():
            job.folder.write_config(job.experiment)
        jobs.append(job)
    folder.write_config(replace(point.experiment, seeds=count))
    return jobs


def _summary(point: Point, folder: RunFolder, done: Sequence[Job], command: str) -> Summary:
    result = summarise_seeds([read_result(job.folder) for job in done], folder, command)
    over = result.seeds or {"mean": numbers(result.json(), ""), "std": {}}
    return Summary(point.values, point.name, [job.experiment.seed for job in done], over["mean"], over["std"])


def _page(folder: Path, summaries: Sequence[Summary]) -> Path | None:
    if len(summaries) < 2:
        return None
    from covey.report.page import write_comparison

    return write_comparison([folder / s.name for s in summaries], folder / "comparison.html")
