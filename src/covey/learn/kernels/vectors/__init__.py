"""Arithmetic on the vectors of many clients on a GPU, where every pass over its memory counts."""
