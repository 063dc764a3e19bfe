"""Puts what `benchmarks/gpu.sh` packed into benchmarks/results, and the charts and the table of goals into the docs.

    PYTHONPATH=src:benchmarks python benchmarks/store_gpu.py gpu.tar.gz

What was not timed this time (a model in one arithmetic) keeps its older row; each says when it was timed (`at`).
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import charts
import goals

RESULTS = Path(__file__).resolve().parent / "results"
AS_THEY_ARE = (
    "rounds-h200.json",
    "rounds-h200.txt",
    "million-h200.json",
    "start-h200.json",
    "probe-h200.txt",
    "arithmetic-h200.json",
    "leftovers-h200.json",
    "gru-h200.json",
    "gru-h200.txt",
)


def store(folder: Path) -> None:
    for name in AS_THEY_ARE:
        if (folder / name).is_file():
            (RESULTS / name).write_bytes((folder / name).read_bytes())
            if name.removesuffix(".json") in goals.SOURCES:
                when = (folder / name).stat().st_mtime
                goals.note(name.removesuffix(".json"), 0.0, when)  # a leased machine has no other users
            print(f"stored {name}")
    paths = sorted(folder.glob("training-gpu-*.json"))
    parts = [json.loads(path.read_text()) | {"at": goals.minute(path.stat().st_mtime)} for path in paths]
    if parts:
        before = json.loads((RESULTS / "training-gpu-h200.json").read_text())
        now = merged(before, parts)
        (RESULTS / "training-gpu-h200.json").write_text(json.dumps(now, indent=1))
        print("stored training-gpu-h200.json")


def merged(before: dict[str, Any], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The new figures, and the older ones of models that have no new ones."""
    speed = [row | {"at": part["at"]} for part in parts for row in part["speed"]]
    agreement = [row for part in parts for row in part["agreement"]]
    timed = {(row["model"], row["precision"]) for row in speed}
    older = [row for row in before["speed"] if (row["model"], row["precision"]) not in timed]
    compared = {row["model"] for row in agreement}
    return {
        "device": parts[0]["device"],
        "torch": parts[0]["torch"],
        "speed": speed + older,
        "agreement": agreement + [row for row in before["agreement"] if row["model"] not in compared],
        "ways": [row for part in parts for row in part.get("ways", [])] or before.get("ways", []),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sys.argv[1]) as archive:
            archive.extractall(folder, filter="data")
        store(Path(folder))
    charts.main()


if __name__ == "__main__":
    main()
