"""Client-level DP: each client's whole contribution clipped, the sum noised; priced in `covey.ledger.clients`."""
