"""How far simulators go as federations grow: tiny rounds of 100 clients out of 10² … 10⁶, by covey, Apple's pfl and Flower.

    python benchmarks/bench_crowd.py [--tools covey,pfl,flower] [--sizes 100,1000,…] [--limit 120] [--turns 3] [--json FILE]

Every client holds 10 samples of 8 × 8 pixels (noise), the network has 15,010 parameters, one local epoch in batches of 10, no
evaluation; 100 clients, drawn anew, take part in each of 4 rounds. Every case is a fresh process with a time limit:

    start    from the first line of the program to the end of the first round, without making the data
    round    mean of the three rounds that follow
    memory   the most that the process and those it started hold together (proportional set size), without the pages of the
             samples' file, which all three map

Tools take turns; figures are medians over the turns, with the smallest and the largest.

A tool is not asked for a larger federation once it has run into the limit. Flower runs as it comes but for its actors, one per
core; its `num_supernodes` are all clients.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES, SIDE, CLASSES, COHORT, ROUNDS, LR = 10, 8, 10, 100, 4, 0.1
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def samples(folder: str) -> tuple[Any, Any]:
    return np.load(Path(folder, "x.npy"), mmap_mode="r"), np.load(Path(folder, "y.npy"), mmap_mode="r")


def said() -> None:
    """A round has ended."""
    print(json.dumps(time.time()), flush=True)


def network() -> Any:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 200), nn.ReLU(), nn.Linear(200, CLASSES))


def client_data(folder: str, number: int) -> tuple[Any, Any]:
    import torch

    x, y = samples(folder)
    rows = slice(number * SAMPLES, (number + 1) * SAMPLES)
    return torch.from_numpy(x[rows].astype(np.float32) / 16), torch.from_numpy(y[rows].astype(np.int64))


def covey(clients: int, folder: str) -> None:
    from covey.data.dataset import Dataset
    from covey.data.federation import Federation
    from covey.data.holdings import Holdings
    from covey.experiment.experiment import Experiment
    from covey.rounds.loop import run

    x, y = samples(folder)
    dataset = Dataset("noise", x, y, x[:100].copy(), y[:100].copy(), tuple(map(str, range(CLASSES))))
    holdings = Holdings.cut(np.arange(len(y)), np.full(clients, SAMPLES))
    federation = Federation(dataset, holdings, None, dataset.y_test, np.full((clients, CLASSES), 1 / CLASSES))
    experiment = Experiment.of(
        algorithm="fedavg",
        model="fcnn",
        clients=clients,
        clusters=1,
        training={"rounds": ROUNDS + 1, "epochs": 1, "batch_size": SAMPLES, "lr": LR},
        participation={"share": COHORT / clients},
        evaluation={"every": ROUNDS + 1},  # never reached
        engine={"device": "cpu"},
    )

    def ended(record: dict[str, Any], state: Any) -> None:
        said()
        if record["round"] == ROUNDS:
            raise StopIteration

    with contextlib.suppress(StopIteration):
        run(experiment, federation=federation, callbacks=[ended], quiet=True)


def pfl(clients: int, folder: str) -> None:
    import torch
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
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network()

        def loss(self, x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(self.layers(x), y)

        def metrics(self, x: Any, y: Any) -> dict[str, Any]:
            return {}

    class Step(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            said()
            return False, Metrics()

    def user(number: int) -> Any:
        return Dataset(raw_data=list(client_data(folder, number)))

    data = FederatedDataset(user, get_user_sampler("random", list(range(clients))))
    module = Network()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=10 * ROUNDS,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=SAMPLES),
        NNEvalHyperParams(local_batch_size=None),
        [Step()],
    )


def flower(clients: int, folder: str) -> None:
    from flwr.app import ArrayRecord, ConfigRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    class Stepped(FedAvg):
        def aggregate_train(self, *given: Any, **named: Any) -> Any:
            result = super().aggregate_train(*given, **named)
            said()
            return result

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = Stepped(fraction_train=COHORT / clients, fraction_evaluate=0.0, min_train_nodes=COHORT)
        start = ArrayRecord(network().state_dict())
        strategy.start(grid, start, num_rounds=ROUNDS, train_config=ConfigRecord({"folder": folder}))

    cores = len(os.sched_getaffinity(0))
    config: dict[str, Any] = {
        "init_args": {"include_dashboard": False, "log_to_driver": False, "num_cpus": cores},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, flower_client(), num_supernodes=clients, backend_config=config)


def flower_client() -> Any:
    import torch
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def on_train(message: Message, context: Context) -> Message:
        given: Any = message.content["config"]
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = client_data(given["folder"], int(context.node_config["partition-id"]))
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
        metrics = MetricRecord({"num-examples": SAMPLES})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


TOOLS = {"covey": covey, "pfl": pfl, "flower": flower}


def held(pid: int, folder: str) -> float:
    """MB of a process and all that it started, shared pages counted once and those of files in this folder not at all; processes
    that end meanwhile are left out.
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            children.setdefault(int(entry.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(entry.parent.name))
    total, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        with contextlib.suppress(OSError):
            total += pages(Path(f"/proc/{one}/smaps").read_text(), folder) / 1024
    return total


def pages(smaps: str, folder: str) -> int:
    """KB of the mappings that /proc tells of, but for those of files in this folder."""
    total, counts = 0, True
    for line in smaps.splitlines():
        word = line.split(" ", 1)[0]
        if not word.endswith(":"):  # a mapping's own line: where, and of which file
            counts = folder not in line
        elif word == "Pss:" and counts:
            total += int(line.split()[1])
    return total


def measure(tool: str, clients: int, folder: str, limit: float) -> dict[str, Any]:
    """One case; `stopped` says why it has no figures."""
    begin = time.time()
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as answers:
        process = subprocess.Popen(
            [sys.executable, __file__, "--one", tool, str(clients), folder],
            stdout=answers,
            stderr=log,
            env=os.environ | QUIET,
            start_new_session=True,
        )
        peak = 0.0
        while process.poll() is None and time.time() - begin < limit:
            peak = max(peak, held(process.pid, folder))
            time.sleep(0.5)
        in_time = process.poll() is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
        process.wait()
        answers.seek(0)
        log.seek(0)
        ends = [float(line) for line in answers.read().decode().splitlines() if line[:1].isdigit()]
        last = log.read().decode(errors="replace").strip().splitlines()[-1:]
    row: dict[str, Any] = {"tool": tool, "clients": clients, "rounds": len(ends), "peak_mb": peak}
    if ends:
        row["start_s"] = ends[0] - begin
    if len(ends) == ROUNDS:
        row["round_s"] = (ends[-1] - ends[0]) / (ROUNDS - 1)
    else:
        why = f"after {len(ends)} of {ROUNDS} rounds" if ends else "before its first round ended"
        row["stopped"] = f"it failed: {''.join(last)[:200]}" if in_time else f"the limit of {limit:g} s, {why}"
    return row


def summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of several turns: medians, smallest and largest; the last turn's word where one was stopped."""
    row = dict(turns[-1]) | {"turns": len(turns)}
    for name in ("start_s", "round_s", "peak_mb"):
        values = [turn[name] for turn in turns if name in turn]
        if values and name in row:
            row |= {name: statistics.median(values), f"{name}_range": [min(values), max(values)]}
    return row


def shown(row: dict[str, Any]) -> str:
    figures = "".join(
        f"{row[name]:{width}.2f}" if name in row else f"{'':{width}}"
        for name, width in (("start_s", 10), ("round_s", 10))
    )
    return f"{row['tool']:8}{row['clients']:>10,}{figures}{row['peak_mb']:10.0f}  {row.get('stopped', '')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="covey,pfl,flower")
    parser.add_argument("--sizes", default="100,1000,10000,100000,1000000")
    parser.add_argument("--limit", type=float, default=120, help="seconds of a case")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # what a fresh process does
    arguments = parser.parse_args()
    if arguments.one:
        tool, clients, folder = arguments.one
        TOOLS[tool](int(clients), folder)
        return
    rows: list[dict[str, Any]] = []
    load = os.getloadavg()[0]
    print(f"{COHORT} clients a round, load {load:.1f}\n{'':8}{'clients':>10}{'start s':>10}{'round s':>10}{'MB':>10}")
    beyond: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for clients in (int(size) for size in arguments.sizes.split(",")):
            rng = np.random.default_rng(0)
            np.save(Path(folder, "x.npy"), rng.integers(0, 17, (clients * SAMPLES, SIDE, SIDE), dtype=np.uint8))
            np.save(Path(folder, "y.npy"), rng.integers(0, CLASSES, clients * SAMPLES))
            asked = [tool for tool in arguments.tools.split(",") if tool not in beyond]
            turns: dict[str, list[dict[str, Any]]] = {tool: [] for tool in asked}
            for _ in range(arguments.turns):
                for tool in asked:
                    if tool not in beyond:
                        turns[tool].append(measure(tool, clients, folder, arguments.limit))
                        if "stopped" in turns[tool][-1]:
                            beyond.add(tool)
            for tool in asked:
                rows.append(summary(turns[tool]))
                print(shown(rows[-1]), flush=True)
    if arguments.json:
        about = {"cohort": COHORT, "rounds": ROUNDS, "limit": arguments.limit, "load": load, "rows": rows}
        Path(arguments.json).write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
