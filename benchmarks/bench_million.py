"""Time and memory of FedAvg rounds as the clients of a federation grow: 10², 10³ … 10⁶ clients with data of their own, of whom at
most 10,000 take part in a round.

    python benchmarks/bench_million.py [--sizes 100,1000,…] [--model fcnn] [--algorithm fedavg] [--device cuda] [--bare]
                                       [--json FILE]

A client holds 10 samples of 8 × 8 pixels (noise: nothing here depends on what is learnt), the FCNN for them has 15,010 parameters.
Every size runs in a fresh process, in one process without workers, so that processor time can be read by what it is spent on:

    train    inside the machine: laying out batches, the kernels
    engine   all else of a round: drawing who takes part, coroutines, records, the average
    once     before the first round and after the last: checks and fingerprint of the data, folder, report, models

Memory is the peak of resident pages of the process, less the data (samples, labels, who holds which rows, what each client is
tested on). On a GPU times are by the clock, and the machine waits for the GPU before its time is read. Evaluated are all clients,
or 10,000 of them, in the last round. The goals of issue 19: at most 60 µs of engine time per client that takes part (25 on a GPU),
and with 10⁶ clients at most 1.3 × the memory of 10⁴.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SAMPLES, MOST, ROUNDS, GOAL_ENGINE, GOAL_MEMORY = 10, 10_000, 4, 60e-6, 1.3


def resident(kind: str) -> float:
    """MB: VmRSS now, VmHWM at the most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def one(clients: int, model: str, algorithm: str, bare: bool, device: str) -> dict[str, Any]:
    """Some rounds of so many clients."""
    import numpy as np
    import torch

    from covey.data.dataset import Dataset
    from covey.data.federation import Federation
    from covey.data.holdings import Holdings
    from covey.experiment.experiment import Experiment
    from covey.learn.machine import Machine
    from covey.rounds.loop import run

    rng, rows = np.random.default_rng(0), clients * SAMPLES
    x = rng.integers(0, 17, (rows, 8, 8), dtype=np.uint8)
    y = rng.integers(0, 10, rows)
    dataset = Dataset("noise", x, y, x[:1000].copy(), y[:1000].copy(), tuple(str(c) for c in range(10)))
    holdings = Holdings.cut(np.arange(rows), np.full(clients, SAMPLES))
    shares = np.full((clients, 10), 0.1)
    federation = Federation(dataset, holdings, None, dataset.y_test, shares)
    data = sum(a.nbytes for a in (x, y, holdings.rows, holdings.starts, shares)) / 2**20
    experiment = Experiment.of(
        algorithm=algorithm,
        model=model,
        clients=clients,
        clusters=1,
        training={"rounds": ROUNDS, "epochs": 1},
        participation={"share": min(1.0, MOST / clients)},
        evaluation={"every": ROUNDS},
        engine={"device": device, "workers": 1, "checkpoint_every": ROUNDS},
    )
    computed = [0.0]
    clock = time.process_time if device == "cpu" else time.perf_counter

    def timed(method: Any) -> Any:
        def instead(*given: Any) -> Any:
            begin = clock()
            try:
                return method(*given)
            finally:
                if device != "cpu":
                    torch.cuda.synchronize()
                computed[0] += clock() - begin

        return instead

    for name in ("compute", "train_bundle", "losses_of_bundle"):
        setattr(Machine, name, timed(getattr(Machine, name)))
    marks = [(clock(), 0.0)]

    def mark(record: dict[str, Any], state: Any) -> None:
        marks.append((clock(), computed[0]))

    with tempfile.TemporaryDirectory() as folder:
        result = run(experiment, federation=federation, callbacks=[mark], quiet=True, out=None if bare else folder)
        end = clock()
        sizes = {path.name: path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()}
    present = [record["participants"] for record in result.records]
    # Rounds in the middle: the first has what comes before it, the last the evaluation.
    rounds = marks[-2][0] - marks[1][0], marks[-2][1] - marks[1][1]
    took_part = sum(present[1:-1])
    return {
        "clients": clients,
        "participants": present[1],
        "engine_us": 1e6 * (rounds[0] - rounds[1]) / took_part,
        "train_us": 1e6 * rounds[1] / took_part,
        "once_s": end - marks[0][0] - (marks[-1][0] - marks[1][0]) - (marks[2][0] - marks[1][0]),
        "last_round_s": marks[-1][0] - marks[-2][0],
        "data_mb": data,
        "peak_mb": resident("VmHWM"),
        "checkpoint_kb": sizes.get("state.bin", 0) / 1024,
        "metrics_kb": sizes.get("metrics.jsonl", 0) / 1024,
        "report_kb": sizes.get("report.html", 0) / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,1000,10000,100000,1000000")
    parser.add_argument("--model", default="fcnn")
    parser.add_argument("--algorithm", default="fedavg")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bare", action="store_true", help="without a folder: no checkpoint, no report")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # clients: what a fresh process does
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.one, arguments.model, arguments.algorithm, arguments.bare, arguments.device)))
        return
    columns = {
        "clients": "{:,}",
        "participants": "{:,}",
        "engine_us": "{:.0f}",
        "train_us": "{:.0f}",
        "once_s": "{:.2f}",
        "last_round_s": "{:.2f}",
        "data_mb": "{:.0f}",
        "peak_mb": "{:.0f}",
        "checkpoint_kb": "{:.0f}",
        "metrics_kb": "{:.0f}",
        "report_kb": "{:.0f}",
    }
    print("".join(f"{name:>14}" for name in (*columns, "peak − data")))
    rows = []
    for clients in (int(size) for size in arguments.sizes.split(",")):
        command = [sys.executable, __file__, "--one", str(clients), "--model", arguments.model]
        command += [
            "--algorithm",
            arguments.algorithm,
            "--device",
            arguments.device,
            *(["--bare"] if arguments.bare else []),
        ]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        rows.append(row)
        cells = [form.format(row[name]) for name, form in columns.items()]
        print("".join(f"{cell:>14}" for cell in (*cells, f"{row['peak_mb'] - row['data_mb']:.0f}")), flush=True)
    beside = {row["clients"]: row["peak_mb"] - row["data_mb"] for row in rows}
    if {MOST, 10**6} <= beside.keys():
        ratio = beside[10**6] / beside[MOST]
        slowest = max(row["engine_us"] for row in rows if row["clients"] >= MOST)
        print(f"memory of 10⁶ clients beside the data: {ratio:.2f} × that of 10⁴ (goal at most {GOAL_MEMORY})")
        print(f"engine time per participating client: at most {slowest:.0f} µs (goal {1e6 * GOAL_ENGINE:.0f})")
    if arguments.json:
        asked = {name: value for name, value in vars(arguments).items() if name not in ("json", "one")}
        Path(arguments.json).write_text(json.dumps({"arguments": asked, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
