"""Vectors sealed so that a server can add them without a key: one interface, a module per scheme, the lattice below them."""
