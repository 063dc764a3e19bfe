"""Which categories the clients of a cluster hold, from successive broadcasts."""
