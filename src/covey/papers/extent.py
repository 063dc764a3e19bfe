"""How much of a dataset there is here: what tables set, and what they say of their data, follows it.

One name may stand for a part of a dataset on this machine and for all of it on another. What runs were made on they tell
themselves (`provenance.DATA`), and a table takes none that were made on other data; files from before that was kept are told of
by `STORED_PARTS`.
"""

from __future__ import annotations

from covey.data.sources.store import is_whole
from covey.errors import CoveyError

# Of tables whose runs do not say what they were made on.
STORED_PARTS = {"cifar10": "20,000 of 50,000 training images"}
PARTS = {"cifar10": "20,000 of the 50,000 training images", "cifar100": "13,000 of the 50,000 training images"}
WHOLE = "50,000 training"  # of either, as a run's line has it (`settle.data_line`)


def in_part(dataset: str) -> bool:
    """Whether what is here of a dataset that may be had whole is a part. Where nothing is, tables plan with all of it."""
    return dataset in PARTS and is_whole(dataset) is False


def refuse_other(line: str) -> None:
    """A run on a part where the whole is here now, or the other way round: the table would say the wrong thing of its data."""
    name, _, size = line.partition(": ")
    if name in PARTS and is_whole(name) is not None and size.startswith(WHOLE) == in_part(name):
        held = "a part" if in_part(name) else "the whole"
        raise CoveyError(
            f"a run was made on {size.rpartition(', ')[0]} of {name}, and here is {held} of it: choose another --out, or set "
            "COVEY_DATA to where those data are"
        )


def of_part(dataset: str, words: str = "") -> list[str]:
    """A remark on a part, with what it means for the table; none where the data are whole."""
    return [f"Our copy has {PARTS[dataset]}{words}."] if in_part(dataset) else []
