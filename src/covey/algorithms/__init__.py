"""One federated algorithm per file, written as its paper writes it: what the server sends, what one client
does, how replies become the next state. No batching, no processes, no sockets.
"""
