"""What algorithms share whose server adds up what it cannot read: sealing vectors, and opening sums alone or together."""
