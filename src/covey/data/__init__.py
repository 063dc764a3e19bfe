"""Where samples come from and who holds them: sources (one reader per dataset), partitions (pure functions of
labels, parameters and a seed) and the federation they make. No training, no models.
"""
