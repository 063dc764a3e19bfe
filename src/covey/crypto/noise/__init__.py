"""Noise that protects somebody: exact discrete distributions from a cryptographic generator, and where a client's noise
comes from. What a noise is worth is the ledger's business, how much is needed the defence's.

`stream` gives secret words, `discrete` turns words into numbers, `source` puts them on vectors.
"""
