"""What a party's owner reads and what others on the machine can; the processes are in flower/test_processes.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from covey import config
from covey.deploy import serve
from covey.errors import CoveyError
from covey.files import write_atomically


def test_words_of_others_do_not_reach_the_terminal_as_orders(capsys: pytest.CaptureFixture[str]) -> None:
    serve._say(False)("north is there (covey \x1b[2J\x1b]0;owned\x07\r\n\u202e1.0)")
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said[:-1].isprintable() and "\\x1b[2J" in said


def test_what_a_party_writes_is_for_its_owner(tmp_path: Path) -> None:
    with serve.only_for_its_owner():
        write_atomically(tmp_path / "run" / "deep" / "state.bin", b"")
        (tmp_path / "run" / "flower").mkdir()
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"run": 0o700, "deep": 0o700, "flower": 0o700, "state.bin": 0o600}
    (tmp_path / "after").touch()
    assert (tmp_path / "after").stat().st_mode & 0o777 == 0o666 & ~_umask()


def test_a_file_nested_too_deeply_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(CoveyError, match="nested too deeply"):
        config.read_toml(path)
    assert config.assign({}, "x=" + "[" * 5000)["x"].startswith("[[")


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
