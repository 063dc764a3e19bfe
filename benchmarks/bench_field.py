"""What methods of the field cost: whole rounds beside FedAvg's for the same local work, and one-shot clusterings of many clients.

    python benchmarks/bench_field.py [--quick] [--device cuda] [--clients 120] [--many 10000] [--json FILE]

Rounds: clients of 500 samples (28×28 noise), FCNN 784–200–10, one local epoch, batch 50, the stacked kernel where there is a GPU. A
method's seconds are the median over rounds 2 to 5 of three turns, its ratio that of the medians; `work` is how many trainings of
FedAvg a client does by design, a loss of one model on its samples counting a third (forward without backward), and the goal is
ratio / work below 1.3. On a CPU seconds are those of the process, in one thread. Clusterings: updates of so many clients in five
clusters, d = 7,850 (softmax on 28×28); seconds until everybody has a label, and the share of clients in their true cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from covey import Experiment, run
from covey.algorithms.clustered.fedgroup import decomposed_cosines
from covey.algorithms.clustered.stocfl import StoCFL, _unite
from covey.algorithms.contract import Server, Setting
from covey.clustering.agglomerative import agglomerated, apart, in_order
from covey.clustering.agreement import accuracy
from covey.clustering.density import by_density, scaled_groups
from covey.clustering.features import k_means, nearest_centre
from covey.clustering.rewards import affinities, best_split
from covey.clustering.subspaces import angles, leading_vectors
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.learn.work import Plan
from covey.randomness import generator

GOAL = 1.3
LOSS = 1 / 3  # of a training: a pass without its way back
WORK: dict[str, float] = {  # trainings of FedAvg that a client does, with five clusters
    "fedavg": 1,
    "fedavg_ft": 1,
    "ditto": 2,
    "fedper": 1,
    "fedrep": 1 + LOSS,  # epochs of the head alone go through the representation, and not back
    "apfl": 2,  # mixing the two models in every step is not counted
    "perfedavg": 2,  # nor is taking the outer step back to where the inner one began
    "fesem": 1,
    "flhc": 1,
    "fedgroup": 1,
    "pacfl": 1,
    "flux": 1,
    "stocfl": 2,
    "fedrc": 5 + 5 * LOSS,
    "fedgwc": 1 + 4 * LOSS,
    "rr_cluster": 1 + 5 * LOSS,
    "rdpcfl": 1,  # clients compare losses in one of six rounds, which is not the median one
}
SETTINGS: dict[str, dict[str, Any]] = {"flhc": {"warm_up": 1}, "flux": {"warm_up": 1}}


def noise_federation(clients: int, samples: int = 500) -> Federation:
    rng = np.random.default_rng(0)
    rows = clients * samples
    x, y = rng.integers(0, 256, (rows, 28, 28), dtype=np.uint8), rng.integers(0, 10, rows)
    data = Dataset("noise", x, y, x[:500], y[:500], tuple("0123456789"))
    return Federation(
        data,
        tuple(np.arange(i * samples, (i + 1) * samples) for i in range(clients)),
        np.arange(clients) % 5,
        data.y_test,
        np.full((clients, 10), 0.1),
    )


def round_seconds(name: str, federation: Federation, device: str, rounds: int) -> list[float]:
    table = {
        "algorithm": {"name": name, **SETTINGS.get(name, {})},
        "model": "fcnn",
        "clients": len(federation.clients),
        "clusters": 5,
        "training": {"rounds": rounds, "epochs": 1, "batch_size": 50, "lr": 0.01},
        "start": {"common": name not in ("fedrc", "rr_cluster")},
        "evaluation": {"every": rounds + 1},
        "engine": {"device": device, "kernel": "stacked" if device == "cuda" else "auto", "workers": 1},
    }
    clock = time.perf_counter if device == "cuda" else time.process_time  # core-seconds: others may use the cores, too
    times = [clock()]

    def tick(record: dict[str, Any], state: Any) -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(clock())

    run(Experiment.of(table), federation=federation, callbacks=[tick], quiet=True)
    return [after - before for before, after in pairwise(times[1:])]  # without the first round


def compare(names: list[str], federation: Federation, device: str, turns: int, rounds: int) -> dict[str, Any]:
    measured: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(turns):
        for name in names:
            # The last round of a run may hold its evaluation.
            measured[name] += round_seconds(name, federation, device, rounds)[:-1]
    base = statistics.median(measured["fedavg"])
    return {
        name: {"seconds": statistics.median(times), "work": WORK[name], "ratio": statistics.median(times) / base}
        for name, times in measured.items()
    }


def clusterings(many: int, d: int, device: str, named: str) -> dict[str, Any]:
    rng = generator(0, "bench")
    truth = np.arange(many) % 5
    torch.manual_seed(0)
    centres = torch.randn(5, d, device=device)
    updates = centres[torch.from_numpy(truth).to(device)] + 2 * torch.randn(many, d, device=device)
    samples = [
        torch.randn(20, 784) * 0.3 + torch.roll(torch.linspace(0, 1, 784), 150 * int(t))
        for t in truth[: min(many, 200)]
    ]
    told = torch.stack([leading_vectors(x, 3) for x in samples])
    vectors = told[torch.from_numpy(np.arange(many) % len(told))].to(device)
    moments = np.stack([np.full(220, float(t)) for t in truth]) + 0.05 * np.random.default_rng(1).standard_normal(
        (many, 220)
    )

    def interactions() -> Any:
        """P as FedGWC has it once it is at rest: who is in a cluster loses alike."""
        same = truth[:, None] == truth
        return np.random.default_rng(2).random((many, many)) * 0.5 + 0.5 * same

    def edc() -> Any:
        rows = decomposed_cosines(updates, 5, rng)
        return nearest_centre(rows, k_means(rows, 5, rng))

    def principal() -> Any:
        far = angles(vectors, vectors, "sum")
        np.fill_diagonal(far, 0.0)
        return agglomerated((far + far.T) / 2, "average", 0.0, 5)

    def united() -> Any:
        setting = Setting(0, many, 5, 1, Plan(), centres, torch.ones(d, dtype=torch.bool))
        server = Server(1, 0, setting, {}, lambda *_: None, lambda _: None)  # type: ignore[arg-type,return-value]
        place = {i: i + 1 for i in range(many)}
        unions = StoCFL(tau=0.1)._unions(server, dict(enumerate(updates)), place)
        _, place = _unite({}, place, unions)
        return in_order(np.array(list(place.values())))

    table = interactions()
    methods: dict[str, Callable[[], Any]] = {
        "FedGWC, spectral split": lambda: best_split(affinities(table, 4.0 / many), 5, rng),
        "FL+HC, cosine, average": lambda: agglomerated(apart(updates, "cosine", rng), "average", 0.0, 5),
        "FL+HC, euclidean, ward": lambda: agglomerated(apart(updates, "euclidean", rng), "ward", 0.0, 5),
        "FedGroup, EDC": edc,
        "FeSEM, first k-means": lambda: nearest_centre(c := updates.cpu().numpy(), k_means(c, 5, rng, restarts=1)),
        "PACFL, sum of angles": principal,
        "StoCFL, unions": united,
        "FLUX, density": lambda: by_density(scaled_groups(np.split(moments, 22, axis=1)), scale=3.0),
    }
    out = {}
    for name, method in methods.items():
        if named not in name:
            continue
        begin, cpu = time.perf_counter(), time.process_time()
        labels = method()
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        out[name] = {"seconds": seconds, "core_seconds": cpu, "accuracy": accuracy(labels, truth)}
        print(f"  {name:26}{seconds:9.1f} s{cpu:9.1f} core-s{100 * out[name]['accuracy']:8.1f} %", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one turn of three rounds")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=120)
    parser.add_argument("--many", type=int, default=10_000, help="clients of the clusterings; 0: none")
    parser.add_argument("--clusterings", default="", metavar="TEXT", help="only those whose name has this in it")
    parser.add_argument("--only", nargs="*", default=list(WORK))
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    from covey.algorithms import ALGORITHMS

    names = ["fedavg", *(name for name in arguments.only if name in ALGORITHMS and name != "fedavg")]
    about = {"device": arguments.device, "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    print(
        f"{arguments.clients} clients × 500 samples on {about['device']}, load {about['load']:.1f}; goal ratio / work below {GOAL}"
    )
    turns, rounds = (1, 4) if arguments.quick else (3, 6)
    rows = compare(names, noise_federation(arguments.clients), arguments.device, turns, rounds)
    print(f"  {'':12}{'s/round':>9}{'× fedavg':>10}{'work':>6}{'ratio / work':>14}")
    for name, row in rows.items():
        print(
            f"  {name:12}{row['seconds']:9.3f}{row['ratio']:10.2f}{row['work']:6.1f}{row['ratio'] / row['work']:14.2f}",
            flush=True,
        )
    print(f"\nclusterings of {arguments.many} clients")
    found = clusterings(arguments.many, 7_850, arguments.device, arguments.clusterings) if arguments.many else {}
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"about": about, "rounds": rows, "clusterings": found}, file, indent=1)


if __name__ == "__main__":
    main()
