"""Whether a run's CPU processes, of one thread each, train by covey's own loops for narrow convolutions, `narrow.py` of
`learn/kernels/convolutions`.
"""

from __future__ import annotations

import numpy as np

from covey.data.federation import Federation
from covey.engines.prepare import device_of
from covey.engines.simulate import cores
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.learn.kernels.convolutions import narrow
from covey.learn.kernels.convolutions.pooling import is_narrow
from covey.learn.objective import activations

# Activations of a process's samples, over the whole run, of which they save at least 2 s: to compile them takes as long, once on a
# machine, and to read them .7.
PAYS = 1.5e9


def trains_narrow(experiment: Experiment, network: Network, federation: Federation) -> bool:
    """Where the network is one that they are faster for, and the run so long that they pay. Then they are compiled here: workers
    that are forked have them.
    """
    engine, training, sizes = experiment.engine, experiment.training, federation.holdings.sizes
    if device_of(experiment) != "cpu" or engine.kernel not in ("auto", "loop"):
        return False
    if not (network.plain and is_narrow(network.architecture)):
        return False
    batch = training.batch_size or int(np.median(sizes))
    in_round = training.steps * batch * len(sizes) if training.steps else training.epochs * int(sizes.sum())
    seen = training.rounds * experiment.participation.share * in_round / (engine.workers or cores())
    return narrow.fills(batch) and seen * activations(network) >= PAYS and narrow.is_here()
