"""A preset with other data: whose rows are whose is never passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.experiment.presets import table_of


@pytest.fixture
def table_file(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text("age,site,outcome\n" + "".join(f"{i},{'ABC'[i % 3]},{i % 2}\n" for i in range(60)))
    return path


def test_a_preset_on_a_table_of_ones_own_takes_the_clients_of_the_table(table_file: Path) -> None:
    table = table_of("ifca-digits", [f"dataset={table_file}", "data.client=site"])
    assert Experiment.of(table).partition.name == "natural"
    assert (
        Experiment.of(table_of("ifca-mnist", ["dataset=fashion_mnist"])).partition.samples == 450
    )  # as the preset has it


def test_a_partition_that_was_asked_for_stays_and_does_not_pass_over_clients(table_file: Path) -> None:
    cut = table_of("ifca-digits", [f"dataset={table_file}", "partition=dirichlet"])
    assert Experiment.of(cut).partition.name == "dirichlet"
    with pytest.raises(CoveyError, match="partition = 'dirichlet' cuts the rows anew"):
        Experiment.of(cut, data={"client": "site"})


def test_a_folder_called_silos_is_not_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "silos").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "partition" in table_of("ifca-digits", ["dataset=silos"])
