"""Where clients compute, as the experiment's engine says: in this process, in several, or on Ray."""

from __future__ import annotations

from typing import Any

import torch

from covey.algorithms.contract import Setting
from covey.data.federation import Federation
from covey.engines.dealing import dealt
from covey.engines.hosts.host import Host
from covey.engines.narrow import trains_narrow
from covey.engines.prepare import device_of, make_host
from covey.engines.simulate import Hosts, InProcess, Workers, can_fork, cores, forks_safely
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network

IN_ROWS = (
    "cuda",
)  # where clients run as one: on a CPU a client's vector stays in its caches if they go one after another


def start_engine(
    experiment: Experiment,
    network: Network,
    federation: Federation,
    setting: Setting,
    keys: dict[str, Any],
    replaced: dict[int, Any],
) -> Hosts:
    """Hosts for the clients, as the experiment's engine says: on a GPU one, on a CPU one per core where that can be."""
    device = device_of(experiment)
    elsewhere = experiment.engine.name == "ray"
    on_gpu = device == "cuda" or (elsewhere and experiment.engine.device == "cuda")
    at_once = experiment.engine.clients_at_once or (_wave_on_gpu(network) if on_gpu else 16)
    if elsewhere:
        from covey.engines.ray.engine import RayWorkers  # needed by few: most runs are spread over no cluster

        return RayWorkers(experiment, network, federation, setting, keys, replaced, at_once)

    workers = 1  # a forked process cannot use the parent's GPU
    if device != "cuda" and can_fork():
        workers = experiment.engine.workers or (min(cores(), setting.clients) if forks_safely() else 1)
    one_thread = workers > 1 or torch.get_num_threads() == 1
    own_loops = one_thread and trains_narrow(experiment, network, federation, workers)

    def make() -> Host:
        return make_host(experiment, network, federation, setting, keys, replaced, own_loops)

    if workers == 1:
        return InProcess(make(), at_once, device in IN_ROWS, own_loops)
    owners = dealt(federation.holdings.sizes, workers)
    return Workers(make, workers, owners, at_once, experiment.engine.state_mb * 2**20, own_loops)


def _wave_on_gpu(network: Network) -> int:
    """Clients that a GPU advances together: the more, the less each costs, as long as their models take little of its memory."""
    if not torch.cuda.is_available():  # it is another machine's
        return 512
    room = torch.cuda.get_device_properties(0).total_memory / 64
    return max(512, min(2048, int(room / (4 * network.d))))
