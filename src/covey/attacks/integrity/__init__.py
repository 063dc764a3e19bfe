"""Whether one participant can spoil what the others are given."""
