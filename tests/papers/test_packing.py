"""The archive of runs that have ended: what is in it, and when."""

from __future__ import annotations

import tarfile
import time
from pathlib import Path

from covey.papers import packing
from covey.papers.outcome import DIVERGED
from support.patience import until


def leave(out: Path, name: str, *names: str) -> None:
    (out / "runs" / name).mkdir(parents=True)
    for one in names:
        (out / "runs" / name / one).write_text("{}")


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
