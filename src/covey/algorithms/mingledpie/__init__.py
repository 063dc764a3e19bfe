"""MingledPie (NDSS 2025): the algorithm, and how clients rebuild cluster models from mingled sums."""
