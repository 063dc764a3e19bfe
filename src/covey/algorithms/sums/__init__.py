"""What algorithms share whose round is a sum: what a client adds, sealing vectors, and opening sums alone or together."""
