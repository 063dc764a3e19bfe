"""Writes the tutorial's files: hearts.csv, all patients with their hospital, and silos/HOSPITAL/data.csv, each one's own.

    python examples/hospitals/prepare.py FOLDER

The patients are those of `covey run heart` (UCI, CC BY 4.0). In life nobody has the first file.
"""

from __future__ import annotations

import csv
import sys
from importlib.resources import files
from pathlib import Path


def prepare(folder: Path) -> list[str]:
    """The names of the hospitals, in their order."""
    text = files("covey.data.sources.heart").joinpath("heart_disease.csv").read_text(encoding="utf-8")
    patients = list(csv.DictReader(text.splitlines()))
    for patient in patients:
        patient["hospital"] = patient.pop("dataset").lower().replace(" ", "-")
        patient["ill"] = "yes" if int(patient.pop("num")) > 0 else "no"
    write(folder / "hearts.csv", patients)
    hospitals = sorted({patient["hospital"] for patient in patients})
    for hospital in hospitals:
        own = [{k: v for k, v in p.items() if k != "hospital"} for p in patients if p["hospital"] == hospital]
        write(folder / "silos" / hospital / "data.csv", own)
    return hospitals


def write(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    print(",".join(prepare(Path(sys.argv[1] if len(sys.argv) > 1 else "."))))
