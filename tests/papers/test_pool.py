"""Runs of many tables: heard from the tables, run in one pool, gone on with, packed, and made into tables."""

from __future__ import annotations

import functools
import os
import signal
import tarfile
from pathlib import Path
from typing import Any

import pytest

from covey.cli.reproduce import reproduce
from covey.data.sources.files import damaged
from covey.errors import CoveyError, Unavailable
from covey.papers import PAPERS, harness, outcome, packing, pool, rehearsal
from covey.papers.cells import cell
from covey.papers.harness import Options, Reproduction, Table
from covey.papers.outcome import Outcome
from covey.papers.rehearsal import Item, asked, items
from covey.results.folder import RunFolder
from covey.results.provenance import code
from support.patience import until

TINY: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "fedavg",
    "clients": 3,
    "clusters": 1,
    "partition": {"name": "iid"},
    "training": {"rounds": 2, "epochs": 1, "batch_size": 50, "lr": 0.1},
}


def tuned(options: Options) -> Reproduction:
    """Two rates, and two seeds more of the better one."""
    tried = {lr: options.run({**TINY, "training": TINY["training"] | {"lr": lr}}, 1, 100) for lr in (0.01, 0.2)}
    options.settled([run for runs in tried.values() for run in runs])
    best = max(tried, key=lambda lr: tried[lr][0].accuracy())
    runs = options.run({**TINY, "training": TINY["training"] | {"lr": best}}, options.count(2))
    cells = [cell("best", "accuracy", [o.accuracy() for o in runs]), cell("best", "rate", [best], unit="")]
    return Reproduction("", "", "Tuned", options.dataset, {}, cells)


def growing(options: Options) -> Reproduction:
    """No row, since nothing has run."""
    return Reproduction("", "", "Growing", options.dataset, {}, [])


def drawn(options: Options) -> Reproduction:
    """No run at all."""
    options.alone()
    return Reproduction("", "", "Drawn", options.dataset, {}, [cell("a", "b", [1.0])])


@pytest.mark.parametrize("paper", list(PAPERS))
def test_every_table_says_what_it_needs(paper: str, tmp_path: Path) -> None:
    for item in items([paper]):
        if item.dataset == item.of.datasets[0]:  # others differ in numbers only
            known = asked(item, Options(tmp_path, quick=True))
            assert known.runs.keys() == known.missing.keys() and (known.runs or known.alone), item.name
    assert not (tmp_path / "runs").exists()


def test_a_pool_runs_what_tables_ask_for_then_what_follows_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        "tuned": Table(tuned, ("digits",), lambda sheet: []),
        "drawn": Table(drawn, ("",), lambda sheet: []),
        "growing": Table(growing, ("digits",), lambda sheet: [], grows=True),
    }
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    monkeypatch.setattr(pool, "Worker", InThisProcess)
    options, wanted = (
        Options(tmp_path, quiet=True, device="cpu"),
        [Item("own", "tuned", "digits"), Item("own", "drawn", "")],
    )

    grown = [Item("own", "growing", "digits")]  # nothing is finished: an empty table would replace a stored one
    assert pool.complete_tables(grown, options) == ([], {grown[0]: "no row has its runs"})

    first = asked(wanted[0], options)
    assert len(first.runs) == 2 and first.more
    assert pool.complete_tables(wanted, options) == (
        [],
        {wanted[0]: "2 of 2 runs missing and those that follow", wanted[1]: "not computed"},
    )

    assert pool.run_many(wanted, options, workers=2, minutes=5) == []
    then = asked(wanted[0], options)
    assert len(then.runs) == 4 and not then.missing and not then.more
    folders = sorted((tmp_path / "runs").iterdir())
    assert len(folders) == 4 and all({p.name for p in f.iterdir() if p.is_file()} == set(packing.KEPT) for f in folders)
    last = RunFolder(folders[0]).records()[-1]
    assert "worst" in last["metrics"]["accuracy"] and "clients" not in last["metrics"]["accuracy"]

    made, lacking = pool.complete_tables(wanted, options)
    assert [one.table for one in made] == ["tuned", "drawn"] and not lacking
    assert len(made[0].cells[0].values) == 2 and made[0].command == "covey reproduce own --table tuned --dataset digits"
    assert made[0].runs["runs"] == 4

    monkeypatch.setattr(InThisProcess, "give", lambda self, job: pytest.fail("it was finished"))
    assert pool.run_many(wanted, options, workers=2, minutes=5) == []


def test_what_has_ended_is_packed_while_a_pool_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that goes away in the midst of the second run takes no more than that with it."""
    packed: list[str] = []

    def look() -> bool:
        if (tmp_path / packing.PACKED).is_file():
            with tarfile.open(tmp_path / packing.PACKED) as archive:
                packed[:] = archive.getnames()
        return any(name.endswith("/result.json") for name in packed)

    class Late(InThisProcess):
        given = 0

        def give(self, job: pool.Job) -> None:
            Late.given += 1
            if Late.given == 2:
                until(look)
            super().give(job)

    known = {"tuned": Table(tuned, ("digits",), lambda sheet: [], grows=True)}
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    monkeypatch.setattr(pool, "Worker", Late)
    monkeypatch.setattr(pool, "packing", functools.partial(packing.packing, every=0.01))
    pool.run_many([Item("own", "tuned", "digits")], Options(tmp_path, quiet=True), workers=1, minutes=5)
    assert sum(name.endswith("/result.json") for name in packed) == 1


@pytest.mark.parametrize("grows", [True, False])
def test_a_run_that_fails_is_a_problem_unless_its_table_does_without(
    grows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(InThisProcess):
        def give(self, job: pool.Job) -> None:
            self.job = job
            self._theirs.send(pool.Answer(problem="it is refused", refused=True))

    known = {"tuned": Table(tuned, ("digits",), lambda sheet: [], grows=grows)}
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    monkeypatch.setattr(pool, "Worker", Failing)
    options = Options(tmp_path, quiet=True, device="cpu")
    problems = pool.run_many([Item("own", "tuned", "digits")], options, workers=1, minutes=5)
    whose = "own/tuned/digits: fedavg on digits: 3 clients, 1 clusters, 2 rounds, seed 100: it is refused"
    assert problems == ([] if grows else [whose] * 2)
    assert list(pool.refused(tmp_path).values()) == ["it is refused"] * 2  # said in either case, on any machine


def test_where_memory_is_too_little_fewer_processes_do_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sharing(InThisProcess):
        others = 0

        def __init__(self, options: Options, of: int) -> None:
            super().__init__(options, of)
            Sharing.others += 1

        def give(self, job: pool.Job) -> None:
            if Sharing.others == 1:
                super().give(job)
            else:
                self.job = job
                self._theirs.send(
                    pool.Answer(problem="OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.")
                )

        def stop(self) -> None:
            Sharing.others -= 1
            super().stop()

    known = {"tuned": Table(tuned, ("digits",), lambda sheet: [])}
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    monkeypatch.setattr(pool, "Worker", Sharing)
    options = Options(tmp_path, quiet=True, device="cpu")
    assert pool.run_many([Item("own", "tuned", "digits")], options, workers=2, minutes=5) == []
    assert asked(Item("own", "tuned", "digits"), options).missing == {} and not pool.refused(tmp_path)


@pytest.mark.parametrize("breaks", [1, 99])
def test_a_run_whose_process_broke_is_done_by_another(
    breaks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under MPS one fault breaks every process on the GPU: 24 runs were once given up for one."""

    class Breaking(InThisProcess):
        begun = 0

        def give(self, job: pool.Job) -> None:
            Breaking.begun += 1
            if Breaking.begun > breaks:
                super().give(job)
            else:
                self.job = job
                self._theirs.send(pool._problem(RuntimeError("CUDA error: an illegal memory access\nSearch for …")))

    known = {"tuned": Table(tuned, ("digits",), lambda sheet: [])}
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    monkeypatch.setattr(pool, "Worker", Breaking)
    options = Options(tmp_path, quiet=True, device="cpu")
    problems = pool.run_many([Item("own", "tuned", "digits")], options, workers=1, minutes=5)
    if breaks == 1:
        assert problems == [] and not asked(Item("own", "tuned", "digits"), options).missing
    else:  # each of the first two runs, as often as a run is tried
        assert len(problems) == 2 and Breaking.begun == 2 * pool.TRIES
    assert not pool.refused(tmp_path)


def test_what_a_machine_lacks_is_said_of_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, 144 runs that had no memory became a table of rates that 'diverge'."""
    wrapped = CoveyError(
        "attack 'property' failed with OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB"
    )
    of_data = (Unavailable("mnist is not here"), damaged(tmp_path / "mnist.npz", "cannot be decoded"))
    for error in (wrapped, RuntimeError("CUDA error: out of memory"), MemoryError(), *of_data):
        assert not pool._problem(error).refused
    assert pool._problem(CoveyError("pqfed needs public samples")).refused

    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    options = Options(tmp_path, quiet=True, device="cpu")
    with pytest.raises(
        Unavailable, match="mnist is not here"
    ):  # a table that can do without a run cannot do without data
        options.attempt({**TINY, "dataset": "mnist"}, 0)
    with (
        monkeypatch.context() as patch,
        pytest.raises(Unavailable, match="another covey process"),
    ):  # nor without this one
        patch.setattr("covey.files.lock", lambda path: None)
        options.attempt(TINY, 0)
    wanted = pool.chosen(["pqfed/table[26]/mnist", "mingledpie/fig3", "property_inference/tasks/lfw", "*/digits"])
    with pytest.raises(Unavailable, match=r"mnist \(2 of the tables\), lfw \(1 of the tables\); put them there"):
        pool.refuse_absent_data(wanted)
    pool.refuse_absent_data(pool.chosen(["*/digits", "property_inference/*/yelp-like", "mingledpie/fig3"]))
    (tmp_path / pool.REFUSED).write_text('{"old": "of an earlier pool"}')
    pool.run_many([], options, workers=1, minutes=1)
    assert pool.refused(tmp_path) == {}


def test_a_real_process_runs_and_says_what_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = pool.Worker(Options(tmp_path, quiet=True, device="cpu"), 1)
    item = Item("pqfed", "fig5", "no such data")
    try:
        worker.give(pool.Job("a", item, None))
        job, answer = worker.taken()
        assert job.item == item and not answer.said and "pqfed's fig5 runs on" in answer.problem
        worker.job = pool.Job("b", item, None)
        worker._process.kill()
        ended = pool.Answer(problem="its process ended with exit code -9", broken=True)
        assert worker.taken()[1] == ended
        worker.give(pool.Job("c", item, None))  # it had ended while it waited
        assert worker.taken()[1] == ended
    finally:
        worker.stop()

    monkeypatch.setattr(pool, "POLITE", 60.0)  # a busy machine takes its time to start it
    waiting = pool.Worker(Options(tmp_path, quiet=True, device="cpu"), 1)
    waiting.stop()
    assert waiting._process.exitcode == 0  # it ended by itself, which leaves a GPU that others share as it was

    monkeypatch.setattr(pool, "POLITE", 0.1)
    hanging = pool.Worker(Options(tmp_path, quiet=True, device="cpu"), 1)
    assert hanging._process.pid
    os.kill(hanging._process.pid, signal.SIGSTOP)
    hanging.stop()
    assert hanging._process.exitcode == -signal.SIGKILL


def test_patterns_name_tables_in_their_order() -> None:
    names = [item.name for item in pool.chosen(["pqfed/table2/*", "mingledpie/fig3", "pqfed/table?/mnist"])]
    assert names[:3] == ["pqfed/table2/cifar10", "pqfed/table2/mnist", "mingledpie/fig3"] and len(names) == len(
        set(names)
    )
    with pytest.raises(CoveyError, match="no table is named like 'mingledpi/"):
        pool.chosen(["mingledpi/fig3"])


class InThisProcess(pool.Worker):
    """The worker's own code without a process of its own, which could not see the tables of this test."""

    def __init__(self, options: Options, of: int) -> None:
        import multiprocessing

        self.options, self.job = options, None
        self.answers, self._theirs = multiprocessing.Pipe()

    def give(self, job: pool.Job) -> None:
        self.job = job
        made = (
            pool._completed(job.experiment, job.pictured, self.options)
            if job.experiment
            else pool._computed(job.item, self.options)
        )
        self._theirs.send(pool.Answer(made))

    def stop(self) -> None:
        self.answers.close()


def partial(options: Options) -> Reproduction:
    """A row for each rate whose runs are there."""
    rates = {lr: options.attempt({**TINY, "training": TINY["training"] | {"lr": lr}}, 0) for lr in (0.1, 0.2)}
    rows = [cell(f"{lr}", "accuracy", [run.accuracy()]) for lr, run in rates.items() if isinstance(run, Outcome)]
    return Reproduction("", "", "Partial", options.dataset, {}, rows)


def test_a_table_that_grows_says_what_it_lacks_and_its_mixed_runs_cost_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: Table(partial, ("digits",), lambda sheet: [], grows=True) for name in ("partial", "other")}
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    options, wanted = Options(tmp_path, quiet=True, device="cpu"), [Item("own", "partial", "digits")]
    options.run({**TINY, "training": TINY["training"] | {"lr": 0.2}})
    ((made,), lacking) = pool.complete_tables(wanted, options)
    assert [c.row for c in made.cells] == ["0.2"] and not lacking
    assert made.notes == ["1 of 2 runs are not there, and what needs them is left out: it is not finished."]

    (path,) = tmp_path.glob("runs/*/result.json")
    path.write_text(path.read_text().replace(code(), "0123456789abcdef"))
    options.run({**TINY, "training": TINY["training"] | {"lr": 0.1}})
    made_now, refused = pool.complete_tables([*wanted, Item("own", "other", "digits")], options)
    assert made_now == [] and all("not all computed alike" in why for why in refused.values()) and len(refused) == 2


@pytest.mark.parametrize("mapped", [True, False])
def test_a_pools_runs_draw_what_any_of_its_tables_shows(
    mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drew: dict[float, bool] = {}

    def completed(experiment: Any, folder: RunFolder, **more: Any) -> Any:
        drew[experiment.training.lr] = not more["figures_only"]
        return outcome.completed(experiment, folder, **more)

    def of_rates(*rates: float) -> Any:
        def made(options: Options) -> Reproduction:
            runs = [options.run({**TINY, "training": TINY["training"] | {"lr": lr}}) for lr in rates]
            return Reproduction("", "", "Rates", options.dataset, {}, [cell("a", "b", [o.accuracy() for (o,) in runs])])

        return made

    known = {
        "figures": Table(of_rates(0.1, 0.2), ("digits",), lambda sheet: []),
        "maps": Table(of_rates(0.2), ("digits",), lambda sheet: [], pictured=mapped),
    }
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
    monkeypatch.setattr(pool, "Worker", InThisProcess)
    monkeypatch.setattr(pool, "completed", completed)
    options = Options(tmp_path, quiet=True, device="cpu")
    pool.run_many([Item("own", "figures", "digits"), Item("own", "maps", "digits")], options, workers=1, minutes=1)
    assert drew == {0.1: False, 0.2: mapped}


def test_a_pool_whose_time_is_up_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool, "run_many", lambda *_: [])  # no time at all
    monkeypatch.setattr(pool, "refuse_absent_data", lambda wanted: None)  # so none are read
    reproduce(many=["mingledpie/*/*"], minutes=0.1, out=tmp_path)
    printed = capsys.readouterr().out.splitlines()
    named = [line for line in printed if line.startswith("not made  mingledpie/")]
    assert len(named) == 8 and "runs missing" in named[0]
    assert "more: `covey reproduce --plan` lists all" in printed[-2]
    assert printed[-1] == "what is finished is kept: the same command goes on"
    reproduce(many=["mingledpie/table2/mnist"], minutes=0.0, out=tmp_path)  # asked to run nothing
    assert capsys.readouterr().out.splitlines() == ["not made  mingledpie/table2/mnist: 20 of 20 runs missing"]


def test_a_pool_computes_in_the_arithmetic_asked_for_apart_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engines: list[tuple[str, str]] = []

    def completed(experiment: Any, folder: RunFolder, **more: Any) -> Any:
        engines.append((experiment.engine.arithmetic, folder.path.parent.relative_to(tmp_path).as_posix()))
        return outcome.completed(experiment, folder, **more)

    known = {"tuned": Table(tuned, ("digits",), lambda sheet: [])}
    for module in (rehearsal, harness):
        monkeypatch.setattr(module, "tables", lambda paper: known)
        monkeypatch.setattr(module, "PAPERS", {"own": "own"})
    monkeypatch.setattr(pool, "Worker", InThisProcess)
    monkeypatch.setattr(pool, "completed", completed)
    monkeypatch.setattr(Options, "check_device", lambda self: None)  # what there is here computes it all the same
    reproduce(many=["own/tuned/digits"], out=tmp_path, arithmetic="tf32", quiet=True)
    assert engines == [("tf32", "tf32/runs")] * 4
    assert f"runs      {tmp_path / 'tf32' / packing.PACKED}" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    item, options = Item("own", "tuned", "digits"), Options(tmp_path / "tf32", arithmetic="tf32")
    assert pool.command_of(item, options).endswith("--dataset digits --arithmetic tf32")
