"""Mechanisms that add noise, and the ledger that prices what they spent. No attack lives here.

A defence wraps a client's coroutine: it sees every training that the client asks for, may change the request (clipping in a
training plan) or its result (noise on a trained model), and records what it spent with `me.spend`. So any defence works
under any algorithm, and no algorithm knows about it. First events say what happened (`covey.ledger`), then accountants price it.
"""

from covey.names import Registry

DEFENCES = Registry("defence", __name__, "covey.defences", ("name", "train"))
