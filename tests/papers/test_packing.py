"""The archive of runs that have ended: what is in it, when, and what becomes of one that was there before."""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from covey import files
from covey.cli.reproduce import reproduce
from covey.errors import CoveyError
from covey.papers import packing, pool
from covey.papers.outcome import DIVERGED
from covey.results.folder import RESULT
from support.patience import until

WHOLE: dict[str, dict[str, Any]] = {
    RESULT: {"accuracy": {}, "attacks": {}, "bytes": {}, "seconds": {}, "rounds": 0},
    DIVERGED: {"why": "not finite", "seed": 0},
}


def leave(out: Path, name: str, *names: str) -> None:
    (out / "runs" / name).mkdir(parents=True)
    for one in names:
        (out / "runs" / name / one).write_text(json.dumps(WHOLE.get(one, {})))


def packed(out: Path) -> list[str]:
    """What is in the archive: any that is there is a whole one."""
    if not (out / packing.PACKED).is_file():
        return []
    with tarfile.open(out / packing.PACKED) as archive:
        return archive.getnames()


def test_only_finished_runs_are_packed(tmp_path: Path) -> None:
    leave(tmp_path, "done", "result.json", "metrics.jsonl", "big.bin")
    leave(tmp_path, "cut", "metrics.jsonl")
    leave(tmp_path, "lost", DIVERGED, "metrics.jsonl")
    (tmp_path / "a-table.json").write_text("{}")
    with tarfile.open(packing.pack(tmp_path)) as archive:
        assert sorted(archive.getnames()) == [
            "a-table.json",
            "runs/done/metrics.jsonl",
            "runs/done/result.json",
            f"runs/lost/{DIVERGED}",
            "runs/lost/metrics.jsonl",
        ]
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "a-table.json", packing.PACKED}


def test_what_has_ended_is_packed_beside_what_goes_on(tmp_path: Path) -> None:
    with packing.packing(tmp_path, every=0.01) as more:
        for name in ("first", "second"):
            leave(tmp_path, name, "result.json")
            more()
            until(lambda wanted=f"runs/{name}/result.json": wanted in packed(tmp_path))  # type: ignore[misc]
        stamp = (tmp_path / packing.PACKED).stat().st_mtime_ns
        time.sleep(0.1)
        assert (tmp_path / packing.PACKED).stat().st_mtime_ns == stamp  # nothing more, nothing packed


def leave_run(out: Path, name: str, end: str = RESULT) -> None:
    leave(out, name, "metrics.jsonl", end)


def archive_of(tmp_path: Path, *names: str) -> bytes:
    for name in names:
        leave_run(tmp_path / "elsewhere", name)
    return packing.pack(tmp_path / "elsewhere").read_bytes()


def runs_in(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "runs").iterdir() if path.is_dir())


def test_what_an_archive_holds_is_taken_over_once(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a-table.json").write_text('{"made": "there"}')
    content = archive_of(tmp_path, "a", "b", "c")
    out = tmp_path / "here"
    leave(out, "a", "metrics.jsonl", RESULT)
    (out / "runs" / "a" / RESULT).write_text(json.dumps(WHOLE[RESULT] | {"made": "here"}))
    leave(out, "b", "metrics.jsonl")  # it was broken off
    (out / packing.PACKED).write_bytes(content)
    assert packing.unpack(out) == 2
    assert runs_in(out) == ["a", "b", "c"] and (out / "runs" / "b" / RESULT).is_file()
    assert "here" in (out / "runs" / "a" / RESULT).read_text() and "there" in (out / "a-table.json").read_text()
    assert packing.unpack(out) == 0

    shutil.rmtree(out / "runs" / "c")  # somebody wants it computed again
    assert packing.unpack(out) == 0 and runs_in(out) == ["a", "b"]
    packing.pack(out)
    assert "runs/c/result.json" not in packed(out)
    shutil.rmtree(out / "runs")  # as after a copy of nothing but the archive
    assert packing.unpack(out) == 2 and runs_in(out) == ["a", "b"]
    (out / packing.PACKED).write_bytes(content)  # another one than was packed here
    assert packing.unpack(out) == 1 and runs_in(out) == ["a", "b", "c"]


@pytest.mark.parametrize("known", [True, False])
def test_an_archives_copy_of_a_run_outlives_a_damaged_one(known: bool, tmp_path: Path) -> None:
    """Once, the first thing that a pool did was to write the damaged one over it."""
    out = tmp_path / "here"
    for name in ("a", "b"):
        leave_run(out, name)
    (out / packing.PACKED).write_bytes(packing.pack(out).read_bytes() if known else archive_of(tmp_path, "a", "b"))
    (out / "runs" / "a" / RESULT).write_text("{")
    assert packing.unpack(out) == 1
    assert json.loads((out / "runs" / "a" / RESULT).read_text()) == WHOLE[RESULT]
    (out / "runs" / "a" / "metrics.jsonl").unlink()  # of a run without rounds, which needs none
    (out / "runs" / "b" / RESULT).write_text("[]")
    packing.pack(out)
    assert {"runs/a/result.json", "runs/b/result.json"} <= set(packed(out))
    assert json.loads((out / "runs" / "b" / RESULT).read_text()) == WHOLE[RESULT]


def test_a_run_that_is_damaged_and_not_in_the_archive_is_not_packed(tmp_path: Path) -> None:
    leave_run(tmp_path, "a")
    leave_run(tmp_path, "b", DIVERGED)
    (tmp_path / "runs" / "b" / DIVERGED).write_text("{")
    for _ in range(2):
        packing.pack(tmp_path)
        assert packed(tmp_path) == ["runs/a/result.json", "runs/a/metrics.jsonl"]


def test_an_archive_that_comes_while_a_pool_runs_is_taken_over(tmp_path: Path) -> None:
    content = archive_of(tmp_path, "b")
    out = tmp_path / "here"
    leave_run(out, "a")
    packing.pack(out)
    (out / packing.PACKED).write_bytes(content)
    packing.pack(out)
    assert runs_in(out) == ["a", "b"] and {"runs/a/result.json", "runs/b/result.json"} <= set(packed(out))
    (out / packing.PACKED).write_bytes(content[:100])
    with pytest.raises(CoveyError, match="is damaged"):
        packing.pack(out)
    assert (out / packing.PACKED).read_bytes() == content[:100]


def test_a_run_that_goes_on_here_is_not_written_into(tmp_path: Path) -> None:
    content = archive_of(tmp_path, "a", "b")
    out = tmp_path / "here"
    leave(out, "a", "metrics.jsonl")
    (out / "runs" / "a" / "metrics.jsonl").write_text("its first rounds")
    leave_run(out, "c")
    (out / packing.PACKED).write_bytes(content)
    for _ in range(2):
        packing.pack(out)
        assert runs_in(out) == ["a", "b", "c"] and not (out / "runs" / "a" / RESULT).exists()
        assert (out / "runs" / "a" / "metrics.jsonl").read_text() == "its first rounds"
        assert {f"runs/{run}/result.json" for run in "abc"} <= set(packed(out))  # and nothing of the archive is lost
    (out / "runs" / "a" / RESULT).write_text(json.dumps(WHOLE[RESULT] | {"made": "here"}))
    packing.pack(out)
    assert packed(out).count("runs/a/result.json") == 1


def test_emptied_runs_come_back(tmp_path: Path) -> None:
    """`rm -r runs/*` leaves the note of what is known."""
    leave_run(tmp_path, "a")
    packing.pack(tmp_path)
    shutil.rmtree(tmp_path / "runs" / "a")
    assert (tmp_path / packing.NOTE).is_file() and packing.unpack(tmp_path) == 1


def test_what_is_packed_can_be_unpacked(tmp_path: Path) -> None:
    """Names that no pool gives stay here; somebody's own archive of `runs` has the pool's note in it."""
    leave_run(tmp_path, "a")
    leave_run(tmp_path, ".old")
    (tmp_path / "._x.json").write_text("{}")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    packing.pack(tmp_path)
    assert packed(tmp_path) == ["runs/a/result.json", "runs/a/metrics.jsonl"]
    (tmp_path / "there").mkdir()
    with tarfile.open(tmp_path / "there" / packing.PACKED, "w:xz") as archive:
        shutil.rmtree(tmp_path / "runs" / ".old")
        archive.add(tmp_path / "runs", "runs")
    assert packing.unpack(tmp_path / "there") == 1


def test_a_run_is_taken_over_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, write = tmp_path / "here", files.write_atomically
    out.mkdir()
    (out / packing.PACKED).write_bytes(archive_of(tmp_path, "a", "b"))

    def full(path: Path, data: bytes) -> None:
        if path.name == RESULT:
            raise CoveyError("the disk is full")
        write(path, data)

    with monkeypatch.context() as patched, pytest.raises(CoveyError, match="full"):
        patched.setattr(files, "write_atomically", full)
        packing.unpack(out)
    assert not list(out.glob(f"runs/*/{RESULT}"))
    assert packing.unpack(out) == 2


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "garbage": lambda whole: b"no archive at all" * 20,
    "cut": lambda whole: whole[: len(whole) // 2],
    "one bit": lambda whole: whole[:-100] + bytes([whole[-100] ^ 4]) + whole[-99:],
    "a tar that breaks off": lambda whole: lzma.compress(lzma.decompress(whole)[:1536]),
    "no tar": lambda whole: lzma.compress(b"something else" * 200 + bytes(1024)),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_archive_is_refused_before_anything_runs_and_stays(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = DAMAGE[how](archive_of(tmp_path, "a", "b"))
    out = tmp_path / "here"
    out.mkdir()
    (out / packing.PACKED).write_bytes(content)
    monkeypatch.setattr(pool, "run_many", lambda *_: pytest.fail("nothing may run"))
    for minutes in (1.0, 0.0):
        with pytest.raises(CoveyError, match=r"here/runs.tar.xz is damaged \(.*move it away, or choose another --out"):
            reproduce(many=["mingledpie/attackers/*"], quick=True, minutes=minutes, out=out)
    assert (out / packing.PACKED).read_bytes() == content and [p.name for p in out.iterdir()] == [packing.PACKED]


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 2) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size * (kind == tarfile.REGTYPE), "result.json"
    return info


@pytest.mark.parametrize(
    "odd",
    [
        member("../outside.json"),
        member("/tmp/outside.json"),
        member("runs/../../result.json"),
        member("runs/a/b/result.json"),
        member("runs/a/checkpoint.bin"),
        member("runs/a/result.json", tarfile.SYMTYPE),
        member("runs/a/result.json", tarfile.LNKTYPE),
        member("runs/a/result.json", tarfile.FIFOTYPE),
        member("runs/a/metrics.jsonl", size=2000),
    ],
    ids=lambda one: f"{one.name} {one.type.decode()}",
)
def test_an_archive_that_no_pool_packs_is_refused(
    odd: tarfile.TarInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_OF_A_FILE", 1000)
    out = tmp_path / "here"
    out.mkdir()
    with tarfile.open(out / packing.PACKED, "w:xz") as archive:
        for one in (member("runs", tarfile.DIRTYPE), member("runs/first/result.json"), odd):
            archive.addfile(one, io.BytesIO(bytes(one.size)))
    with pytest.raises(CoveyError, match=r"which no pool packs: .*move it away"):
        packing.unpack(out)
    assert [path.name for path in out.iterdir()] == [packing.PACKED]  # nothing of it is taken over
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_IN_ALL", 4000)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / packing.PACKED).write_bytes(archive_of(tmp_path, "a", "b"))
    with pytest.raises(CoveyError, match="unpacks to more than"):
        packing.unpack(tmp_path / "here")


def test_a_pool_goes_on_from_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, a pool that was handed four runs ran all of them again, and left an archive of two."""
    out = tmp_path / "here"
    out.mkdir()
    (out / packing.PACKED).write_bytes(archive_of(tmp_path, "a", "b", "c", "d"))
    there: list[str] = []
    monkeypatch.setattr(pool, "run_many", lambda *_: there.extend(runs_in(out)) or [])
    monkeypatch.setattr(pool, "complete_tables", lambda *_: ([], {}))
    reproduce(many=["mingledpie/attackers/*"], quick=True, out=out)
    assert there == ["a", "b", "c", "d"]
    assert f"unpacked  4 runs of {out / packing.PACKED} that were not in {out / 'runs'}" in capsys.readouterr().out
    assert sum(name.endswith(f"/{RESULT}") for name in packed(out)) == 4
