"""Deployment: the same algorithms, clients and messages as in the simulation, with every party a process of its own.

    agreed.py         what all parties know before round 1, the same bytes for each
    keys.py           who holds which keys: making them, adding a silo, loading a party's folder
    certificates.py   the federation's own certificate authority, and the keys of Flower's nodes
    holdings.py       `covey keys inspect`: who holds what, without showing it

Beside these: Flower as the transport, and the processes of the coordinator, a silo and a further server. Nothing here knows
an algorithm, and no algorithm knows that it is deployed.
"""
