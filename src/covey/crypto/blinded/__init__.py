"""Rows sealed for one server and blinded by another: one interface, a module per scheme."""

from covey.names import Registry

SCHEMES = Registry("encryption", __name__, "covey.encryptions.rows", ("issue", "sealer", "opener"))
