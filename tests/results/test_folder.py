"""The run folder: one class for its files. `old_run` was written by covey as it was before rooms, interrupted after round 2 of 3
(its checkpoint) and then run to its end (its result.json)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from covey.audit import audit
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.report.page import write_comparison, write_report
from covey.results.folder import RunFolder, hash_of
from covey.rounds.completion import complete
from covey.rounds.loop import run
from covey.rounds.result import read_result

OLD = Path(__file__).parent / "old_run"
TINY = {"dataset": "digits", "clients": 4, "clusters": 2, "model": "softmax", "engine": {"workers": 1}}


@pytest.fixture
def old(tmp_path: Path) -> RunFolder:
    shutil.copytree(OLD, tmp_path / "old")
    return RunFolder(tmp_path / "old")


def test_an_old_folder_is_named_as_it_was() -> None:
    """Stored tables and audits find their runs by this hash."""
    assert hash_of(RunFolder(OLD).experiment()) == "99198a056a617f66"
    assert hash_of(Experiment()) == "d9f880bef49c30a9"
    assert hash_of(Experiment.of(defence="dp_sgd")) == "58606065f1d59d8d"
    assert hash_of(Experiment.of(algorithm="fedavg")) == "72901999b74f6482"
    changed = {"name": "ifca", "aggregation": "median"}
    assert hash_of(Experiment.of(algorithm=changed)) != "d9f880bef49c30a9"


def test_an_old_key_is_read_under_its_new_name() -> None:
    experiment = RunFolder(OLD).experiment()
    assert experiment.engine.clients_at_once == 4  # engine.wave then
    with pytest.raises(CoveyError, match=r"engine\.wave is the old name of engine\.clients_at_once, and both are set"):
        Experiment.of(engine={"wave": 3, "clients_at_once": 5})
    assert "wave" not in experiment.toml()


def test_an_old_folder_is_read_and_reported(old: RunFolder) -> None:
    assert old.finished and old.begun
    read = old.read()
    assert read.problems == () and len(read.rounds) == 3 and read.clients == 6
    page = write_report(old.path).read_text()
    assert "IFCA trained 2 models for 6 clients on digits" in page
    assert read_result(old).accuracy["client_mean"] == pytest.approx(0.32590006207324645)


def test_an_old_folder_stands_beside_a_new_one(old: RunFolder, tmp_path: Path) -> None:
    new = complete(
        Experiment.of(TINY, algorithm="fedavg", training={"rounds": 2}), RunFolder(tmp_path / "new"), quiet=True
    )
    page = write_comparison([old.path, new.path], tmp_path / "comparison.html").read_text()
    assert "IFCA and FedAvg on digits, side by side" in page


def test_an_old_run_goes_on_to_the_result_that_it_had(old: RunFolder) -> None:
    before = old.result_json()
    old.result.unlink()
    run(old.experiment(), out=old.path, resume=True, quiet=True)
    after = old.result_json()
    assert after["accuracy"] == before["accuracy"]
    assert after["privacy"]["ldp"]["epsilon"] == before["privacy"]["ldp"]["epsilon"]
    for name, finding in before["attacks"].items():
        assert after["attacks"][name]["value"] == finding["value"]
    assert [r["round"] for r in old.records()] == [1, 2, 3]


def test_an_old_config_is_audited(old: RunFolder, tmp_path: Path) -> None:
    matrix = audit(old.experiment(), tmp_path / "audit", quiet=True)
    verdicts = {(cell.row, cell.column): cell.verdict for cell in matrix.cells}
    assert verdicts["cluster identity", "server"] in ("broken", "given")


def test_complete_reads_back_goes_on_or_runs(tmp_path: Path) -> None:
    experiment = Experiment.of(TINY, algorithm="ifca", training={"rounds": 3})
    folder = RunFolder.named_by_hash(tmp_path, experiment)
    assert folder.path == tmp_path / "runs" / hash_of(experiment)
    assert not folder.finished and not folder.begun
    rounds: list[int] = []

    def stop(record: dict[str, object], state: object) -> None:
        rounds.append(int(str(record["round"])))
        if rounds == [1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        complete(experiment, folder, callbacks=[stop], quiet=True)
    assert folder.begun and not folder.finished
    complete(experiment, folder, callbacks=[stop], quiet=True)
    assert rounds == [1, 2, 3] and folder.finished
    complete(experiment, folder, callbacks=[stop], quiet=True)
    assert rounds == [1, 2, 3]


def test_a_folder_of_other_settings_is_refused(old: RunFolder) -> None:
    old.refuse_other(old.experiment())
    with pytest.raises(CoveyError, match="holds a run of other settings: choose another folder"):
        old.refuse_other(Experiment.of(TINY))


def test_a_new_run_takes_the_old_ones_files_away(old: RunFolder) -> None:
    old.report.write_text("old")
    old.clear()
    assert not old.finished and not old.begun and not old.metrics.exists() and not old.report.exists()
    assert old.config.is_file()  # written anew by whoever runs


def test_what_is_no_finished_run_says_so(tmp_path: Path) -> None:
    empty = RunFolder(tmp_path)
    with pytest.raises(CoveyError, match=r"holds no result\.json: give the folder of a finished run"):
        empty.result_json()
    with pytest.raises(CoveyError, match=r"holds no config\.toml: it is not the folder of a run"):
        empty.experiment()
    with pytest.raises(CoveyError, match="no round"):
        empty.read()
    empty.result.write_text('{"schema": 1')
    with pytest.raises(CoveyError, match="is damaged"):
        empty.result_json()


def test_a_later_versions_result_is_read_as_far_as_it_is_known(old: RunFolder) -> None:
    content = json.loads(old.result.read_text())
    old.result.write_text(json.dumps(content | {"colour": "blue"}))
    assert read_result(old).rounds == 3
