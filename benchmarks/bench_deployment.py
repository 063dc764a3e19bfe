"""What deployment costs: a round of three silos over Flower, against the work that the silos do in it.

    covey bench deployment            # 3 silos, FCNN on MNIST, MingledPie under CKKS, TLS and node authentication, loopback
    covey bench deployment --resnet   # 2 silos, ResNet-18: some 180 MB up per silo and round

Overhead is a round's time on the coordinator's clock less the slowest silo's own work in it. All parties share this machine, so it
holds the cost of sealing letters, of Flower, and of waiting for Flower's polls.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from covey import Experiment
from covey.deploy import keys
from covey.deploy.export import export

NAMES = ["north", "south", "west"]


def experiment(resnet: bool, rounds: int) -> Experiment:
    return Experiment.of(
        {
            "dataset": "digits" if resnet else "mnist",
            "model": "resnet18" if resnet else "fcnn",
            "clients": 2 if resnet else 3,
            "clusters": 2,
            "partition": {"name": "label_sets", "public": 20} | ({} if resnet else {"samples": 500}),
            "start": {"pretrain_epochs": 0},
            "algorithm": {"name": "mingledpie", "threshold": 1},  # of two clusters
            "encryption": "ckks",
            "training": {"rounds": rounds, "steps": 1, "epochs": 0} if resnet else {"rounds": rounds, "epochs": 1},
            "deployment": {"rehearsal": True, "round_seconds": 900.0},
        }
    )


def measure(resnet: bool, rounds: int) -> dict[str, Any]:
    wanted = experiment(resnet, rounds)
    names = NAMES[: wanted.clients]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys.make(wanted, names, ["localhost"], folder / "keys")
        export(wanted, folder / "data", names)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        covey = [sys.executable, "-m", "covey"]
        begin = time.perf_counter()
        logs = {n: (folder / f"{n}.log").open("wb") for n in ["server", *names]}
        serve = [
            *covey,
            "serve",
            "--keys",
            str(folder / "keys/server"),
            "--address",
            f"127.0.0.1:{port}",
            "--out",
            str(folder / "run"),
        ]
        processes = [subprocess.Popen(serve, stderr=logs["server"], stdout=logs["server"])]
        for n in names:
            join = [*covey, "join", str(folder / "keys/silos" / n), "--data", str(folder / "data" / n)]
            join += ["--superlink", f"localhost:{port}", "--state", str(folder / n)]
            processes.append(subprocess.Popen(join, stderr=logs[n], stdout=logs[n]))
        codes = [p.wait() for p in processes]
        total = time.perf_counter() - begin
        if any(codes):
            sys.exit((folder / "server.log").read_text())
        records = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        work = {n: _work((folder / f"{n}.log").read_text()) for n in names}
    overhead = [r["seconds"]["silos"] - max(work[n][r["round"]] for n in names) for r in records]
    accounted = sum((r["bytes"]["up"] + r["bytes"]["down"]) * len(names) for r in records)
    return {
        "silos": len(names),
        "model": wanted.model,
        "rounds": rounds,
        "seconds of a round": [round(r["seconds"]["silos"] + r["seconds"]["aggregate"], 2) for r in records],
        "slowest silo's work": [round(max(work[n][r["round"]] for n in names), 2) for r in records],
        "overhead": {"median": round(statistics.median(overhead), 2), "largest": round(max(overhead), 2)},
        "MB up per silo": round(records[-1]["bytes"]["up"] / 1e6, 2),
        "MB down per silo": round(records[-1]["bytes"]["down"] / 1e6, 2),
        "letters / accounted bytes": round(sum(r["wire"] for r in records) / accounted, 4),
        "seconds in all": round(total, 1),
    }


def _work(log: str) -> dict[int, float]:
    return {int(r): float(s) for r, s in re.findall(r"round (\d+): answered after ([\d.]+) s", log)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resnet", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.resnet, options.rounds or (2 if options.resnet else 6))
    for name, value in found.items():
        print(f"{name:<28} {value}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
