"""The command line as a user meets it: one clear sentence for every mistake, never a traceback.

Commands run in this process, as `covey.cli.main.main` runs them, except where a process is the point.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from covey import files
from covey.cli.main import main
from support.patience import PATIENCE, until


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def covey(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def run(*arguments: str) -> Ended:
        code = main(arguments)
        return Ended(code, *capsys.readouterr())

    return run


def test_run_writes_its_folder_and_prints_its_result(tmp_path: Path, covey: Callable[..., Ended]) -> None:
    folder = tmp_path / "r"
    first = covey("run", "ifca-digits", "--set", "training.rounds=2", "--out", str(folder), "--json")
    assert first.code == 0, first.err
    result = json.loads(first.out)
    assert result["schema"] == 1 and result["rounds"] == 2
    assert {"average_cluster", "per_cluster", "client_mean", "global"} <= set(result["accuracy"])
    assert {"up", "down"} == set(result["bytes"]) and result["seed"] == 0 and "torch" in result["versions"]
    names = {p.name for p in folder.iterdir()}
    assert names == {
        "config.toml",
        "metrics.jsonl",
        "result.json",
        "report.html",
        "federation.json",
        "models.bin",
        "checkpoint",
    }
    again = covey("resume", str(folder), "--json")
    assert json.loads(again.out)["accuracy"] == result["accuracy"]
    compared = covey("compare", str(folder), str(folder), "--out", str(tmp_path / "c.html"))
    assert compared.code == 0 and (tmp_path / "c.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--set", "trainin.lr=1"], "did you mean 'training'"),
        (["run", "--set", "dataset=mnits"], "mnits"),
        (["run", "--set", "training.lr=-0.1"], "training.lr is -0.1"),
        (["run", "--set", "clusters=11", "--set", "clients=22"], "at most 10 sets"),
        (["run", "--set", "model=resnet"], "did you mean 'resnet18'"),
        (["run", "absent.toml"], "cannot be read"),
        (["run", "ifca-digit"], "did you mean 'ifca-digits'"),
        (["run", "--set", "engine.device=cuda", "--set", "training.rounds=1"], "no CUDA device"),
        (["run", "--sweeep", "x=1"], "`covey run` has no option '--sweeep', did you mean '--sweep'?"),
        (["run", "--seeds", "-1"], "`covey run --help` shows what is expected"),
        (["run", "--seeds"], "option '--seeds' requires an argument"),
        (["rnu"], "`covey` has no command 'rnu', did you mean 'run'?"),
        (["data", "lst"], "`covey data` has no command 'lst', did you mean 'list'?"),
        (["--verison"], "did you mean '--version'"),
        (["audit", "ifca-digits", "--defences", "ldp"], "add --matrix"),
        (["list", "modles"], "did you mean 'models'"),
        (["resume"], "missing argument 'FOLDER'; `covey resume --help`"),
        (["resume", "/nowhere"], "not the folder of a run"),
        (["compare", "/nowhere"], "no result.json"),
        (["data", "check", "mnits"], "mnits"),
        (["reproduce", "mingledpi", "--table", "fig3"], "did you mean 'mingledpie'"),
        (["reproduce", "--minutes", "0"], "say which tables"),
        (["keys", "make", "ifca-digits", "--out", "k"], "no silo is named: give at least one"),
        (["csp", "/nowhere"], "/nowhere"),
    ],
)
def test_mistakes_end_in_one_sentence(
    arguments: list[str], says: str, tmp_path: Path, covey: Callable[..., Ended]
) -> None:
    import torch

    if "engine.device=cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    out = ["--out", str(tmp_path / "r")] if arguments[0] == "run" and arguments[-1] != "--seeds" else []
    ended = covey(*arguments, *out)
    assert ended.code == 2
    assert says in ended.err and "Traceback" not in ended.err
    assert ended.err.startswith("covey: ") and len(ended.err.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_a_corrupt_data_file_is_named(
    tmp_path: Path, covey: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    (tmp_path / "mnist.npz").write_bytes(b"PK\x03\x04 not really a zip")
    ended = covey("run", "ifca-mnist", "--out", str(tmp_path / "r"))
    assert ended.code == 2
    assert "mnist.npz" in ended.err and "Traceback" not in ended.err
    assert not (tmp_path / "r").exists()


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, covey: Callable[..., Ended]) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = covey("data", "export", "ifca-digits", "--out", str(tmp_path / "file" / "below"), "--silos", "north")
    assert ended.code == 2 and str(tmp_path / "file") in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_lists_have_a_line_each(covey: Callable[..., Ended]) -> None:
    ended = covey("list")
    assert ended.code == 0 and not ended.err
    for word in ("ifca", "mnist", "resnet18", "label_sets", "dp_sgd", "159,010 parameters", "ckks"):
        assert word in ended.out
    assert max(map(len, covey("list", "presets").out.splitlines())) > 90, "a pipe's lines stay whole"


def test_the_parameters_that_models_declare_are_theirs() -> None:
    from covey.learn.initial import parameters
    from covey.models import MODELS

    shapes = {"flat": ((28, 28), "image"), "image": ((32, 32, 3), "image"), "tokens": ((100,), "tokens")}
    for entry in MODELS.entries:
        if entry.declared["layout"] not in shapes:  # adapters of a base that the user gives
            continue
        shape, kind = shapes[entry.declared["layout"]]
        assert entry.declared["parameters"] == parameters(entry.name, shape, 10, kind), entry.name


def test_keys_of_what_is_present_and_missing(
    tmp_path: Path, covey: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))
    lines = {line.split()[0]: line for line in covey("data", "list").out.splitlines()}
    assert "embedded" in lines["digits"] and "covey data get" in lines["mnist"] and "by hand" in lines["yelp"]
    assert str(tmp_path) in lines["looked"]


def test_a_file_that_cannot_grow_stops_the_run_in_one_sentence(tmp_path: Path, covey: Callable[..., Ended]) -> None:
    out, (soft, hard) = tmp_path / "r", resource.getrlimit(resource.RLIMIT_FSIZE)
    words = ["--set", "training.rounds=3", "--set", "engine.checkpoint_every=1", "--set", "engine.workers=1"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        done = covey("run", "ifca-digits", "--out", str(out), *words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.code == 2
    assert "could not be written" in done.err and "Traceback" not in done.err
    assert not any(p.name.startswith(".") for p in out.rglob("*")), "a half-written file was left"


# ---------------------------------------------------------------- real processes


def test_a_background_job_that_ignores_sigint_stops_at_sigterm_and_keeps_its_rounds(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "covey", "run", "ifca-digits", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--set", "training.rounds=100000", "--set", "engine.workers=2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    until(lambda: process.poll() is not None or len(files.read_lines(out / "metrics.jsonl")) >= 3)
    os.kill(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"continue with `covey resume {out}`" in said and "Traceback" not in said
    content, _ = files.load(out / "checkpoint")
    assert content["round"] == len(files.read_lines(out / "metrics.jsonl"))
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # nobody of the group is left


def test_a_reader_that_has_seen_enough_ends_a_list_quietly() -> None:
    script = f"{sys.executable} -m covey list | head -c 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.stderr == ""


def test_bench_without_a_name_says_which_there_are(covey: Callable[..., Ended]) -> None:
    ended = covey("bench")
    assert "mingledpie          A whole MingledPie round" in ended.out and "covey bench all" in ended.out
