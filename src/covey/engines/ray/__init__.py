"""Clients on Ray workers, on this machine or a cluster. Nothing outside this folder imports ray."""
