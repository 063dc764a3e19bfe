"""Vectors sealed under keys of one round, whose sums open only when enough clients help: no key is shared, none lasts.

A scheme here needs one more exchange a round than those of `crypto/sealing`, which all clients' common key opens. Of `threshold.py`
clients learn the sums, any of overlapping sets, of `secagg.py` the server, of disjoint groups. Below them who takes part
(`roster.py`) and in which numbers (`circle.py`, `cohort.py`), Shamir's shares and the boxes in which shares travel. `family`
says under which algorithms a scheme runs, as those declare it with `sealing`.
"""

import functools

from covey.names import Registry

SCHEMES = Registry("encryption", __name__, "covey.encryptions.openings", ("generate_keys", "member", "mixer"))


@functools.cache
def of_family(family: str) -> tuple[str, ...]:
    """The names of the schemes for algorithms that declare this family; read from sources, nothing is imported."""
    return tuple(SCHEMES.word(entry) for entry in SCHEMES.entries if entry.declared.get("family", "sums") == family)
