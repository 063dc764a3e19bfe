"""One federated algorithm per file, written as its paper writes it: what the server sends, what one client does, how replies
become the next state. No batching, no processes, no sockets.
"""

from covey.algorithms.fedavg import FedAvg
from covey.algorithms.ifca import IFCA
from covey.algorithms.local import LocalOnly

ALGORITHMS: dict[str, type] = {cls.name: cls for cls in (LocalOnly, FedAvg, IFCA)}
