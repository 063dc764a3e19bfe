"""Sweeps: the runs are those that `covey run` makes, none is made twice, and one that fails costs only itself."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.cli.main import main
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.report.progress_of_runs import Row, RunsProgress
from covey.rounds import side_by_side
from covey.rounds.loop import run
from covey.sweep.grid import axis, points, sweep
from covey.sweep.text import lines
from support.patience import PATIENCE, until

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "softmax",
    "algorithm": {"name": "ifca", "weighting": "clients"},
    "clients": 6,
    "clusters": 3,
    "training": {"rounds": 3, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "engine": {"workers": 2},
}


def test_values_are_split_at_the_commas_between_them() -> None:
    assert axis("training.lr=0.1,0.01").values == ("0.1", "0.01")
    assert axis("training.lr_milestones=[1,2], [3]").values == ("[1,2]", "[3]")
    assert axis("""dataset="a,b",'c'""").values == ('"a,b"', "'c'")
    for wrong in ("training.lr", "=1,2", "training.lr=", "training.lr=1,,2", "training.lr=1,"):
        with pytest.raises(CoveyError, match="expected key=value,value"):
            axis(wrong)
    for kept in ("seed=1,2", "seeds=1,2", "out=a,b", "engine.workers=1,2"):
        with pytest.raises(CoveyError, match="cannot vary"):
            axis(kept)
    with pytest.raises(CoveyError, match="twice"):
        axis("clusters=2,2")


def test_every_combination_once_and_an_algorithm_keeps_its_fields() -> None:
    found = points(SMALL, [axis("algorithm=ifca,fedavg"), axis("training.lr=0.1,0.2")])
    assert [p.name for p in found] == [f"algorithm={a},lr={lr}" for a in ("ifca", "fedavg") for lr in ("0.1", "0.2")]
    assert found[0].experiment.algorithm.weighting == "clients"  # as the table has it
    assert found[3].experiment.algorithm.name == "fedavg" and found[3].experiment.training.lr == 0.2
    assert {p.experiment.training.rounds for p in found} == {3}
    both = points(SMALL, [axis("training.lr=0.1"), axis("start.pretrain_lr=0.2"), axis("defence.name=none,l2")])
    assert both[1].name == "lr=0.1,pretrain_lr=0.2,name=l2" and both[0].experiment.defence is None


@pytest.mark.parametrize(
    "axes, why",
    [
        (["training.lrr=1,2"], "training.lrr=1: unknown key 'training.lrr', did you mean 'lr'"),
        (["clusters=2,50"], "clusters=50: 50 clusters for 6 clients"),
        (["training.lr=0.1", "training.lr=0.2"], "names 'training.lr' twice"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_runs(tmp_path: Path, axes: list[str], why: str) -> None:
    with pytest.raises(CoveyError, match=why):
        sweep(SMALL, axes, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_too_many_runs_must_be_meant(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=r"800 runs: add --yes"):
        sweep(SMALL, ["clusters=2,3"], 400, tmp_path)


def test_a_sweep_is_the_runs_one_would_have_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sweep(SMALL, ["training.lr=0.1,0.02"], 2, tmp_path, quiet=True, command="covey run …")
    assert not made.failed and made.page == tmp_path / "comparison.html"
    for one, lr in zip(made.settings, (0.1, 0.02)):
        by_hand = [
            run(Experiment.of(SMALL, training={"lr": lr}, seed=seed, engine={"workers": 1}), quiet=True)
            for seed in (0, 1)
        ]
        values = [r.accuracy["average_cluster"] for r in by_hand]
        assert one.seeds == [0, 1]
        assert one.mean["accuracy.average_cluster"] == np.mean(values)
        assert one.std["accuracy.average_cluster"] == np.std(values, ddof=1)
        of_setting = json.loads((tmp_path / one.name / "result.json").read_text())
        assert of_setting["seeds"]["n"] == 2 and of_setting["seeds"]["mean"] == one.mean
    assert json.loads((tmp_path / "sweep.json").read_text())["settings"][1]["values"] == {"training.lr": "0.02"}
    text = (tmp_path / "summary.txt").read_text().splitlines()
    assert text == lines(made)
    mean, std = made.settings[1].mean["accuracy.global"], made.settings[1].std["accuracy.global"]
    assert text[2].startswith("0.02") and f"{100 * mean:.2f} ± {100 * std:.2f} %" in text[2]
    page = made.page.read_text()
    assert "lr=0.1" in page and "lr=0.02" in page

    # Nothing is run again; more values and more seeds add to what is there.
    started: list[str] = []
    really_start = side_by_side.Processes.start

    def start(self: side_by_side.Processes, job: side_by_side.Job) -> None:
        started.append(job.title)
        really_start(self, job)

    monkeypatch.setattr(side_by_side.Processes, "start", start)
    assert sweep(SMALL, ["training.lr=0.1,0.02"], 2, tmp_path, quiet=True).settings == made.settings
    assert started == []
    more = sweep(SMALL, ["training.lr=0.02,0.3"], 1, tmp_path, quiet=True)
    assert started == ["lr=0.3 seed 0"]
    assert more.settings[0].std == {} and "±" not in "".join(lines(more))
    other = Experiment.of(SMALL, training={"epochs": 2}).table()
    with pytest.raises(CoveyError, match="holds a run of other settings"):
        sweep(other, ["training.lr=0.1"], 1, tmp_path)


def test_a_run_that_fails_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "no data"
    empty.mkdir()
    monkeypatch.setenv("COVEY_DATA", str(empty))
    made = sweep(SMALL, ["dataset=texas100,digits"], 1, tmp_path / "out", quiet=True)
    assert list(made.failed) == ["dataset=texas100 seed 0"] and "texas100" in made.failed["dataset=texas100 seed 0"]
    assert [s.values for s in made.settings] == [{"dataset": "digits"}]
    assert any("1 run failed" in line for line in lines(made))
    (tmp_path / "e.toml").write_text(Experiment.of(SMALL).toml())
    arguments = ["run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "out"), "--json"]
    code = main([*arguments, "--sweep", "dataset=texas100,digits"])
    printed = capsys.readouterr()
    assert code == 2 and json.loads(printed.out)["failed"].keys() == made.failed.keys()
    assert printed.err.startswith("covey: dataset=texas100 seed 0 failed (") and printed.err.count("\n") == 1


def test_a_process_makes_one_run_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    really_start = side_by_side.Processes.start

    def start(self: side_by_side.Processes, job: side_by_side.Job) -> None:
        really_start(self, job)
        pids.append(self._running[-1][1].pid)

    monkeypatch.setattr(side_by_side.Processes, "start", start)
    one_at_a_time = Experiment.of(SMALL, engine={"workers": 1}).table()
    made = sweep(
        one_at_a_time, ["dataset=texas100,digits"], 2, tmp_path, quiet=True
    )  # the first fails, if it is not there
    assert len(pids) == 4 and len(set(pids)) == 1 and made.settings


def test_a_killed_run_is_told_and_goes_on_when_the_sweep_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Experiment.of(SMALL, training={"rounds": 60}, engine={"checkpoint_every": 2}).table()
    really_look = side_by_side.Processes.ended

    def look(self: side_by_side.Processes) -> Any:
        for job, process, _ in self._running:
            if "lr=0.1" in job.title and job.folder.begun and process.is_alive() and not job.folder.finished:
                os.kill(process.pid, signal.SIGKILL)
        return really_look(self)

    with monkeypatch.context() as patched:
        patched.setattr(side_by_side.Processes, "ended", look)
        made = sweep(long, ["training.lr=0.1,0.02"], 1, tmp_path, quiet=True)
    assert made.failed == {"lr=0.1 seed 0": "its process was killed by signal 9"}
    assert [s.name for s in made.settings] == ["lr=0.02"]
    again = sweep(long, ["training.lr=0.1,0.02"], 1, tmp_path, quiet=True)
    assert not again.failed
    reference = run(Experiment.of(long, engine={"workers": 1}), quiet=True)
    assert again.settings[0].mean["accuracy.client_mean"] == reference.accuracy["client_mean"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_ctrl_c_ends_all_and_the_command_line_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    command = [sys.executable, "-m", "covey", "run", "ifca-digits", "--out", str(out), "--sweep", "training.lr=0.1,0.2"]
    process = subprocess.Popen(
        [*command, "--set", "training.rounds=100000"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env=os.environ | {"COVEY_CORES": "2"},
    )  # fmt: skip
    until(lambda: process.poll() is not None or len(list(out.glob("*/seed-0/metrics.jsonl"))) == 2)
    children = _descendants(process.pid)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "the same command goes on" in said and "Traceback" not in said
    assert len(children) >= 2
    # The process that forked the runs ends when it notices that nobody needs it.
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
    assert len(list(out.glob("*/seed-0/checkpoint/state.bin"))) == 2


def _descendants(root: int) -> set[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # ended in between
    family, new = {root}, True
    while new:
        new = {pid for pid, parent in parents.items() if parent in family} - family
        family |= new
    return family - {root}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_board_shows_all_runs_and_each_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row("lr=0.1 seed 0", 2, 8, 0.9), Row("lr=0.1 seed 1", 4, 8)]
    log, now = io.StringIO(), [100.0]
    with RunsProgress(12, "sweep", stream=log, clock=lambda: now[0]) as progress:
        progress.update(1, 0, rows, 30.0)
        progress.update(1, 0, rows, 29.9)  # no news
        now[0] += 60
        progress.update(1, 1, rows[1:], None)
    assert log.getvalue().splitlines() == [
        "sweep: 1/12 runs, 30.0 s left (lr=0.1 seed 0: round 2/8; lr=0.1 seed 1: round 4/8)",
        "sweep: 1/12 runs, 1 failed (lr=0.1 seed 1: round 4/8)",
    ]
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    screen = Terminal()
    with RunsProgress(12, "sweep", stream=screen, clock=lambda: now[0]) as progress:
        progress.update(1, 0, rows, 30.0)
        now[0] += 10
        progress.update(1, 0, [Row("lr=0.1 seed 0", 4, 8, 0.95)], 20.0)
    shown = screen.getvalue()
    assert "1/12 runs" in shown and "lr=0.1 seed 0" in shown and "round 4/8, accuracy 95.0 %, 20.0 s left" in shown


def test_gpus_are_dealt_to_the_processes_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No GPU is needed: which one a process may see is settled before it asks for any.
    monkeypatch.setattr("covey.sweep.grid.spread_over", lambda base: side_by_side.Processes(2, ("7", "9")))
    table = SMALL | {"algorithm": "support.own_algorithms:Dealt", "engine": {"device": "cpu"}}
    made = sweep(table | {"training": {"rounds": 1}}, ["training.lr=0.1,0.02"], 1, tmp_path, quiet=True)
    assert not made.failed
    records = [json.loads(path.read_text().splitlines()[0]) for path in tmp_path.rglob("metrics.jsonl")]
    assert {record["extra"]["visible"] for record in records} == {7.0, 9.0}


def test_a_sweep_has_a_process_for_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    monkeypatch.setattr("covey.engines.prepare.device_of", lambda experiment: "cuda")
    places = side_by_side.spread_over(Experiment.of(SMALL, engine={"workers": 0}))
    assert places.room == 2 and side_by_side.gpus() == ("2", "5")
    places.stop()
