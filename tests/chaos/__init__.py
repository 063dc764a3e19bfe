"""A deployment of real processes, and all that can happen to it: parties that are killed or stand still, wires that are cut,
refuse, swallow, forget or dawdle, a server that moves.

    wire.py         the network between one silo and the coordinator
    federation.py   the parties, their wires, and how long they take to find each other
    cases.py        one trouble at a time, with how long it took: `python -m chaos cases`
    storm.py        many, at random by a seed; the models must be those of an undisturbed run, bit for bit
    soak.py         none, for long: memory, handles and disk must stay flat
"""
