"""One file for each paper: what its page says beside the figures, and which figures it has."""
