"""Whole runs side by side: each a process of this machine, or a task on Ray. Both work in the run's folder, where anyone can
watch its rounds; an interrupted run goes on from its checkpoint.

Processes are started afresh, so a script of your own that asks for them guards its main part by `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from covey.engines.orphans import die_with_parent
from covey.engines.simulate import cores
from covey.errors import CoveyError
from covey.experiment.experiment import EngineConfig, Experiment
from covey.report.progress_of_runs import Row, RunsProgress
from covey.results.folder import RunFolder
from covey.results.follow import Tail

POLL = 0.2  # seconds


@dataclass(frozen=True)
class Job:
    """One run of many. Its folder holds its config.toml."""

    title: str
    experiment: Experiment
    folder: RunFolder


class Runs(Protocol):
    room: int  # runs side by side

    def start(self, job: Job) -> None: ...

    def ended(self) -> Iterator[tuple[Job, str]]:
        """(job, what went wrong or "") of those that have ended since the last look."""
        ...

    def stop(self) -> None: ...


def alone(engine: EngineConfig) -> EngineConfig:
    """The engine of one run among many: one process, since the runs are what is spread."""
    return replace(engine, name="simulate", workers=1)


def spread_over(experiment: Experiment) -> Runs:
    """Where many runs go: `engine.name` says where, `engine.workers` how many side by side."""
    engine = experiment.engine
    if engine.name == "ray":
        return OnRay(engine.workers, engine.gpus if engine.device == "cuda" else 0.0)
    from covey.engines.prepare import device_of

    if device_of(experiment) != "cuda":
        return Processes(engine.workers or cores())
    devices = gpus()  # each of which one run fills
    return Processes(engine.workers or len(devices), devices)


def gpus() -> tuple[str, ...]:
    """The GPUs of this machine that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if given:
        return tuple(name.strip() for name in given.split(","))
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))


def completing(
    jobs: Sequence[Job], places: Callable[[], Runs], title: str, quiet: bool = False
) -> Iterator[tuple[Job, str]]:
    """Runs the jobs that are not finished: (job, what went wrong or "") as each of them ends, under one progress over all jobs.

    `places` is called only where there is something to run. Who stops asking stops what runs; finished rounds are kept.
    """
    todo = [job for job in jobs if not job.folder.finished]
    if not todo:
        return
    runs = places()
    finished, failed, waiting = len(jobs) - len(todo), 0, list(todo)
    done_before, begin = _rounds(todo), time.monotonic()
    running: dict[str, tuple[Job, Tail]] = {}
    with RunsProgress(len(jobs), title, quiet) as progress:
        try:
            while todo or running:
                while todo and len(running) < runs.room:
                    job = todo.pop(0)
                    runs.start(job)
                    running[job.title] = (job, Tail(job.folder.metrics))
                for _, tail in running.values():
                    tail.update()
                rows = [
                    Row(title, tail.rounds, job.experiment.training.rounds, tail.curve[-1] if tail.curve else None)
                    for title, (job, tail) in running.items()
                ]
                still = sum(job.experiment.training.rounds for job in todo) + sum(r.rounds - r.done for r in rows)
                did = sum(j.experiment.training.rounds for j in waiting) - still - done_before
                left = (time.monotonic() - begin) / did * still if did > 0 else None
                progress.update(finished, failed, rows, left)
                for job, problem in runs.ended():
                    del running[job.title]
                    problem = problem if problem or job.folder.finished else "it left no result.json"
                    finished, failed = finished + (not problem), failed + bool(problem)
                    yield job, problem
                if running:
                    time.sleep(POLL)
            progress.update(finished, failed, [], None)
        finally:
            runs.stop()


def _rounds(jobs: Sequence[Job]) -> int:
    """Rounds that interrupted runs have behind them: progress, but not of this session's making."""
    total = 0
    for job in jobs:
        if job.folder.begun:
            tail = Tail(job.folder.metrics)
            tail.update()
            total += tail.rounds
    return total


class InTurn:
    """One run after the other, in this process: for who calls from a script, and for data that no other process has."""

    room = 1

    def __init__(self) -> None:
        self._waiting: list[Job] = []

    def start(self, job: Job) -> None:
        self._waiting.append(job)

    def ended(self) -> Iterator[tuple[Job, str]]:
        while self._waiting:
            job = self._waiting.pop(0)
            yield job, _run_in(job.folder.path)

    def stop(self) -> None:
        pass


class Processes:
    """Processes that make one run after the other, forked from one that has all modules loaded: what a process has read of the
    data, or started on a GPU, serves its next run, too. Whatever happens to one run, the others go on.

    `devices`: GPUs that are dealt to the processes in turn. Each sees its own one only.
    """

    def __init__(self, room: int, devices: Sequence[str] = ()) -> None:
        self.room, self._devices = room, devices
        self._context: Any = mp.get_context("forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn")
        with suppress(AttributeError):
            self._context.set_forkserver_preload(["covey.rounds.loop", "covey.rounds.side_by_side"])
        self._said = Path(tempfile.mkdtemp(prefix="covey-runs-"))
        self._running: list[tuple[Job, Any, Path]] = []
        self._idle: list[Any] = []
        self._lines: dict[int, Connection] = {}  # to each process
        self._on: dict[int, tuple[Any, str]] = {}  # each process, and its GPU
        self._started = 0

    def start(self, job: Job) -> None:
        self._started += 1
        said = self._said / str(self._started)
        process = self._idle.pop() if self._idle else self._process()
        with suppress(OSError):  # it ended while idle: which is seen, and told, like any end
            self._lines[process.pid].send((str(job.folder.path.resolve()), str(said)))
        self._running.append((job, process, said))

    def _process(self) -> Any:
        ours, theirs = self._context.Pipe()
        # One that died leaves its GPU to the next: the one with the fewest processes.
        alive = [device for process, device in self._on.values() if process.is_alive()]
        device = min(self._devices, key=alive.count) if self._devices else ""
        process = self._context.Process(target=_runs_here, args=(theirs, device, _own_variables()))
        process.start()
        self._on[process.pid] = (process, device)
        theirs.close()  # so that its end is seen
        self._lines[process.pid] = ours
        return process

    def ended(self) -> Iterator[tuple[Job, str]]:
        for entry in list(self._running):
            job, process, said = entry
            line = self._lines[process.pid]
            if not line.poll() and process.is_alive():
                continue
            self._running.remove(entry)
            try:
                problem = _problem(line.recv(), said)
                self._idle.append(process)
            except (EOFError, OSError):
                process.join()
                problem = _problem(process.exitcode, said)
            yield job, problem

    def stop(self) -> None:
        processes = [*self._idle, *(process for _, process, _ in self._running)]
        for process in processes:
            with suppress(OSError):
                os.kill(process.pid, signal.SIGINT)  # it writes its checkpoint
        for process in processes:
            process.join(timeout=20)
            if process.is_alive():
                process.kill()
                process.join()
        for line in self._lines.values():
            line.close()
        self._running, self._idle, self._lines = [], [], {}
        shutil.rmtree(self._said, ignore_errors=True)


def _own_variables() -> dict[str, str]:
    """covey's variables of the environment: a process that was loaded long ago has those of then, as another COVEY_DATA."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVEY_")}


def _runs_here(line: Connection, device: str, variables: Mapping[str, str]) -> None:
    """Runs in a process of their own, as they are asked for; what each has to say goes to a file."""
    for name in _own_variables():
        del os.environ[name]
    os.environ.update(variables)
    if device:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # nothing has asked for a GPU yet in this process
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches it through `stop`, once
    signal.signal(signal.SIGINT, signal.default_int_handler)
    die_with_parent(signal.SIGINT)  # killed with `kill -9`, its parent can no longer stop it
    try:
        while True:
            folder, said = line.recv()
            out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.close(out)
            problem = _run_there(folder)
            if problem:
                os.write(2, f"\n{problem}".encode())
            line.send(2 if problem else 0)
    except KeyboardInterrupt:
        sys.exit(130)
    except (EOFError, OSError):  # who asked is gone
        sys.exit(0)


def _problem(code: int, said: Path) -> str:
    if code == 0:
        return ""
    if code < 0:
        return f"its process was killed by signal {-code}"
    try:
        lines = [line for line in said.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return lines[-1] if lines else f"its process ended with exit code {code}"


class OnRay:
    """A Ray task per run. Its machine must see the run's folder, so a cluster needs a file system that its machines share."""

    def __init__(self, room: int, gpus: float = 0.0) -> None:
        from covey.engines.ray.pool import connect, places, shut_down

        self._ray = connect()
        shut_down(self._ray)
        self.room = room or places(self._ray, gpus)
        # A task whose worker dies is done again, from the run's checkpoint. Of a GPU Ray shows it its own one.
        self._task = self._ray.remote(num_cpus=1, num_gpus=gpus, max_retries=2)(_run_there)
        self._running: dict[Any, Job] = {}

    def start(self, job: Job) -> None:
        ref = self._task.remote(str(job.folder.path.resolve()), os.environ.get("COVEY_DATA", ""))
        self._running[ref] = job

    def ended(self) -> Iterator[tuple[Job, str]]:
        if not self._running:
            return
        for ref in self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)[0]:
            try:
                problem = str(self._ray.get(ref))
            except self._ray.exceptions.RayError as e:
                problem = f"its Ray worker died ({type(e).__name__})"
            yield self._running.pop(ref), problem

    def stop(self) -> None:
        for ref in self._running:
            with suppress(Exception):
                self._ray.cancel(ref, force=True)
        self._running = {}


def _run_there(folder: str, data: str = "") -> str:
    """A run, in the process that is its own; what went wrong, or ""."""
    import torch

    torch.set_num_threads(1)
    if data:
        os.environ.setdefault("COVEY_DATA", data)
    if not RunFolder(Path(folder)).config.is_file():
        return f"{folder} is not there on a machine of the Ray cluster: use a folder that all of them share"
    return _run_in(Path(folder))


def _run_in(folder: Path) -> str:
    from covey.rounds.completion import complete

    own = RunFolder(folder)
    try:
        complete(own.experiment(), own, quiet=True)
    except CoveyError as e:
        return str(e)
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return ""
