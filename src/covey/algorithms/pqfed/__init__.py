"""PQFed: selection of collaborators by noised features, and the training of the groups under another algorithm."""
