"""Mechanisms that add noise, and the ledger that prices what they spent. No attack lives here.
"""
