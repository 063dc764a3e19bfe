"""One federated algorithm per file, written as its paper writes it: what the server sends, what one client does, how replies
become the next state. No batching, no processes, no sockets.
"""

from covey.algorithms.fedavg import FedAvg
from covey.algorithms.fedcaprivacy.fedcaprivacy import FedCAPrivacy
from covey.algorithms.feddyn import FedDyn
from covey.algorithms.fedem import FedEM
from covey.algorithms.fedprox import FedProx
from covey.algorithms.fedsoft import FedSoft
from covey.algorithms.ifca import IFCA
from covey.algorithms.local import LocalOnly
from covey.algorithms.mingledpie.mingledpie import MingledPie
from covey.algorithms.pqfed.pqfed import PQFed
from covey.algorithms.routing import Routing
from covey.algorithms.sattler import Sattler
from covey.algorithms.scaffold import Scaffold

ALGORITHMS: dict[str, type] = {
    cls.name: cls
    for cls in (
        LocalOnly,
        FedAvg,
        FedProx,
        Scaffold,
        FedDyn,
        FedEM,
        IFCA,
        Sattler,
        FedSoft,
        MingledPie,
        Routing,
        PQFed,
        FedCAPrivacy,
    )
}
