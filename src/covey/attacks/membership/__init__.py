"""Whether a sample was among those of a client: from its noised features, or from the loss of a model."""
