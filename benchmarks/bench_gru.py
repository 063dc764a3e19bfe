"""A GRU by torch's operators token by token, and by covey's kernels for all tokens at once: milliseconds, in turns.

    PYTHONPATH=src python benchmarks/bench_gru.py [--json FILE]

A training step of 20 clients on 32 texts of 100 tokens each, captured, losses of 2 models on 640 texts, and the recurrence alone.
On a CPU, where there are no such kernels, torch alone and less of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels.recurrences.recurrences import has_kernels, kernels_of
from covey.learn.machine import Machine
from covey.learn.work import Job, Losses, Plan, Train
from covey.models import by_token, recurrence
from covey.models.gru import HIDDEN

STEPS, TURNS = 20, 7


def timed(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    gpu = options.device == "cuda"
    device = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device(options.device)
    clients, texts, tokens, steps, turns = (20, 32, 100, STEPS, TURNS) if gpu else (2, 8, 20, 4, 3)
    network = Network("gru", (tokens,), 2, "tokens", 5000)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(1, 5000, (clients * texts, tokens), generator=generator, dtype=torch.int32)
    lengths = torch.randint(tokens // 2, tokens + 1, (len(x), 1), generator=generator)
    x[torch.arange(tokens) >= lengths] = 0
    y = torch.randint(0, 2, (len(x),), generator=generator)
    start = initial(network, 1)
    plan = Plan(lr=0.05, batch_size=texts, epochs=steps)
    rows = torch.arange(len(x))
    train = [Job(own, client, Train(start, plan)) for client, own in enumerate(rows.split(texts))]
    losses = [Job(rows, 0, Losses(torch.stack([start, 0.9 * start])))]

    ways: dict[str, Any] = {"torch": lambda *_: by_token}
    if has_kernels(device):
        ways["kernels"] = kernels_of
    else:
        print(f"no kernels of recurrences on this device ({device.type}): torch alone")
    machines = {way: Machine(network, x, y, device=options.device, kernel="stacked") for way in ways}
    h = HIDDEN
    given = [
        torch.randn(*shape, device=device)
        for shape in ((clients, texts, tokens, 3 * h), (clients, 3 * h, h), (clients, 3 * h))
    ]
    given[1] *= h**-0.5  # so that it is no chaos
    weight, slope = given[1], torch.randn(clients, texts, h, device=device)
    kept = by_token.unrolled(*given)[1:]
    works: dict[str, Callable[[str], Any]] = {
        f"step, {clients} clients x {texts} texts x {tokens} tokens": lambda way: machines[way].compute(train),
        f"losses, 2 models on {len(x)} texts": lambda way: machines[way].compute(losses),
        "recurrence forwards": lambda way: ways[way](*given).unrolled(*given),
        "recurrence, last state alone": lambda way: [ways[way](*given).last(*given)],
        "recurrence backwards": lambda way: ways[way](slope, weight, *kept).derivative(slope, weight, *kept),
    }
    shown = []
    for number, (what, work) in enumerate(works.items()):
        times: dict[str, list[float]] = {way: [] for way in ways}
        results: dict[str, Any] = {}
        for turn in range(turns + 2):  # what is captured is captured in the first two
            for way in ways:
                recurrence.kernels_of = ways[way]
                took = timed(lambda: results.update({way: work(way)}), device)  # noqa: B023 (called at once)
                times[way] += [took / (steps if number == 0 else 1)] if turn >= 2 else []
        row: dict[str, Any] = {"what": what, "ms": {way: statistics.median(own) for way, own in times.items()}}
        line = f"{what}: " + ", ".join(f"{way} {ms:.3f} ms" for way, ms in row["ms"].items())
        if "kernels" in ways:
            row["times"] = row["ms"]["torch"] / row["ms"]["kernels"]
            pairs = zip(results["torch"], results["kernels"])
            row["differ"] = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
            line += f", {row['times']:.1f} times; results differ by {row['differ']:.1e} of the largest at most"
        shown.append(row)
        print(line, flush=True)
    if options.json:
        name = torch.cuda.get_device_name() if gpu else "CPU"
        with open(options.json, "w") as file:
            json.dump({"device": name, "torch": torch.__version__, "rows": shown}, file, indent=1)


if __name__ == "__main__":
    main()
