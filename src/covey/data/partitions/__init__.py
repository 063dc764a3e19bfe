"""Ways to cut a dataset over clients, one file each."""
