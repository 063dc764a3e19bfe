"""Whether a client trained on rows with a property, by a participant that watches or that also manipulates."""
