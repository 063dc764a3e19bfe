"""Code of a user's own that fails at run time: one sentence with its place, wherever it runs; the traceback on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey.cli.main import main
from covey.engines.hosts.host import Host

BROKEN = """
from dataclasses import dataclass
from covey.algorithms.contract import Predictor
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


@dataclass(frozen=True)
class ChangesItself(FedAvg):
    name = "changes_itself"

    def client(self, me, message):
        self.weighting = "clients"
        return (yield from super().client(me, message))


@dataclass(frozen=True)
class Adds(FedAvg):
    name = "adds"

    def aggregate(self, server, state, replies):
        return list(replies)[0][1]


@dataclass(frozen=True)
class NoCoroutine(FedAvg):
    name = "no_coroutine"

    def use(self, me, message):
        return Predictor(message.model[None])


@dataclass(frozen=True)
class OneVector(FedAvg):
    name = "one_vector"

    def use(self, me, message):
        return Predictor(message.model)
        yield


@dataclass(frozen=True)
class AsksForAModel(FedAvg):
    name = "asks_for_a_model"

    def client(self, me, message):
        return (yield message.model)


@dataclass(frozen=True)
class ReturnsNothing(FedAvg):
    name = "returns_nothing"

    def aggregate(self, server, state, replies):
        list(replies)


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
        (
            "algorithm=own_broken:ChangesItself",
            "ChangesItself.client",
            "self.weighting =",
            "FrozenInstanceError: cannot",
        ),
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


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (
            "NoCoroutine",
            "NoCoroutine.use gave a Predictor at once: it must be a coroutine, and a `yield` in it makes it one",
        ),
        ("OneVector", "one_vector's use returned models [15010]: expected Predictor(models) with a row for each model"),
        ("AsksForAModel", "a client of asks_for_a_model asked for a Tensor: expected work, as Train(model, me.plan)"),
        ("ReturnsNothing", "returns_nothing's aggregate returned nothing: expected the state of the next round"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_what_it_gives_in_place_of_what_is_expected_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str, why: str, workers: int
) -> None:
    words = ["run", "ifca-digits", "--set", f"algorithm=own_broken:{kind}", "--set", f"engine.workers={workers}"]
    assert main([*words, "--set", "clients=5", "--set", "training.rounds=1", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"covey: {why}") and len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_what_covey_does_wrong_while_it_waits_is_not_its_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Its aggregate asks for the replies, and there covey breaks, in a line of its own: this file may be somebody's code, too, once
    another test has named a class of it.
    """
    monkeypatch.setattr(Host, "_take_turns", None)
    words = ["run", "ifca-digits", "--set", "algorithm=own_broken:Adds", "--set", f"engine.workers={workers}"]
    with pytest.raises((TypeError, RuntimeError), match="'NoneType' object is not callable"):
        main([*words, "--set", "clients=5", "--quiet"])


def test_the_traceback_is_there_on_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DEBUG", "1")
    words = ["run", "ifca-digits", "--set", "dataset=own_broken:dataset", "--out", str(folder / "run"), "--quiet"]
    with pytest.raises(ValueError, match="line one"):
        main(words)
