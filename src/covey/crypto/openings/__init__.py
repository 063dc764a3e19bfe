"""Vectors sealed under keys of one round, whose sums open only when enough clients help: no key is shared, none lasts.

A scheme here needs one more exchange a round than those of `crypto/sealing`, which all clients' common key opens.
`threshold.py` is the scheme; below it the ring, its transform, what is drawn at random, Shamir's shares and the boxes
in which shares travel.
"""

from covey.names import Registry

SCHEMES = Registry("encryption", __name__, "covey.encryptions.openings", ("generate_keys", "member", "mixer"))
