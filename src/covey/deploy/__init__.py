"""Deployment: the same algorithms, clients and messages as in the simulation, with every party a process of its own.

    agreed.py         what all parties know before round 1, the same bytes for each
    keys.py           who holds which keys: making them, adding a silo, loading a party's folder
    membership/       requests, invitations, revocations, certificates: who belongs to it, and until when

    letters.py        what parties send each other: signed, addressed, good for one answer
    transport.py      how letters travel: what is asked of a carrier, and one within a process
    session.py        who is there, and the letters to and from them
    coordinator.py    the algorithm's server over silos that come, go, dawdle and err
    course/           its rounds: asking, admitting, waiting; whom it doubts, and who is at work on older models
    silo.py           one client with its own data, memory and randomness; model.py: what it takes home
    second_server.py  where an algorithm has one
    flower/           all that touches Flower: it carries letters, and no code
    serve.py          the three commands

Nothing here knows an algorithm, and no algorithm knows that it is deployed.
"""

from covey.deploy.model import SiloModel, load_model

__all__ = ["SiloModel", "load_model"]
