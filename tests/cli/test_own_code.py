"""Code of a user's own that fails at run time: one sentence with its place, wherever it runs; the traceback on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.cli.main import main

BROKEN = """
from dataclasses import dataclass
from covey.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class BreaksAtTheServer(FedAvg):
    name = "breaks_at_the_server"

    def aggregate(self, server, state, replies):
        return 1 / 0


@dataclass(frozen=True)
class BreaksAtAClient(FedAvg):
    name = "breaks_at_a_client"

    def client(self, me, message):
        yield from super().client(me, message)
        raise KeyError("no such\\x1b[31m client")


def dataset():
    raise ValueError("line one\\nline two")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module of the user's."""
    (tmp_path / "own_broken.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield tmp_path
    sys.modules.pop("own_broken", None)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(BROKEN.splitlines(), start=1) if text in line)


@pytest.mark.parametrize(
    ("setting", "what", "line", "why"),
    [
        (
            "algorithm=own_broken:BreaksAtTheServer",
            "BreaksAtTheServer.aggregate",
            "1 / 0",
            "ZeroDivisionError: division",
        ),
        ("algorithm=own_broken:BreaksAtAClient", "BreaksAtAClient.client", "no such", "KeyError: 'no such\\x1b[31m"),
        ("dataset=own_broken:dataset", "dataset", "line one", "ValueError: line one;"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_named_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], setting: str, what: str, line: str, why: str, workers: int
) -> None:
    words = ["run", "ifca-digits", "--set", setting, "--set", f"engine.workers={workers}", "--set", "training.rounds=1"]
    assert main([*words, "--set", "clients=5", "--out", str(folder / "run"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert f"own_broken:{what} failed at {folder / 'own_broken.py'}:{line_of(line)} with {why}" in said
    assert "Traceback" not in said and len(said.strip().splitlines()) == 1


def test_the_traceback_is_there_on_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DEBUG", "1")
    words = ["run", "ifca-digits", "--set", "dataset=own_broken:dataset", "--out", str(folder / "run"), "--quiet"]
    with pytest.raises(ValueError, match="line one"):
        main(words)
