"""The command line as a user meets it: real processes, one clear sentence for every mistake, never a traceback."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.cli.main import _typed


def covey(*arguments: str, data: Path | None = None, file_limit: int = 0) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    environment = os.environ | ({"COVEY_DATA": str(data)} if data else {})
    return subprocess.run(
        [sys.executable, "-m", "covey", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        preexec_fn=limit if file_limit else None,
    )


def test_run_writes_its_folder_and_prints_its_result(tmp_path: Path) -> None:
    done = covey("run", "ifca-digits", "--set", "training.rounds=2", "--out", str(tmp_path / "r"), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == 1 and result["rounds"] == 2
    assert {"average_cluster", "per_cluster", "client_mean", "global"} <= set(result["accuracy"])
    assert {"up", "down"} == set(result["bytes"]) and result["seed"] == 0 and "torch" in result["versions"]
    names = {p.name for p in (tmp_path / "r").iterdir()}
    assert names == {"config.toml", "metrics.jsonl", "result.json", "report.html", "federation.json", "checkpoint"}
    again = covey("resume", str(tmp_path / "r"), "--json")
    assert json.loads(again.stdout)["accuracy"] == result["accuracy"]
    compared = covey("compare", str(tmp_path / "r"), str(tmp_path / "r"), "--out", str(tmp_path / "c.html"))
    assert compared.returncode == 0 and (tmp_path / "c.html").stat().st_size > 10_000


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
        (["list", "modles"], "did you mean 'models'"),
        (["resume", "/nowhere"], "not the folder of a run"),
        (["compare", "/nowhere"], "no result.json"),
        (["data", "check", "mnits"], "mnits"),
        (["reproduce", "mingledpi", "--table", "fig3"], "did you mean 'mingledpie'"),
    ],
)
def test_mistakes_end_in_one_sentence(arguments: list[str], says: str, tmp_path: Path) -> None:
    import torch

    if "engine.device=cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    out = ["--out", str(tmp_path / "r")] if arguments[0] == "run" else []
    done = covey(*arguments, *out)
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()


def test_a_corrupt_data_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"PK\x03\x04 not really a zip")
    done = covey("run", "ifca-mnist", "--out", str(tmp_path / "r"), data=tmp_path)
    assert done.returncode == 2
    assert "mnist.npz" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "r").exists()


def test_a_file_that_cannot_grow_stops_the_run_in_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "r"
    sets = ["--set", "training.rounds=3", "--set", "engine.checkpoint_every=1", "--set", "engine.workers=1"]
    done = covey("run", "ifca-digits", *sets, "--out", str(out), file_limit=100_000)
    assert done.returncode == 2
    assert "could not be written" in done.stderr and "Traceback" not in done.stderr
    assert not any(p.name.startswith(".") for p in out.rglob("*")), "a half-written file was left"


def test_lists_have_a_line_each() -> None:
    done = covey("list")
    assert done.returncode == 0
    for word in ("ifca", "mnist", "resnet18", "label_sets", "dp_sgd", "159,010 parameters"):
        assert word in done.stdout


def test_help_teaches() -> None:
    assert "covey run ifca-mnist" in covey("run", "--help").stdout


@given(st.lists(st.text(alphabet="ab ['\"]$`\\\\!=,", max_size=8), max_size=4))
def test_a_command_that_is_shown_reads_back_as_it_was(words: list[str]) -> None:
    assert shlex.split(_typed(words)) == words


def test_a_command_is_shown_as_one_would_type_it() -> None:
    assert _typed(["ifca-digits", "--set=attacks=['a1']"]) == "ifca-digits \"--set=attacks=['a1']\""
