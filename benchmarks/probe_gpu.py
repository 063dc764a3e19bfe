"""Where the time of a training step and of a round goes on a GPU: what to look at before changing either.

    PYTHONPATH=src python benchmarks/probe_gpu.py [--minutes 3] [--best FILE]

Prints, for 120 clients of 500 samples and 1,000 of 50: the kernels of the captured step (torch.profiler), tiles of the two kernels
of `learn/kernels/two_layers.py` beside torch's products, and host profiles (cProfile) of whole rounds. Stops in time.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import math
import pstats
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench_rounds import federation
from covey import Experiment, run
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.machine import Machine
from covey.learn.work import Bundle, Job, Plan, Train
from covey.randomness import Streams

BATCH, INPUTS, HIDDEN, CLASSES = 50, 784, 200, 10
TILES = (
    (64, 64, 4, 2),
    (32, 64, 4, 2),
    (64, 32, 4, 2),
    (64, 32, 4, 3),
    (32, 128, 4, 2),
    (32, 64, 4, 3),
    (64, 64, 8, 2),
    (128, 32, 8, 2),
)
SIZE = HIDDEN * INPUTS + HIDDEN + CLASSES * HIDDEN + CLASSES


def microseconds(work: Callable[[], object], repeat: int = 20) -> float:
    """Of one call, as a replayed CUDA graph where it can be captured."""
    work()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeat):
        graph.replay()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - begin) / repeat


def machine(clients: int, samples: int, tf32: bool) -> tuple[Machine, Bundle]:
    net = Network("fcnn", (28, 28), 10)
    x = torch.randint(0, 256, (clients * samples, 28, 28), dtype=torch.uint8)
    y = torch.randint(0, 10, (clients * samples,))
    start = initial(net, 1).cuda()
    work = Train(start, Plan(lr=0.05, batch_size=BATCH))
    rows = torch.arange(clients * samples, device="cuda")
    bundle = Bundle(work, Streams(0, 1, range(clients)), rows, np.full(clients, samples))
    return Machine(net, x, y, device="cuda", arithmetic="tf32" if tf32 else "ieee"), bundle


def steps(clients: int, samples: int, tf32: bool) -> None:
    from torch.profiler import ProfilerActivity, profile

    here, bundle = machine(clients, samples, tf32)
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        here.train_bundle(bundle)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    print(
        f"\n== Machine.train_bundle, {clients} × {samples}, tf32 {tf32}: first {times[0]:.0f} ms, then {min(times):.2f} ms"
    )
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        here.train_bundle(bundle)
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=25, max_name_column_width=60))
    profiler = cProfile.Profile()
    profiler.enable()
    here.train_bundle(bundle)
    torch.cuda.synchronize()
    profiler.disable()
    show(profiler, 22)


def show(profiler: cProfile.Profile, lines: int) -> None:
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(lines)
    print("\n".join(line for line in text.getvalue().splitlines() if line.strip())[:5000], flush=True)


def products(clients: int) -> None:
    """torch's own products and copies at this size."""
    model = torch.randn(clients, SIZE, device="cuda")
    x = torch.rand(clients, BATCH, INPUTS, device="cuda")
    delta = torch.rand(clients, BATCH, HIDDEN, device="cuda")
    weight = model[:, : HIDDEN * INPUTS].view(clients, HIDDEN, INPUTS)
    print(f"\n== torch, {clients} clients, µs: copy of the models {microseconds(lambda: model.clone()):.0f}", end="")
    for tf32 in (False, True):
        torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else "ieee"
        forward = microseconds(lambda: x @ weight.mT)
        update = microseconds(lambda: weight.baddbmm_(delta.mT, x, alpha=-1e-9))
        print(f"; {'tf32' if tf32 else 'ieee'} forward {forward:.0f}, update {update:.0f}", end="")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    print(flush=True)


def two_layers(clients: int, until: float) -> tuple[int, int, int, int]:
    """Tiles of the two kernels of a step."""
    from covey.learn.kernels import two_layers as kernels

    count = clients * 500
    samples = torch.randint(0, 256, (count, INPUTS), dtype=torch.uint8, device="cuda")
    labels = torch.randint(0, CLASSES, (count,), device="cuda")
    rows = torch.randint(0, count, (3, clients, BATCH), device="cuda")
    factor = torch.full((3, clients, BATCH), 1 / BATCH, device="cuda")
    divisors = torch.full((3, clients), BATCH, device="cuda")
    d = -(-SIZE // 32) * 32
    model = 0.02 * torch.randn(clients, d, device="cuda")
    hidden, delta = (torch.rand(clients, BATCH, HIDDEN, device="cuda") * 1e-6 for _ in range(2))

    def first(update: bool, forward: bool, tf32: bool, tile: tuple[int, int, int, int]) -> Any:
        bn, bk, warps, stages = tile
        return kernels._first[(clients * -(-HIDDEN // bn),)](
            samples, rows, model, model, delta, hidden, divisors, model, model, 0 if update else -1, clients, 1 / 255,
            1.0, -1e-6, 0.0, d, d, d, d, BATCH, HIDDEN, INPUTS, update, forward, False, False, "tf32" if tf32 else "ieee",
            True, 64, bn, bk, num_warps=warps, num_stages=stages)  # fmt: skip

    def last(tf32: bool, warps: int) -> Any:
        return kernels._last[(clients,)](
            labels, rows, factor, model, model, delta, hidden, divisors, model, model, 0, clients, 1.0, -1e-6, 0.0,
            d, d, d, d, BATCH, HIDDEN, CLASSES, INPUTS, False, False, "tf32" if tf32 else "ieee", 64, 256, 16,
            num_warps=warps, num_stages=1)  # fmt: skip

    print(f"\n== two kernels, {clients} clients, µs")
    for tf32 in (False, True):
        attempt(f"last tf32={tf32}", partial(microseconds, partial(last, tf32, 4)), until)
    taken: dict[tuple[int, int, int, int], float] = {}
    for tile in TILES:
        each = [
            attempt(f"first, tf32={tf32}, {tile}", partial(microseconds, partial(first, True, True, tf32, tile)), until)
            for tf32 in (False, True)
        ]
        taken[tile] = sum(each)
    tile = min(taken, key=lambda one: taken[one])
    for update in (True, False):
        part = "update" if update else "forward"
        attempt(
            f"first, only {part}, {tile}", partial(microseconds, partial(first, update, not update, False, tile)), until
        )
    print(f"best tile: {tile}", flush=True)
    return tile


def attempt(name: str, work: Callable[[], float], until: float) -> float:
    """What it took; infinite where it failed, or there is no time left."""
    if time.monotonic() > until:
        return math.inf
    try:
        took = work()
    except Exception as e:
        print(f"{name}: {type(e).__name__} {str(e)[:200]}", flush=True)
        return math.inf
    print(f"{name}: {took:.1f}", flush=True)
    return took


def right(tf32: bool) -> None:
    """Whole trainings by the two kernels against the loop kernel on the CPU."""
    net = Network("fcnn", (28, 28), 10)
    x = torch.randint(0, 256, (1000, 28, 28), dtype=torch.uint8)
    y = torch.randint(0, 10, (1000,))
    start = initial(net, 1)
    for name, plan in {
        "plain": Plan(lr=0.1, epochs=2),
        "pulled": Plan(lr=0.1, weight_decay=0.01, proximal=0.1),
    }.items():
        jobs = [
            Job(
                torch.arange(i * 100, i * 100 + 60 + 10 * i),
                i,
                Train(start, plan, correction=torch.full_like(start, 0.01 * i)),
            )
            for i in range(4)
        ]
        expected = torch.stack(Machine(net, x, y, kernel="loop").compute(jobs))
        here = Machine(net, x, y, device="cuda", arithmetic="tf32" if tf32 else "ieee")
        got = torch.stack(here.compute(jobs)).cpu()
        apart = float((got - expected).abs().max() / (expected - start).abs().max())
        print(f"two kernels, {name}, tf32={tf32}: largest difference / largest change {apart:.1e}", flush=True)


def rounds(algorithm: str, clients: int, samples: int, every: int = 10_000) -> None:
    """Host profile of rounds, and their seconds by phase; then the kernels of three rounds more."""
    from torch.profiler import ProfilerActivity, profile

    experiment = Experiment.of(
        algorithm=algorithm,
        model="fcnn",
        clients=clients,
        clusters=5,
        training={"rounds": 18, "epochs": 1, "batch_size": 50, "lr": 0.01},
        evaluation={"every": every},
        engine={"device": "cuda"},
    )
    profiler, times, phases = cProfile.Profile(), [time.perf_counter()], []
    seen = profile(activities=[ProfilerActivity.CUDA])

    def note(record: dict[str, Any], state: Any) -> None:
        torch.cuda.synchronize()
        times.append(time.perf_counter())
        phases.append(record["seconds"])
        if record["round"] == 8:
            profiler.enable()
        if record["round"] == 12:
            profiler.disable()
            seen.start()
        if record["round"] == 15:
            seen.stop()

    run(experiment, federation=federation(clients, samples), callbacks=[note], quiet=True)
    plain = float(np.median(np.diff(times)[3:8]))
    by_phase = {p: round(1e3 * float(np.median([s.get(p, 0.0) for s in phases[3:8]])), 2) for p in phases[4]}
    print(
        f"\n== round of {algorithm}, {clients} × {samples}, evaluated every {every}: {1e3 * plain:.1f} ms; ms by phase {by_phase}; "
        "4 rounds profiled:"
    )
    show(profiler, 40)
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=14, max_name_column_width=60), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--best", default="", help="write the fastest tile to this file")
    parser.add_argument("--without-tiles", action="store_true", help="neither tiles nor torch's products")
    options = parser.parse_args()
    begin = time.monotonic()
    until = begin + 60 * options.minutes

    def tiles() -> None:
        tile = two_layers(120, begin + 60 * options.minutes)
        if options.best:
            Path(options.best).write_text(",".join(map(str, tile)))

    searched: list[tuple[str, Callable[[], None]]] = [("tiles", tiles), ("products 120", lambda: products(120))]
    parts: list[tuple[str, Callable[[], None]]] = [
        *([] if options.without_tiles else searched),
        ("step 120", lambda: steps(120, 500, False)),
        ("round fedavg", lambda: rounds("fedavg", 1000, 50)),
        ("round scaffold", lambda: rounds("scaffold", 1000, 50)),
        ("round evaluated", lambda: rounds("fedavg", 120, 500, every=1)),
        ("right", lambda: right(False)),
        ("right tf32", lambda: right(True)),
    ]
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for name, part in parts:
        if time.monotonic() > until:
            print(f"no time left for: {name}")
            continue
        try:
            part()
        except Exception:
            traceback.print_exc()
        print(f"[{name} ended after {time.monotonic() - begin:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
