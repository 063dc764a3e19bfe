"""Real cryptography: sealing of vectors (CKKS, BFV, Paillier), sums that open together, fuzzy message detection, signatures, keys.

From maintained libraries where they have it; what is written here (`transform.py`, `draws.py`, `sealing/fresh.py`, `openings`) is
tested against them. Key material comes from the operating system only.
"""
