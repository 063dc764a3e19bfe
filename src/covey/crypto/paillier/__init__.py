"""Paillier encryption of integers, and of vectors packed into them."""
