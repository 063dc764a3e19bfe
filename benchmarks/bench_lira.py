"""LiRA on uploads: the shadow models of every client, trained side by side.

    PYTHONPATH=src COVEY_DATA=/data python benchmarks/bench_lira.py --device cuda --json lira.json

20 clients of FCNN/MNIST, 64 shadows for one upload of each; the goal on a GPU is 60 s. Timed is all that the attack does once the
run is over: shadows, their confidences on all candidates, the score. Beside it the same shadows one after another, by the
usual loop over one model, measured on a few and scaled up. Needs torch and numpy.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from covey.attacks.contract import Truth
from covey.attacks.membership.on_uploads import LiRA
from covey.attacks.observe import Observers
from covey.engines.prepare import prepare
from covey.experiment.experiment import Experiment
from covey.learn.machine import Machine
from covey.learn.work import Job, Train

GOAL = 60.0  # seconds on a GPU


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--shadows", type=int, default=64)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json", default="")
    options = parser.parse_args()

    experiment = Experiment.of(
        {
            "dataset": "mnist",
            "model": "fcnn",
            "algorithm": "fedavg",
            "clients": options.clients,
            "clusters": 1,
            "partition": {"name": "iid", "samples": options.samples, "public": 500},
            "start": {"pretrain_epochs": 0},
            "training": {"rounds": 1, "epochs": options.epochs, "batch_size": 50, "lr": 0.1},
            "engine": {"device": options.device, "workers": 1},
        }
    )
    federation, network, setting = prepare(experiment)
    data, start = federation.dataset, setting.one_start().to(options.device)
    machine = Machine(network, data.x_train, data.y_train, device=options.device)
    rows = [torch.from_numpy(own) for own in federation.clients]
    ends = machine.compute([Job(own, i, Train(start, setting.plan)) for i, own in enumerate(rows)])

    attack = LiRA(shadows=options.shadows, clients=options.clients, rounds=1)
    Observers([attack], setting, network, federation, {}, device=options.device)
    attack.memory["uploads"] = {str(i): [[1, start[None], end[None]]] for i, end in enumerate(ends)}
    begin = time.perf_counter()
    finding = attack.finding(Truth(federation, []))
    took = time.perf_counter() - begin

    alone, few = Machine(network, data.x_train, data.y_train, device=options.device, kernel="loop"), min(4, len(rows))
    alone.compute([Job(rows[0], 0, Train(start, setting.plan))])  # warm
    begin = time.perf_counter()
    for i in range(few):
        alone.compute([Job(rows[i], i, Train(start, setting.plan))])
        if options.device == "cuda":
            torch.cuda.synchronize()
    loop = (time.perf_counter() - begin) / few * options.clients * options.shadows

    result = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "clients": options.clients,
        "shadows": options.shadows,
        "samples": options.samples,
        "epochs": options.epochs,
        "seconds": round(took, 2),
        "one by one, training only": round(loop, 1),
        "goal": GOAL,
        "area under the ROC curve": round(finding.value, 3),
        "interval": [finding.low, finding.high],
        "also": {one.attack: round(one.value, 4) for one in finding.variants},
    }
    print(json.dumps(result, indent=1))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
