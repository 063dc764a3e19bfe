"""What a party's owner reads and what others on the machine can; the processes are in flower/test_processes.py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from covey import config
from covey.cli.main import main
from covey.deploy import keys, serve
from covey.deploy.watch.journal import Journal
from covey.errors import CoveyError
from covey.files import write_atomically
from support.deployment import rehearsal


def test_words_of_others_do_not_reach_the_terminal_as_orders(capsys: pytest.CaptureFixture[str]) -> None:
    Journal()("north is there (covey \x1b[2J\x1b]0;owned\x07\r\n\u202e1.0)")
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


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parties") / "keys"
    keys.make(rehearsal("fedavg", clients=2), ["north", "south"], ["localhost"], folder)
    return folder


@pytest.mark.parametrize(
    ("without", "sentence"),
    [
        ("server/nodes", "nodes admits nobody: copy the server's folder again"),
        ("server/server.key", "holds no server.key: copy this party's folder again"),
        ("silos/north/node.key", "holds no node.key: copy this party's folder again"),
        ("silos/north/ca.crt", "holds no ca.crt: copy this party's folder again"),
        ("out", "is a file, --out wants a folder"),
        ("state", "is a file, --state wants a folder"),
    ],
)
def test_what_no_waiting_mends_is_said_before_anything_begins(
    without: str, sentence: str, parties: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A folder that lacks something, or a file where a folder should be; no process is started for it."""
    copy = Path(shutil.copytree(parties, tmp_path / "keys"))
    out = state = tmp_path / "new"
    if without in ("out", "state"):
        out = state = tmp_path / "file" / "below"
        (tmp_path / "file").touch()
    elif (copy / without).is_dir():
        shutil.rmtree(copy / without)
    else:
        (copy / without).unlink()
    words = ["serve", "--keys", str(copy / "server"), "--address", "127.0.0.1:1", "--out", str(out)]
    if without == "state" or "silos" in without:
        words = ["join", str(copy / "silos" / "north"), "--data", str(tmp_path), "--state", str(state)]
    code, said = main(words), capfd.readouterr().err
    assert code == 2 and sentence in said and len(said.splitlines()) == 1


def test_little_memory_is_called_that(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """And a package that cannot be loaded is not called missing."""
    allocator = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
    mapped = ImportError("libgomp.so: failed to map segment from shared object", name="sklearn")
    for error, words in {
        MemoryError(): "too little memory",
        allocator: "too little memory",
        mapped: "sklearn is installed but",
    }.items():

        def fail(arguments: object, error: Exception = error) -> int:
            raise error

        monkeypatch.setattr("covey.cli.main.run", fail)
        assert main([]) == 2
        said = capfd.readouterr().err
        assert words in said and len(said.splitlines()) == 1


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def test_addresses() -> None:
    assert serve._address("fed.example.org:9092") == ("fed.example.org", 9092)
    assert serve._address("[::1]:9092") == ("::1", 9092)
    for wrong in ("::1:9092", "[::1:9092", "[::1", "[::1]", "host", "host:", "host:70000", ":9092", "host:²"):
        with pytest.raises(CoveyError, match="is no address"):
            serve._address(wrong)


def test_a_fraction_without_its_nought() -> None:
    assert config.assign({}, "defence.quantile=.5") == {"defence": {"quantile": 0.5}}
    assert config.assign({}, "x=-.25")["x"] == -0.25
    assert config.assign({}, "x=../y")["x"] == "../y" and config.assign({}, "x=.venv")["x"] == ".venv"
