"""Reconstruction of samples from uploads: in closed form from a first linear layer, and by optimisation."""
