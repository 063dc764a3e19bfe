"""Heart disease in four hospitals: Cleveland, Hungary, Switzerland and Long Beach.

Janosi, Steinbrunn, Pfisterer, Detrano: Heart Disease, UCI Machine Learning Repository, 1989, doi:10.24432/C52P4X, CC BY 4.0; as a
federation, FLamby's Fed-Heart-Disease (du Terrail et al., NeurIPS 2022), whose columns and split are others.

What we do with the file, which is as it came: ill is `num` > 0; a cholesterol or a blood pressure of 0, which nobody has, is
missing (all of Switzerland's); patient 304 is Hungary's, as in UCI's own files, though filed under Cleveland. A quarter of every
hospital's patients is held back. Numbers are standardised with each hospital's own mean and deviation: nothing is shared for it.
"""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np

from covey.data.dataset import Dataset
from covey.data.own.read import of_sheet
from covey.data.own.rules import Rules
from covey.data.own.sheet import Column, Origin, Sheet, Words
from covey.data.sources.files import Source

NAME = "heart_disease.csv"
NUMBERS = ("age", "trestbps", "chol", "thalch", "oldpeak", "ca")
CATEGORIES = ("Gender", "cp", "fbs", "restecg", "exang", "slope", "thal")
IMPOSSIBLE_ZERO = ("chol", "trestbps")
MISFILED = {"304": "Hungary"}  # id -> hospital
RULES = Rules(label="heart disease", client="hospital", test=0.25, standardise="clients")


def heart() -> Dataset:
    """920 patients of four hospitals, with the hospital as the client."""
    text = files(__package__).joinpath(NAME).read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    columns: dict[str, Column] = {name: _numbers(name, [row[name] for row in rows]) for name in NUMBERS}
    columns |= {name: _words([row[name] for row in rows]) for name in CATEGORIES}
    columns["hospital"] = _words([MISFILED.get(row["id"], row["dataset"]) for row in rows])
    columns["heart disease"] = _words(["yes" if int(row["num"]) > 0 else "no" for row in rows])
    return of_sheet(Sheet(columns, (Origin(NAME, len(rows)),)), RULES, "heart").dataset


def _numbers(name: str, texts: list[str]) -> Column:
    values = np.array([float(text) if text else np.nan for text in texts])
    return np.where(values == 0, np.nan, values) if name in IMPOSSIBLE_ZERO else values


def _words(texts: list[str]) -> Column:
    names = tuple(dict.fromkeys(text for text in texts if text))
    number = {name: i for i, name in enumerate(names)} | {"": -1}
    return Words(np.array([number[text] for text in texts], np.int64), names)


HEART = Source(
    name="heart",
    label="Heart disease",
    title="heart disease in four hospitals, embedded",
    kind="real",
    classes=2,
    licence="CC BY 4.0 (UCI, Janosi, Steinbrunn, Pfisterer and Detrano)",
    make=heart,
    has_clients=True,
)
