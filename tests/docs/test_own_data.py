"""The page and the tutorial on data of one's own: their examples run, from a CSV to silos that keep their tables."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from covey import Experiment
from covey.cli.main import commands
from covey.deploy import keys, load_model
from support.deployment import Deployment

pytest.importorskip("pandas")
ROOT = Path(__file__).parents[2]
HOSPITALS = ROOT / "examples" / "hospitals"


def test_own_data_are_trained_resumed_and_audited(tmp_path: Path) -> None:
    accuracy, audited = runpy.run_path(str(ROOT / "examples" / "own_data.py"))["main"](tmp_path)
    assert accuracy > 0.7 and audited == "wards"


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(HOSPITALS / "prepare.py"))["prepare"](tmp_path)
    page = (ROOT / "docs" / "your_own_data.md").read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", page, flags=re.S):
        exec(compile(code, "your_own_data", "exec"), {})


def test_from_a_csv_to_silos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the tutorial up to the keys; then the same parties in one process, their letters without a network."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "csv_to_deployment.md").read_text(encoding="utf-8")
    names = runpy.run_path(str(HOSPITALS / "prepare.py"))["prepare"](tmp_path)
    (tmp_path / "federation.toml").write_text((HOSPITALS / "federation.toml").read_text())
    typed = re.findall(r"^covey (?:data|run|audit|keys make) .*$", page, flags=re.M)
    assert len(typed) == 4
    for command in typed:
        told = CliRunner().invoke(commands(), shlex.split(command)[1:])
        assert told.exit_code == 0, (command, told.output, told.exception)
    assert "clients: 4" in CliRunner().invoke(commands(), shlex.split(typed[0])[1:]).output
    (tmp_path / "silos").rename(tmp_path / "data")
    deployment = Deployment.__new__(Deployment)
    deployment._open(tmp_path, Experiment.read(tmp_path / "federation.toml"), names)
    result = deployment.coordinator().run()
    assert result.rounds == 5 and result.accuracy["client_mean"] > 0.7
    state = tmp_path / "state" / names[0]
    assert load_model(state).accuracy is not None
    # A patient is read with the hospital's own mean and deviation, alone or among others, from a file or a frame.
    patients = pd.read_csv(tmp_path / "data" / names[0] / "data.csv").head(3)
    said = []
    for rows in (patients, patients.head(1)):
        rows.to_csv("new.csv", index=False)
        said.append(CliRunner().invoke(commands(), ["predict", str(state), "new.csv"]).stdout.splitlines()[1])
    alone = load_model(state).probabilities(patients.head(1))[0]
    among, by_itself = (line.split(",") for line in said)
    assert among[:2] == by_itself[:2]
    for told in (among, by_itself):  # three rows and one may be added up in another order, which the last digit shows
        assert [float(p) for p in told[2:]] == pytest.approx(alone, rel=1e-4)
    assert keys.load(tmp_path / "keys" / "silos" / names[0])[1].classes == ["no", "yes"]
