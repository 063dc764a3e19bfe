"""Fewer bytes on the way up: what a client sends of its models and changes is packed, and the server unpacks it.

A compression packs one vector. Which vectors of a reply are packed, against which model a client's own is held, and what of it was
not sent yet (error feedback), is the same for all: `compression/replies.py`. Compression is no protection: see docs/compression.md.
"""

from covey.names import Registry

COMPRESSIONS = Registry("compression", __name__, "covey.compressions", ("name", "encode", "decode"))
