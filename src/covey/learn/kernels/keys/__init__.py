"""Keys of random streams, drawn on a GPU: a round of a thousand clients needs two thousand hashes, which a host computes in longer
than the clients train.
"""
