"""Runs of many tables in one pool of processes, until they are done or time is up.

    covey reproduce --many 'fedcaprivacy/*_tuned/*' --many 'afc_cfl/*' --minutes 7 --workers 14 --device cuda --out DIR

Processes last: a GPU takes seconds to start in each, and fifteen of them share one well where models are small. Tables come in the
order in which they were named, and of a table the first seeds first. Whatever is finished stays finished: the same command goes on,
and makes the tables that have all their runs (`--docs` stores them). Of a run its figures are kept, without models, reports,
checkpoints and what each client had in each round; `DIR/runs.tar.xz` holds those that have ended for another machine, where the
same command goes on from it, and with `--minutes 0` makes the tables (`packing.py`). It is packed as runs end, at most every half
minute.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from covey import files
from covey.data.sources.files import data_folder
from covey.data.sources.store import is_here
from covey.engines.orphans import die_with_parent
from covey.errors import CoveyError, Unavailable
from covey.experiment.experiment import Experiment
from covey.papers import present
from covey.papers.harness import Options, Reproduction, describe, reproduce
from covey.papers.outcome import Diverged, completed
from covey.papers.packing import EVERY, KEPT, PACKED, packing
from covey.papers.rehearsal import Asked, Item, asked, items
from covey.results.folder import RunFolder

BY_CLIENT = (
    "memberships",
    "clusters",
    "classes",
)  # in a round's record, beside "clients" of each metric: most of its bytes
NO_MEMORY = ("CUDA out of memory", "CUDA error: out of memory")  # as torch says it, whoever passes it on
BROKEN = (
    "CUDA error"  # of a process that can compute no more, maybe by no fault of its run: under MPS one fault breaks all
)
TRIES = 3  # of a run whose process broke or ended
POLITE = 5.0  # seconds in which a process that computes nothing may end by itself
REFUSED = "refused.json"  # name of a run -> why there is none, on any machine: what tables that grow say of it


def chosen(patterns: Sequence[str]) -> list[Item]:
    """The tables that these patterns of PAPER/TABLE/DATASET name, in the order of the patterns."""
    every, found = items(), dict[Item, None]()
    for pattern in patterns:
        matched = [item for item in every if fnmatch(item.name, pattern)]
        if not matched:
            raise CoveyError(
                f"no table is named like '{pattern}': `covey reproduce --plan` lists PAPER/TABLE/DATASET of all"
            )
        found |= dict.fromkeys(matched)
    return list(found)


def refuse_absent_data(wanted: Sequence[Item]) -> None:
    """Before anything is run: every run of a table would fail one by one, and its time would go to the next."""
    absent = Counter(item.dataset for item in wanted if item.dataset and not is_here(item.dataset))
    if absent:
        listed = ", ".join(f"{name} ({count} of the tables)" for name, count in absent.items())
        raise Unavailable(
            f"data that these tables need are not in {data_folder()}: {listed}; put them there (`covey data list` says what "
            "is), or leave their tables out"
        )


@dataclass(frozen=True)
class Answer:
    """What a process says of a job."""

    said: str = ""
    problem: str = ""
    refused: bool = False  # by covey, on whatever machine
    broken: bool = False  # the process can do no more


@dataclass(frozen=True)
class Job:
    """A run, or a table that computes without any."""

    name: str
    item: Item
    experiment: Experiment | None
    pictured: bool = False  # a table wants its findings' pictures, too, be it this one or another


class Wishes:
    """What is still to be run for tables in the order of their worth. A table is asked when its turn comes."""

    def __init__(self, items: Sequence[Item], options: Options) -> None:
        self._items, self._options = items, options
        self._asked: dict[Item, Asked] = {}
        self.problems: list[str] = []  # of tables that cannot be asked: a run of theirs is damaged, say
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def ended(self, job: Job) -> None:
        """A table is asked again once the runs are there that decide its further ones."""
        self._ended.add(job.name)
        for item, known in list(self._asked.items()):
            if known.more and job.name in known.missing and known.missing.keys() <= self._ended:
                del self._asked[item]
                self._known(item)

    def again(self, job: Job) -> None:
        """It was not done, and its turn comes again."""
        self._begun.discard(job.name)

    def spares(self, job: Job) -> bool:
        """Whether the table that asked for it can do without."""
        return job.item.of.grows or job.name in self._asked[job.item].spare

    def next(self) -> Job | None:
        for item in self._items:
            job = next(self._open(item), None)
            if job:
                self._begun.add(job.name)
                return replace(job, pictured=self._pictured(job.name))
        return None

    def _pictured(self, run: str) -> bool:
        return any(run in self._known(item).runs for item in self._items if item.of.pictured)

    def _known(self, item: Item) -> Asked:
        if item not in self._asked:
            try:
                self._asked[item] = asked(item, self._options)
            except CoveyError as e:
                self._asked[item] = Asked({}, {}, more=False, alone=False, spare=frozenset())
                self.problems.append(f"{item.name}: {e}")
        return self._asked[item]

    def count(self) -> int:
        """Jobs of the tables asked so far that are not begun."""
        return len({job.name for item in self._asked for job in self._open(item)})

    def _open(self, item: Item) -> Iterator[Job]:
        known = self._known(item)
        for name, one in sorted(known.missing.items(), key=lambda pair: pair[1].seed):
            if name not in self._begun:
                yield Job(name, item, one)
        if _alone(item, known, self._options) and item.name not in self._begun:
            yield Job(item.name, item, None)


def _alone(item: Item, known: Asked, options: Options) -> bool:
    return known.alone and not known.runs and not _made(item, options).is_file()


def _made(item: Item, options: Options) -> Path:
    name = "-".join(part for part in (item.paper, item.table, item.dataset) if part)
    return options.out / f"{name}{'-quick' * options.quick}.json"


def run_many(wanted: Sequence[Item], options: Options, workers: int, minutes: float) -> list[str]:
    """Runs what these tables need, so many runs at a time; what went wrong, run by run. When time is up what runs is broken off.

    What a table can do without, it says itself: `Table.grows`, `Options.attempt`. Where processes share too little memory of a GPU,
    the one that is refused some ends, and its run is done by those that are left; a run whose process broke is done by another.
    """
    options.say(f"runs that have ended are packed in {options.out / PACKED}, at most every {EVERY:.0f} s")
    _write_refused(options)
    with packing(options.out) as more:
        return _run_many(wanted, options, workers, minutes, more)


def _run_many(
    wanted: Sequence[Item], options: Options, workers: int, minutes: float, more: Callable[[], None]
) -> list[str]:
    """`more`: is told whenever there is more to pack."""
    begin, done, problems, broke = time.monotonic(), 0, list[str](), Counter[str]()
    wishes, pool = Wishes(wanted, options), list[Worker]()
    try:
        while True:
            while sum(bool(w.job) for w in pool) < workers and (job := wishes.next()):
                idle = next((w for w in pool if not w.job), None)
                if idle is None:
                    pool.append(idle := Worker(options, workers))
                idle.give(job)
            busy, left = {w.answers: w for w in pool if w.job}, begin + 60 * minutes - time.monotonic()
            if not busy or left <= 0:
                return [*wishes.problems, *problems]
            ready = wait(list(busy), timeout=None if math.isinf(left) else left)
            for worker in [w for answers, w in busy.items() if answers in ready]:
                job, answer = worker.taken()
                problem = answer.problem
                if _without_memory(problem) and workers > 1:
                    workers -= 1
                    wishes.again(job)
                    pool.remove(worker)
                    worker.stop()
                    options.say(f"the GPU's memory is used up: {workers} processes go on, and redo {job.item.name}")
                    continue
                if answer.broken:
                    broke[job.name] += 1
                    pool.remove(worker)
                    worker.stop()
                    if broke[job.name] < TRIES:
                        wishes.again(job)
                        options.say(f"a process broke, another redoes {job.item.name}: {problem.splitlines()[0]}")
                        continue
                if answer.refused:
                    options.failed[job.name] = problem
                    _write_refused(options)
                wishes.ended(job)
                more()
                done, spent = done + 1, time.monotonic() - begin
                if problem and job.experiment:
                    problem = f"{describe(job.experiment)}: {problem}"
                words = f"{done} done, {wishes.count()} known to come: {job.item.name} {problem or answer.said}"
                options.say(f"[{spent:5.0f} s] {words}")
                if problem and not wishes.spares(job):
                    problems.append(f"{job.item.name}: {problem}")
    finally:
        for worker in pool:
            worker.stop()


def _write_refused(options: Options) -> None:
    if options.failed:
        files.write_json(options.out / REFUSED, options.failed)
    else:
        (options.out / REFUSED).unlink(missing_ok=True)


def _without_memory(problem: str) -> bool:
    return any(words in problem for words in NO_MEMORY)


def refused(out: Path) -> dict[str, str]:
    """Of the last pool that ran there, runs that covey refuses, not those for which the machine lacked something; another pool
    tries again.
    """
    path = out / REFUSED
    try:
        known: dict[str, str] = dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (TypeError, ValueError) as e:
        raise CoveyError(f"{path} is damaged ({e}): remove it, and the next pool that runs there writes it anew") from e
    return known


class Worker:
    """A process that takes jobs until it is stopped."""

    def __init__(self, options: Options, of: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.answers, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, replace(options, seen=[]), of), daemon=True)
        self._process.start()
        theirs.close()
        self.job: Job | None = None

    def give(self, job: Job) -> None:
        self.job = job
        with contextlib.suppress(ConnectionError):  # it has ended while it waited, which `taken` says
            table = job.experiment.table() if job.experiment else None
            self.answers.send((job.item, table, job.pictured))

    def taken(self) -> tuple[Job, Answer]:
        job, self.job = self.job, None
        assert job is not None
        try:
            answer: Answer = self.answers.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            answer = Answer(problem=f"its process ended with exit code {self._process.exitcode}", broken=True)
        return job, answer

    def stop(self) -> None:
        """One that waits ends by itself: what dies with work under way on a GPU breaks the others there, under MPS."""
        if self.job is None and self._process.is_alive():
            with contextlib.suppress(OSError):
                self.answers.send(None)
            self._process.join(POLITE)
        self._process.terminate()
        self._process.join(POLITE)
        self._process.kill()  # one that hangs
        self._process.join()
        self.answers.close()


def _serve(jobs: Connection, options: Options, of: int) -> None:
    import torch

    from covey.learn.kernels.kernels import share_gpu

    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started the pool, and stops it from there
    torch.set_num_threads(1)
    share_gpu(of)
    while (job := jobs.recv()) is not None:
        item, table, pictured = job
        begin = time.perf_counter()
        try:
            said = _completed(Experiment.of(table), pictured, options) if table else _computed(item, options)
            answer = Answer(f"{said}, {time.perf_counter() - begin:.1f} s")
        except Exception as e:  # one run that fails must not cost the others
            answer = _problem(e)
        if not answer.broken:
            answer = _with_memory_handed_back(answer)
        jobs.send(answer)  # only now: whoever has it may end this process, and nothing must be under way on a GPU then


def _problem(error: Exception) -> Answer:
    """Only what covey refuses on every machine is said of the run itself: data or memory may be there on another."""
    words = str(error) if isinstance(error, CoveyError) else f"{type(error).__name__}: {error}"
    broken = BROKEN in words and not _without_memory(words)
    of_machine = isinstance(error, Unavailable) or _without_memory(words) or broken
    return Answer(problem=words, refused=isinstance(error, CoveyError) and not of_machine, broken=broken)


def _with_memory_handed_back(answer: Answer) -> Answer:
    try:
        _hand_back_memory()
    except RuntimeError as e:  # the GPU broke meanwhile: what was finished is finished, this process does no more
        return replace(answer, problem=answer.problem or str(e), broken=True)
    return answer


def _hand_back_memory() -> None:
    """Of the GPU, what torch keeps of the last run for the next one: fifteen processes share it, and the largest run of each would
    stay taken for as long as they last.
    """
    import torch

    if torch.cuda.is_initialized():
        gc.collect()  # captured steps and their module refer to each other
        torch.cuda.empty_cache()


def _completed(experiment: Experiment, pictured: bool, options: Options) -> str:
    # The device is where it runs, no part of what it is; checkpoints would cost more than a short run that begins again.
    where = replace(experiment.engine, device=options.device, arithmetic=options.arithmetic, workers=1)
    engine = replace(where, checkpoint_every=0, checkpoint_minutes=1e6)
    own = replace(experiment, engine=engine)
    folder = RunFolder.named_by_hash(options.out, own)
    ended = completed(own, folder, quiet=True, figures_only=not pictured)
    folder.keep_only(KEPT)
    folder.write_records([_without_clients(record) for record in folder.records()])
    return describe(experiment) + (f": diverged, {ended.why}" if isinstance(ended, Diverged) else "")


def _without_clients(record: Mapping[str, Any]) -> dict[str, Any]:
    """A round's record without what it says of single clients, which no table asks for."""
    metrics = {
        name: {key: value for key, value in figures.items() if key != "clients"}
        for name, figures in (record.get("metrics") or {}).items()
    }
    return {key: value for key, value in record.items() if key not in BY_CLIENT} | {"metrics": metrics}


def _computed(item: Item, options: Options) -> str:
    asked_for = replace(options, dataset=item.dataset, quiet=True, seen=[])
    present.write(reproduce(item.paper, item.table, asked_for, command_of(item, options)), options.out)
    return "made"


def command_of(item: Item, options: Options) -> str:
    """What makes the same table alone."""
    words = ["covey reproduce", item.paper, "--table", item.table]
    words += ["--dataset", item.dataset] if item.dataset else []
    words += ["--quick"] * options.quick
    words += ["--seeds", str(options.seeds)] if options.seeds else []
    return " ".join([*words, *(["--arithmetic", options.arithmetic] if options.arithmetic != "ieee" else [])])


def complete_tables(wanted: Sequence[Item], options: Options) -> tuple[list[Reproduction], dict[Item, str]]:
    """Tables that have all they need, or grow with what is there, made from finished runs; and why the others are not made."""
    made, lacking = [], dict[Item, str]()
    for item in wanted:
        try:
            known = asked(item, options)
        except CoveyError as e:
            lacking[item] = str(e)
            continue
        stored = _made(item, options)
        if item.of.grows:
            try:
                table = _made_of(item, replace(options, read_only=True))
            except CoveyError as e:
                lacking[item] = str(e)
                continue
            if table.cells:
                made.append(table)
            else:  # an empty one would replace what is stored
                lacking[item] = "no row has its runs"
        elif known.missing or known.more:
            lacking[item] = f"{len(known.missing)} of {len(known.runs)} runs missing" + (
                " and those that follow" * known.more
            )
        elif known.alone and not known.runs and not stored.is_file():
            lacking[item] = "not computed"
        elif known.alone and not known.runs:
            try:
                made.append(Reproduction.read(stored))
            except present.UNREADABLE as e:
                lacking[item] = f"{stored} is damaged ({e}): remove it, and the same command makes it again"
        else:
            try:
                made.append(_made_of(item, options))
            except CoveyError as e:
                lacking[item] = str(e)
    return made, lacking


def _made_of(item: Item, options: Options) -> Reproduction:
    """A table from runs; refused where they may not stand in one, which must not cost the other tables."""
    return reproduce(item.paper, item.table, replace(options, dataset=item.dataset, seen=[]), command_of(item, options))
