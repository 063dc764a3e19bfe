"""`%covey`: the terminal's commands in a notebook."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey.notebook import covey
from support.runs import synthetic_run


def test_the_magic_prints_what_the_terminal_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert covey("list presets") is None
    assert "ifca-digits" in capsys.readouterr().out


def test_a_mistake_in_a_cell_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert covey("run --sedes=1") is None
    assert capsys.readouterr().err == "covey: `covey run` has no option '--sedes', did you mean '--seeds'?\n"


def test_the_page_that_a_command_wrote_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("IPython")
    run = synthetic_run(tmp_path / "run", clients=6, rounds=2)
    page = covey(f"compare {run} {run} --out {tmp_path / 'c.html'}")
    assert "<iframe" in page.data and str(tmp_path / "c.html") in capsys.readouterr().out
