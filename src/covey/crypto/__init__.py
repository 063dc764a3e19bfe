"""Real cryptography from maintained libraries: sealing of vectors (CKKS, BFV, Paillier), fuzzy message
detection, signatures, keys. Key material comes from the operating system only.
"""
