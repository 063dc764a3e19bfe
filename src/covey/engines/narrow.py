"""Whether a run's CPU processes, of one thread each, train by covey's own loops for narrow convolutions, `narrow.py` of
`learn/kernels/convolutions`.
"""

from __future__ import annotations

import numpy as np

from covey.data.federation import Federation
from covey.engines.prepare import device_of
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.learn.kernels.convolutions import narrow
from covey.learn.kernels.convolutions.pooling import is_narrow
from covey.learn.objective import activations

# Activations of a process's samples, over the whole run, of which they save 1.4 s (batches of 10) to 3.5 s (of 50): to read them
# takes .7 s in every run, to compile them 2.2, once on a machine.
PAYS = 1.5e9


def trains_narrow(experiment: Experiment, network: Network, federation: Federation, workers: int) -> bool:
    """Where the network is one that they are faster for, its clients take plain steps, and the run is so long that they pay. Then
    they are compiled here: workers that are forked have them.
    """
    engine, training, sizes = experiment.engine, experiment.training, federation.holdings.sizes
    on_gpus = device_of(experiment) == "cuda" or engine.device == "cuda"  # Ray's are other machines'
    if on_gpus or engine.kernel not in ("auto", "loop"):
        return False
    if getattr(experiment.defence, "clips_samples", False):  # whose gradients are torch's
        return False
    if not (network.plain and is_narrow(network.architecture)):
        return False
    typical = int(np.median(sizes))
    batch = min(training.batch_size or typical, typical)  # of clients with fewer samples every batch is all they have
    in_round = training.steps * batch * len(sizes) if training.steps else training.epochs * int(sizes.sum())
    seen = training.rounds * experiment.participation.share * in_round / workers
    return narrow.fills(batch) and seen * activations(network) >= PAYS and narrow.is_here()
