"""Vectors sealed so that a server can add them without a key: one interface, a module per scheme, the lattice below them."""

from covey.names import Registry

SCHEMES = Registry("encryption", __name__, "covey.encryptions.sums", ("generate_keys", "sealer", "mixer"))
