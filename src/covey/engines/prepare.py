"""From an experiment to what the first round needs: the federation, the network, the setting, a host."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey import roles
from covey.algorithms.contract import Setting, declaration
from covey.data.dataset import Dataset
from covey.data.federation import Federation, check, who
from covey.engines.evaluation import Examiner
from covey.engines.hosts.host import Host
from covey.engines.listing import listed, places
from covey.engines.settle import cut
from covey.engines.spill import Spill
from covey.errors import CoveyError, CoveyWarning
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.learn.initial import initial, personal_mask
from covey.learn.kernels.kernels import fallback
from covey.learn.machine import Machine
from covey.learn.samples import Samples
from covey.learn.work import Job, Plan, Train
from covey.metrics.metric import chosen
from covey.randomness import generator, key

UNDERSTATED = (
    "clients keep their model's running statistics (layers.buffers = 'local'), and the attacks predict with those of a fresh "
    "model: a stronger attacker would estimate them, so what these attacks do not find here says little"
)


ALIKE = (
    "all cluster models begin as the same one, so clients that choose between them cannot tell them apart and may all stay in one: "
    "set start.common = false, or keep start.pretrain_epochs with a partition that has public samples of as many clusters"
)


def prepare(experiment: Experiment, given: Federation | None = None) -> tuple[Federation, Network, Setting]:
    """Data cut over clients, the network for it, and what everyone agrees on before the first round."""
    federation = check(given) if given is not None and given.clients else cut(experiment, given)
    network = network_of(experiment, federation.dataset)
    return federation, network, agree(experiment, federation, network)


def refuse_phases(experiment: Experiment, federation: Federation, attacked: bool) -> None:
    """What a federation that changes during a run cannot be combined with; a change that the run does not reach is said."""
    if federation.phases and attacked:
        raise CoveyError(
            f"partition '{experiment.partition.name}' changes clusters during the run, and attacks are scored against one truth: "
            "leave the attacks out, or choose a partition that stays"
        )
    if federation.phases and experiment.engine.name == "ray":
        raise CoveyError(
            f"partition '{experiment.partition.name}' changes who holds what during the run, which engine.name = 'ray' does not "
            "know: use engine.name = 'simulate'"
        )
    last = experiment.training.rounds  # its record tests on what follows it
    late = [phase.first for phase in federation.phases if phase.first > last + 1]
    if late:
        warnings.warn(
            f"partition '{experiment.partition.name}' changes who holds what from round {late[0]} on, which this run of {last} "
            "rounds does not reach: more rounds, or an earlier change, would show it",
            CoveyWarning,
            stacklevel=2,
        )


def network_of(experiment: Experiment, dataset: Dataset) -> Network:
    """The experiment's model for a dataset; what cannot be trained is refused here."""
    network = Network.of(experiment.model, dataset, experiment.training.loss, experiment.layers.buffers)
    if line := fallback(experiment.engine.kernel, network, torch.device(device_of(experiment))):
        warnings.warn(line, CoveyWarning, stacklevel=2)
    if experiment.attacks and network.local:
        warnings.warn(UNDERSTATED, CoveyWarning, stacklevel=2)
    return network


def agree(experiment: Experiment, federation: Federation, network: Network) -> Setting:
    """What everyone knows before the first round; of the federation only its public samples and its size count."""
    _check_statistics(experiment, network)
    layers = experiment.layers.personal or declaration(experiment.algorithm).personal_layers
    personal = personal_mask(network, layers) if layers else torch.ones(network.d, dtype=torch.bool)
    start = _start(experiment, federation, network)
    # Where the partition makes another number of clusters there are no pre-trained starts, which nobody would guess.
    if experiment.true_clusters and len(start) > 1 and _chooses(experiment) and bool((start == start[0]).all()):
        warnings.warn(ALIKE, CoveyWarning, stacklevel=2)
    return setting_of(experiment, len(federation.clients), start, personal, public_samples(network, federation))


def _chooses(experiment: Experiment) -> bool:
    """Whether clients are sent all models and name one of them."""
    declared = declaration(experiment.algorithm)
    sent = any(roles.carries(kind, roles.Models) for kind in declared.sends)
    return sent and any(roles.carries(kind, roles.Identity) for kind in declared.replies)


def _check_statistics(experiment: Experiment, network: Network) -> None:
    """Running statistics are averaged like parameters, and an extrapolated variance is none."""
    declared = declaration(experiment.algorithm)
    shared = [name for name in network.facts.running if name in network.shapes]
    if shared and not declared.averages:
        raise CoveyError(
            f"{declared.label} hands out models that are no averages of what clients trained, which '{shared[0]}' of model "
            f"'{network.title}' does not survive: set layers.buffers = 'local', or use GroupNorm in place of BatchNorm"
        )


def setting_of(
    experiment: Experiment, clients: int, start: Tensor, personal: Tensor, public: tuple[Tensor, Tensor] | None
) -> Setting:
    device = device_of(experiment)
    return Setting(
        seed=experiment.seed,
        clients=clients,
        clusters=experiment.clusters,
        rounds=experiment.training.rounds,
        plan=experiment.training.plan(1),
        start=start.to(device),
        personal=personal.to(device),
        encryption=experiment.encryption,
        common_start=experiment.start.common,
        public=public,
    )


def public_samples(network: Network, federation: Federation) -> tuple[Tensor, Tensor] | None:
    """The samples that no client holds, as the network reads them, and their labels."""
    if not federation.public:
        return None
    rows, dataset = np.concatenate(federation.public), federation.dataset
    samples = Samples(network, dataset.x_train[rows], dataset.y_train[rows], torch.device("cpu"))
    every = torch.arange(len(rows))
    return samples.inputs(every), samples.labels(every)


def _start(experiment: Experiment, federation: Federation, network: Network) -> Tensor:
    """The initial cluster models [k, d]: random, then pre-trained on the public samples of each cluster."""
    start, k = experiment.start, experiment.clusters
    if not start.common and k > 1 and getattr(network.spec, "given", False):
        raise CoveyError(
            "start.common = false wants another random start for each cluster, and the model was given with its values: "
            "give its class or a function that builds it, or leave start.common as it is"
        )
    own = [initial(network, key(experiment.seed, "initial", j)) for j in range(1 if start.common else k)]
    begin = own * k if start.common else own
    if start.pretrain_epochs == 0 or len(federation.public) != k:
        return torch.stack(begin)
    plan = Plan(
        lr=start.pretrain_lr or experiment.training.lr,
        epochs=start.pretrain_epochs,
        batch_size=start.pretrain_batch,
    )
    machine = _machine(experiment, network, federation)
    jobs = [
        Job(torch.from_numpy(federation.public[j]), key(experiment.seed, "pretrain", j), Train(begin[j], plan))
        for j in range(k)
    ]
    return torch.stack([model.cpu() for model in machine.compute(jobs)])


def make_host(
    experiment: Experiment,
    network: Network,
    federation: Federation,
    setting: Setting,
    keys: dict[str, Any],
    replaced: dict[int, Any],
    own_loops: bool = False,
) -> Host:
    return Host(
        experiment.algorithm,
        setting,
        federation,
        _machine(experiment, network, federation, own_loops),
        _examiner(experiment, network, federation),
        keys,
        experiment.defence,
        experiment.exposure,
        replaced=replaced,
        compression=experiment.compression,
        spill=Spill(experiment.engine.state_mb * 2**20),
        unlabelled=None if experiment.participation.newcomer_labels else experiment.participation.unlabelled,
    )


def _machine(experiment: Experiment, network: Network, federation: Federation, own_loops: bool = False) -> Machine:
    dataset = federation.dataset
    return Machine(
        network,
        dataset.x_train,
        dataset.y_train,
        device=device_of(experiment),
        kernel=experiment.engine.kernel,
        arithmetic=arithmetic_of(experiment),
        own_loops=own_loops,
    )


def _examiner(experiment: Experiment, network: Network, federation: Federation) -> Examiner:
    dataset, limit = federation.dataset, experiment.evaluation.samples
    rows, groups, apart = np.arange(len(dataset.y_test)), federation.test_groups, None
    if federation.tested_apart:  # of those who are evaluated alone
        apart = listed(experiment, federation)
        groups = places(apart, groups)
        rows = np.flatnonzero(groups >= 0)
    if 0 < limit < len(rows):
        rows = np.sort(generator(experiment.seed, "examination").permutation(rows)[:limit])
        _refuse_untested(federation, rows, limit, apart)
    machine = Machine(
        network,
        dataset.x_test,
        dataset.y_test,
        device=device_of(experiment),
        kernel=experiment.engine.kernel,
        arithmetic=arithmetic_of(experiment),
    )
    metrics = chosen(network.task, experiment.evaluation.metrics)
    count = federation.distributions.shape[1] if apart is None else len(apart)
    return Examiner(machine, rows, groups, count, metrics, apart)


def _refuse_untested(
    federation: Federation, rows: NDArray[np.int64], limit: int, apart: NDArray[np.int64] | None
) -> None:
    """A client of which no test sample is left would score 0."""
    tested = np.bincount(federation.test_groups[rows], minlength=federation.distributions.shape[1]) > 0
    if apart is None:
        bare = [i for i, share in enumerate(federation.distributions) if not share[tested].any()]
    else:
        bare = apart[~tested[apart]].tolist()
    if bare:
        raise CoveyError(
            f"evaluation.samples = {limit} leaves {len(bare)} of {len(federation.clients)} clients without a test sample, first "
            f"{who(federation, bare[0])}: raise it, or set 0 for all {len(federation.test_groups)}"
        )


def arithmetic_of(experiment: Experiment) -> str:
    """What this process computes in: who drives Ray workers leaves theirs to them."""
    return "ieee" if experiment.engine.name == "ray" else experiment.engine.computes_in


def device_of(experiment: Experiment) -> str:
    """Where this process computes: 'cpu' or 'cuda'. What drives Ray workers needs no GPU, whatever they have."""
    if experiment.engine.name == "ray":
        return "cpu"
    wanted = experiment.engine.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise CoveyError("engine.device is 'cuda' but torch finds no CUDA device here; use 'auto' or 'cpu'")
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return wanted
