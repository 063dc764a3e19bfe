"""Clustered methods made for private federations: clusters that keep a least size, clusters found under noise. One file each."""
