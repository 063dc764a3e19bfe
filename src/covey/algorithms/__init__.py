"""One federated algorithm per file, written as its paper writes it: what the server sends, what one client does, how replies
become the next state. No batching, no processes, no sockets.
"""

from covey.names import Registry

ALGORITHMS = Registry(
    "algorithm", __name__, "covey.algorithms", ("name", "start", "broadcast", "client", "aggregate", "use")
)
