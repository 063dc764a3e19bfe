"""Whose a shuffled row is, and which rows of two rounds are one client's."""
