"""The ways to train that `bench_training.py` compares. Each runs in a process of its own and does a round when told to.

Every way does the same work: FedAvg over all clients, SGD with batches of 50 on float32 pixels in [0, 1]. The rivals are
written the way their own tutorials write it, with the network as textbooks write it.
"""

from __future__ import annotations

import copy
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from turns import Turns

BATCH, LR, CLASSES = 50, 0.01, 10


@dataclass(frozen=True)
class Case:
    """What a contender gets on its command line."""

    model: str
    epochs: int
    clients: int  # the research loop: those it is measured on
    samples: int
    rounds: int
    algorithm: str  # of covey; the rivals run FedAvg
    folder: str  # holds x.npy [clients · samples, 28, 28] uint8 and y.npy


def network(model: str) -> nn.Module:
    """The plain network, with as many parameters as covey's of the same name."""
    if model == "fcnn":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, CLASSES))
    convolutions = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    convolutions += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES)]
    return nn.Sequential(*convolutions, nn.Flatten(), *dense)


@cache
def arrays(folder: str) -> tuple[Any, Any]:
    return np.load(Path(folder, "x.npy"), mmap_mode="r"), np.load(Path(folder, "y.npy"), mmap_mode="r")


@cache
def client_data(folder: str, client: int, samples: int) -> tuple[Tensor, Tensor]:
    """A client's pixels as floats and its labels: made once, like a dataset held in memory."""
    x, y = arrays(folder)
    rows = slice(client * samples, (client + 1) * samples)
    return torch.from_numpy(x[rows] / np.float32(255)).unsqueeze(1), torch.from_numpy(np.array(y[rows]))


def train(model: nn.Module, data: tuple[Tensor, Tensor], epochs: int) -> None:
    """Local training as most code of the field has it."""
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    loader = DataLoader(TensorDataset(*data), batch_size=BATCH, shuffle=True)
    for _ in range(epochs):
        for x, y in loader:
            optimiser.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimiser.step()


def research_loop(case: Case, turns: Turns) -> None:
    model = network(case.model)
    data = [client_data(case.folder, client, case.samples) for client in range(case.clients)]
    for _ in range(case.rounds):
        turns.wait()
        total: dict[str, Tensor] = {}
        for own in data:
            local = copy.deepcopy(model)
            train(local, own, case.epochs)
            for name, value in local.state_dict().items():
                total[name] = total[name] + value if name in total else value.clone()
        model.load_state_dict({name: value / len(data) for name, value in total.items()})
        turns.done()


def covey(case: Case, turns: Turns) -> None:
    from covey.data.dataset import Dataset
    from covey.data.federation import Federation
    from covey.experiment.experiment import Experiment
    from covey.rounds.loop import run

    x, y = (np.array(array) for array in arrays(case.folder))
    dataset = Dataset("pixels", x, y, x[:BATCH], y[:BATCH], tuple(str(c) for c in range(CLASSES)))
    federation = Federation(
        dataset,
        tuple(np.split(np.arange(case.clients * case.samples), case.clients)),
        None,
        y[:BATCH],
        np.full((case.clients, CLASSES), 1 / CLASSES),
    )
    experiment = Experiment.of(
        algorithm=case.algorithm,
        model=case.model,
        clients=case.clients,
        clusters=1,
        training={"rounds": case.rounds + 1, "epochs": case.epochs, "batch_size": BATCH, "lr": LR},
        evaluation={"every": case.rounds + 1},  # never reached: no contender evaluates
        engine={"device": "cpu"},
    )

    def ended(record: dict[str, Any], state: Any) -> None:
        turns.done()
        if record["round"] == case.rounds:
            raise StopIteration
        turns.wait()

    turns.wait()
    run(experiment, federation=federation, callbacks=[ended], quiet=True)


def pfl(case: Case, turns: Turns) -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network(case.model)

        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(self.layers(x), y)

        def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
            return {}

    class Step(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            turns.done()
            if central_iteration + 1 < case.rounds:
                turns.wait()
            return False, Metrics()

    def user(number: int) -> Any:
        return Dataset(raw_data=list(client_data(case.folder, number, case.samples)))

    clients = list(range(case.clients))
    data = FederatedDataset(user, get_user_sampler("minimize_reuse", clients))
    module = Network()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    turns.wait()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=case.rounds,
            evaluation_frequency=10 * case.rounds,
            train_cohort_size=case.clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(local_num_epochs=case.epochs, local_learning_rate=LR, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=None),
        [Step()],
    )


def flower(case: Case, turns: Turns, tuned: bool = True) -> None:
    """Tuned: as many clients at once as there are cores; else as Flower comes."""
    from flwr.app import ArrayRecord, ConfigRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    class Stepped(FedAvg):
        def configure_train(self, server_round: int, *given: Any, **named: Any) -> Any:
            if server_round > 1:
                turns.done()
                turns.wait()
            return super().configure_train(server_round, *given, **named)

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        start = ArrayRecord(network(case.model).state_dict())
        fixed = ConfigRecord(
            {"model": case.model, "epochs": case.epochs, "folder": case.folder, "samples": case.samples}
        )
        Stepped(fraction_evaluate=0.0).start(grid, start, num_rounds=case.rounds, train_config=fixed)
        turns.done()

    config: dict[str, Any] = {"init_args": {"include_dashboard": False, "log_to_driver": False}}
    if tuned:
        config["client_resources"] = {"num_cpus": 1, "num_gpus": 0.0}
        config["init_args"]["num_cpus"] = len(os.sched_getaffinity(0))
    turns.wait()
    run_simulation(server, flower_client(), num_supernodes=case.clients, backend_config=config)


def flower_as_it_comes(case: Case, turns: Turns) -> None:
    flower(case, turns, tuned=False)


def flower_client() -> Any:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def on_train(message: Message, context: Context) -> Message:
        given: Any = message.content["config"]
        model = network(given["model"])
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = client_data(given["folder"], int(context.node_config["partition-id"]), given["samples"])
        train(model, data, given["epochs"])
        metrics = MetricRecord({"num-examples": given["samples"]})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def fedjax(case: Case, turns: Turns) -> None:
    """On its default backend: clients one after another, each in compiled steps; XLA takes as many threads as there are cores."""
    import fedjax as fj
    import haiku as hk
    import jax
    from fedjax.algorithms import fed_avg

    jax.tree_map = jax.tree.map  # as FedJAX 0.0.17, its last, calls what jax has renamed since

    def dense(x: Any) -> Any:
        return hk.Sequential([hk.Flatten(), hk.Linear(200), jax.nn.relu, hk.Linear(CLASSES)])(x)

    def convolutional(x: Any) -> Any:
        pool = hk.MaxPool(2, 2, "VALID")
        layers = [
            hk.Conv2D(6, 5),
            jax.nn.relu,
            pool,
            hk.Conv2D(16, 5, padding="VALID"),
            jax.nn.relu,
            pool,
            hk.Flatten(),
        ]
        layers += [hk.Linear(120), jax.nn.relu, hk.Linear(84), jax.nn.relu, hk.Linear(CLASSES)]
        return hk.Sequential(layers)(x)

    def pixels(client: int) -> Any:
        x, y = client_data(case.folder, client, case.samples)
        return fj.ClientDataset({"x": x.permute(0, 2, 3, 1).numpy(), "y": y.numpy()})

    data = [pixels(client) for client in range(case.clients)]
    model = fj.create_model_from_haiku(
        transformed_forward_pass=hk.transform(
            lambda batch: (dense if case.model == "fcnn" else convolutional)(batch["x"])
        ),
        sample_batch=data[0].all_examples(),
        train_loss=lambda batch, logits: fj.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
    )
    algorithm = fed_avg.federated_averaging(
        fj.model_grad(model),
        fj.optimizers.sgd(LR),
        fj.optimizers.sgd(1.0),
        fj.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=case.epochs),
    )
    key = jax.random.PRNGKey(0)
    state = algorithm.init(model.init(key))
    for _ in range(case.rounds):
        turns.wait()
        key, *own = jax.random.split(key, len(data) + 1)
        clients = [(str(number).encode(), *of) for number, of in enumerate(zip(data, own))]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        turns.done()


CONTENDERS = {
    "covey": covey,
    "research loop": research_loop,
    "flower": flower,
    "flower as it comes": flower_as_it_comes,
    "pfl": pfl,
    "fedjax": fedjax,
}


def main() -> None:
    """`NAME[:ALGORITHM] MODEL EPOCHS CLIENTS SAMPLES ROUNDS FOLDER`; orders on stdin, answers on stdout, all else on stderr."""
    name, model, *numbers, folder = sys.argv[1:]
    turns = Turns(sys.stdin, os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    epochs, clients, samples, rounds = (int(number) for number in numbers)
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # covey and Flower's actors set theirs to one each
    way, _, algorithm = name.partition(":")
    CONTENDERS[way](Case(model, epochs, clients, samples, rounds, algorithm or "fedavg", folder), turns)
