"""`examples/own_package` through every command: a package of one's own is used as covey's own things are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from covey import CoveyError, Experiment, run
from covey.algorithms import ALGORITHMS
from covey.attacks import ATTACKS
from covey.cli.main import main
from covey.defences import DEFENCES
from covey.deploy.agreed import experiment_of, table_of
from covey.deploy.keys import load
from covey.experiment.own_code import own_code
from covey.results.folder import RunFolder
from support.deployment import Deployment, rehearsal

PACKAGE = Path(__file__).parents[2] / "examples" / "own_package"
STICKY, ROUNDING, RICH = (
    "own_methods.algorithm:StickyClusters",
    "own_methods.defence:Rounding",
    "own_methods.attack:WhoIsRich",
)
SMALL = ["--set", "training.rounds=2", "--set", "training.epochs=1", "--set", "engine.workers=1", "--quiet"]


def forget() -> None:
    """As in a fresh process: nothing of the package is imported."""
    for module in [name for name in sys.modules if name.partition(".")[0] == "own_methods"]:
        del sys.modules[module]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(PACKAGE))
    yield PACKAGE
    forget()


@pytest.fixture
def covey(package: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def command(*words: str) -> str:
        forget()
        code = main(words)
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    return command


def test_run_then_resume_compare_and_audit_of_the_folder(covey: Callable[..., str], tmp_path: Path) -> None:
    toml = str(PACKAGE / "experiment.toml")
    whole = json.loads(covey("run", toml, *SMALL, "--out", str(tmp_path / "whole"), "--json"))
    assert (whole["algorithm"], whole["defence"]) == ("sticky", "rounding")
    assert whole["attacks"]["who_is_rich"]["verdict"] == "broken"
    config = (tmp_path / "whole" / "config.toml").read_text()
    assert all(f'name = "{path}"' in config for path in (STICKY, ROUNDING, RICH))

    experiment = RunFolder(tmp_path / "whole").experiment()
    interrupted = tmp_path / "interrupted"
    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=interrupted, callbacks=[_interrupt], quiet=True)
    again = json.loads(covey("resume", str(interrupted), "--json", "--quiet"))
    assert again["accuracy"] == whole["accuracy"]
    page = tmp_path / "page.html"
    covey("compare", str(tmp_path / "whole"), str(interrupted), "--out", str(page))
    assert page.stat().st_size > 10_000

    audits = json.loads(covey("audit", str(interrupted), "--out", str(tmp_path / "audit"), "--json", "--quiet"))
    assert audits["audits"][0]["algorithm"] == "sticky"
    cells = {(cell["row"], cell["column"]): cell["verdict"] for cell in audits["audits"][0]["cells"]}
    assert cells["sample counts", "server"] == cells["cluster identity", "server"] == "broken"


def _interrupt(record: dict[str, Any], state: Any) -> None:
    raise KeyboardInterrupt


def test_sweep_and_matrix_take_paths(covey: Callable[..., str], tmp_path: Path) -> None:
    toml = str(PACKAGE / "experiment.toml")
    few = [*SMALL, "--set", "training.rounds=1", "--set", "clients=4"]
    swept = covey("run", toml, *few, "--sweep", f"algorithm=ifca,{STICKY}", "--out", str(tmp_path / "sweep"))
    assert STICKY in swept and "ifca" in swept
    lists = ["--algorithms", STICKY, "--defences", ROUNDING]
    audited = covey("audit", toml, "--matrix", *lists, *few, "--out", str(tmp_path / "matrix"), "--json")
    assert [(a["algorithm"], a["defence"]) for a in json.loads(audited)["audits"]] == [("sticky", "rounding")]


def test_silos_run_their_own_copy(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = rehearsal({"name": STICKY, "margin": 0.2}, defence=ROUNDING, clients=3, attacks=[RICH])
    deployment = Deployment(tmp_path, experiment)
    result = deployment.coordinator().run()
    simulated = run(experiment, quiet=True)
    assert result.accuracy["client_mean"] == pytest.approx(simulated.accuracy["client_mean"], abs=1e-6)

    _, agreed = load(tmp_path / "keys" / "silos" / "north")
    assert own_code(table_of(agreed)) == [
        f"{STICKY} (of no installed package)",
        f"{ROUNDING} (of no installed package)",
    ]
    forget()
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(PACKAGE)])
    with pytest.raises(CoveyError, match=r"there is no module 'own_methods' here; install the package") as refused:
        experiment_of(agreed)
    assert "\n" not in str(refused.value)


def test_installed_it_is_listed_and_its_short_names_are_enough(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(PACKAGE, source)  # a build writes beside its source
    pip = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), str(source)]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *pip], check=True)
    monkeypatch.syspath_prepend(str(site))
    registries = (ALGORITHMS, ATTACKS, DEFENCES)
    for registry in registries:
        registry.reread()
    try:
        main(["list", "algorithms"])
        listed = capsys.readouterr().out
        assert "sticky" in listed and "IFCA whose clients change" in listed and "own-methods 1.0" in listed
        experiment = Experiment.of(algorithm="sticky", defence="rounding", attacks=["who_is_rich"])
        assert experiment.table()["algorithm"]["name"] == STICKY  # which opens where the entry point is absent, too
        assert Experiment.of(experiment.table()) == experiment
        assert own_code(experiment.table()) == [f"{path} (own-methods 1.0)" for path in (STICKY, RICH, ROUNDING)]
    finally:
        monkeypatch.undo()
        for registry in registries:
            registry.reread()
