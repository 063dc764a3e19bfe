"""Datasets by name: what each is, in which forms it lies on disk, how it is fetched and read."""
