"""Who belongs to a deployment, and how everybody can tell: keys that are asked for, granted, shown, replaced and taken back.

    records.py        what lies in a party's folder, and how it is read and written
    certificates.py   the federation's own certificate authority, and the keys of Flower's nodes
    requests.py       a silo makes its own keys and asks; who has the authority approves; the silo accepts
    roll.py           whom the server lets in at this moment, and whom no more
    standing.py       until when certificates hold, for owners and operators
    inventory.py      `covey keys inspect`: who holds what, without showing it

What an algorithm's keys are, and who makes a federation's first ones, is in `deploy/keys.py`.
"""
