"""The table [data] of an experiment: how one's own data are read. What is left out is guessed, and the guess is said."""

from __future__ import annotations

from dataclasses import dataclass

from covey.errors import CoveyError, meant

TABLES = (".csv", ".tsv", ".csv.gz", ".parquet")  # endings of the files that are tables
KINDS = ("", "image", "binary", "real", "tokens")
TASKS = ("", "classes", "labels", "numbers")
STANDARDISE = ("all", "clients", "none")
MISSING = ("indicator", "mean", "refuse")


@dataclass(frozen=True)
class Rules:
    """Of tables; arrays and images are taken as they are and know `test`, `task`, `kind` and `min_rows` only."""

    label: str | tuple[str, ...] = ""  # the column to predict, or several; "": label, target, class or y
    client: str = ""  # the column that says whose a row is; "": client or silo, else nobody's; "none": nobody's
    test: float | str = (
        0.1  # the share held back of every client (of every class, without clients), or a column that says it
    )
    task: str = ""  # classes, labels (several at once, each 0 or 1) or numbers; "": by the labels
    kind: str = ""  # of arrays: image (0 to 255), binary (0 or 1), real, tokens (0 is padding); "": by their type
    drop: tuple[str, ...] = ()  # columns that are not looked at
    categories: tuple[str, ...] = ()  # columns of numbers that are names of something
    missing: str = "indicator"  # a missing number is the mean, and a further column says so; mean: without; refuse
    standardise: str = "all"  # with mean and deviation of all training rows; clients: of each client's own; none
    most_values: int = 100  # of a category
    min_rows: int = 0  # clients with fewer rows are left out; 0: one that cannot be trained and tested is refused
    fingerprint: str = ""  # other data than these are refused; a run's own config.toml has it

    def __post_init__(self) -> None:
        for name, known in (("task", TASKS), ("kind", KINDS), ("standardise", STANDARDISE), ("missing", MISSING)):
            value = getattr(self, name)
            if value not in known:
                words = ", ".join(word or "(nothing)" for word in known)
                raise CoveyError(f"data.{name} is {value!r}: choose one of {words}{meant(value, known)}")
        if not isinstance(self.test, str) and not 0 < self.test < 1:
            raise CoveyError(
                f"data.test is {self.test:g}: a share between 0 and 1, or the name of a column that says it"
            )
        if self.min_rows < 0 or self.most_values < 2:
            raise CoveyError("data.min_rows must not be negative, and data.most_values must be at least 2")

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns to predict, as far as they are told."""
        return ((self.label,) if self.label else ()) if isinstance(self.label, str) else tuple(self.label)
