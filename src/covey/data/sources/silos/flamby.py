"""FLamby's Fed-Heart-Disease from the four files of UCI that its script downloads: processed.cleveland.data and so on.

du Terrail et al.: FLamby, NeurIPS 2022. As FLamby reads them: without the last three columns before the diagnosis (slope, ca,
thal), rows with a gap left out, ill is a diagnosis above 0. What is ours: chest pain and resting ECG one-hot, numbers less mean
and by deviation of each hospital's own training rows, and a third of each hospital's rows held back by a fixed draw, not by
FLamby's. covey's own `heart` keeps all 920 patients and all columns; figures of the two are not comparable. FLamby's other sets
are pictures and volumes behind forms to sign; turned into folders or .npz they are read as your own data
(docs/your_own_data.md).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from covey.data.dataset import Dataset
from covey.data.own.read import of_sheet
from covey.data.own.rules import Rules
from covey.data.own.sheet import Column, Origin, Sheet, Words
from covey.data.sources.files import Form, Source, WantedFile, damaged, reading

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")
CATEGORIES = ("cp", "restecg")
WIDTH = 14  # with slope, ca, thal and the diagnosis
RULES = Rules(label="ill", client="hospital", test=1 / 3, standardise="clients", categories=CATEGORIES)


def read(paths: tuple[Path, ...], label: str) -> Dataset:
    rows, hospital = [], []
    for number, path in enumerate(paths):
        with reading(path):
            lines = [line.split(",") for line in path.read_text(encoding="latin-1").splitlines() if line.strip()]
            for at, line in enumerate(lines, 1):
                if len(line) != WIDTH:
                    raise damaged(path, f"has {len(line)} values in line {at} instead of {WIDTH}")
                kept = [*line[: len(COLUMNS)], line[-1]]
                if "?" not in kept:
                    rows.append([float(value) for value in kept])
                    hospital.append(number)
    if len(set(hospital)) < len(HOSPITALS):
        raise damaged(paths[0], "or one of its neighbours has no complete row")
    table = np.array(rows)
    columns: dict[str, Column] = {name: table[:, i] for i, name in enumerate(COLUMNS)}
    columns["hospital"] = Words(np.array(hospital), HOSPITALS)
    columns["ill"] = Words((table[:, -1] > 0).astype(np.int64), ("no", "yes"))
    return of_sheet(Sheet(columns, (Origin(str(paths[0].parent), len(rows)),)), RULES, "flamby_heart").dataset


FLAMBY_HEART = Source(
    name="flamby_heart",
    label="Fed-Heart-Disease",
    title="FLamby's Fed-Heart-Disease: the four processed files of UCI",
    kind="real",
    classes=2,
    licence="CC BY 4.0 (UCI)",
    forms=(
        Form(
            tuple(WantedFile(f"processed.{name}.data") for name in HOSPITALS),
            read,
            ("flamby_heart", "heart_disease", "heart+disease", ""),
        ),
    ),
    by_hand="https://archive.ics.uci.edu/dataset/45/heart+disease",
    has_clients=True,
)
