"""Local training on a GPU: Machine.train_bundle, as rounds call it, against the usual research loop, and agreement of the kernels.

    PYTHONPATH=src python benchmarks/bench_training_gpu.py --json training_gpu.json

120 clients, one epoch, batch 50. The research loop (deepcopy of the model, DataLoader, optim.SGD, batch copied to the
GPU) is measured on a few clients and scaled to 120; it is linear in the clients. Both sides are warm: the graph of a
step is captured in a first call, whose time is reported too. Each model is timed in exact float32 (ieee, covey's
default), TF32 and bf16 (the loop under autocast), both sides alike; convolutional networks also in torch's default arithmetic
(torch: TF32 in convolutions, exact products). ResNet-18's goal is judged in the last: it is what a research loop runs in unless its
author chose otherwise. Data are random, fresh in each run. Needs torch and numpy. `--ways`: also other ways to compute
convolutions, to choose from.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from bench_rounds import set_tile
from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.kernels import streams
from covey.learn.machine import Machine
from covey.learn.precision import of_steps, precision
from covey.learn.work import Bundle, Head, Job, Losses, Plan, Train
from covey.randomness import Streams

CLIENTS, BATCH = 120, 50
# Times the research loop, in exact float32 and in the others' arithmetic; 0: only reported
GOALS = {"fcnn": (600, 900), "cnn": (90, 90), "cnn5": (0, 0), "gru": (80, 80), "resnet18": (6, 6)}
MODES = dict.fromkeys(("cnn", "cnn5", "resnet18"), ("ieee", "tf32", "torch", "bf16"))  # the others: no convolutions
NEVER_JUDGED = ("bf16",)
JUDGED = {"resnet18": ("torch",)}  # the others: in every mode
SAMPLES = {"fcnn": 500, "cnn": 500, "cnn5": 500, "gru": 100, "resnet18": 100}
LOOP_CLIENTS = {"fcnn": 6, "cnn": 4, "cnn5": 4, "gru": 3, "resnet18": 3}


def network(name: str) -> Network:
    if name == "gru":
        return Network(name, (50,), 2, "tokens", 5000)
    return Network(name, (32, 32, 3) if name == "resnet18" else (28, 28), 10)


def data(net: Network, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    tokens = net.kind == "tokens"
    x = torch.randint(0, net.vocabulary if tokens else 256, (count, *net.input_shape), generator=generator)
    y = torch.randint(0, net.classes, (count,), generator=generator)
    return x.to(torch.int32 if tokens else torch.uint8), y


def seconds(work: Callable[[], object], repeat: int) -> tuple[float, float]:
    """(first call, best of the calls after it)"""
    times = []
    for _ in range(repeat + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return times[0], min(times[1:])


def research_loop(net: Network, x: Tensor, y: Tensor, samples: int, clients: int, start: Tensor) -> Callable[[], None]:
    """What most code of the field does for each client of a round."""
    model = net.module("cuda")
    net.write(start.cuda(), model)
    inputs = x.long() if net.kind == "tokens" else x.float() / 255
    if net.spec.layout == "image":
        inputs = inputs.unsqueeze(1) if inputs.dim() == 3 else inputs.permute(0, 3, 1, 2).contiguous()
    sets = [
        TensorDataset(inputs[i * samples : (i + 1) * samples], y[i * samples : (i + 1) * samples])
        for i in range(clients)
    ]

    def run() -> None:
        for dataset in sets:
            local: nn.Module = copy.deepcopy(model)
            optimiser = torch.optim.SGD(local.parameters(), lr=0.05)
            for batch_x, batch_y in DataLoader(dataset, batch_size=BATCH, shuffle=True):
                optimiser.zero_grad()
                with of_steps(torch.device("cuda")):
                    loss = F.cross_entropy(local(batch_x.cuda()), batch_y.cuda())
                loss.backward()
                optimiser.step()

    return run


def jobs_of(starts: Tensor, samples: int, plan: Plan, extras: bool = False, ragged: bool = False) -> list[Job]:
    jobs = []
    for client, start in enumerate(starts):
        size = samples - 7 * (client % 5) if ragged else samples
        rows = torch.arange(client * samples, client * samples + size)
        correction = torch.full_like(start, 0.01) if extras else None
        jobs.append(Job(rows, client, Train(start, plan, correction=correction)))
    return jobs


def speed(name: str, mode: str, generator: torch.Generator, repeat: int = 10) -> dict[str, object]:
    """Both sides in the same arithmetic."""
    net, samples = network(name), SAMPLES[name]
    x, y = data(net, CLIENTS * samples, generator)
    start = initial(net, 1)
    machine = Machine(net, x, y, device="cuda", arithmetic=mode)
    starts = start.cuda().expand(CLIENTS, -1)
    jobs = jobs_of(starts, samples, Plan(lr=0.05, batch_size=BATCH))
    rows, work = torch.arange(CLIENTS * samples, device="cuda"), Train(start.cuda(), Plan(lr=0.05, batch_size=BATCH))

    def train() -> None:
        """With keys drawn anew, as of a first round: later ones draw theirs while the GPU computes."""
        machine.train_bundle(Bundle(work, Streams(0, 1, range(CLIENTS)), rows, np.full(CLIENTS, samples)))

    first, ours = seconds(train, 3 if name == "resnet18" else repeat)
    models = start.cuda()[None] + 0.01 * torch.randn(5, net.d, device="cuda")
    losses = [Job(job.rows, 0, Losses(models)) for job in jobs]
    _, evaluation = seconds(lambda: machine.compute(losses), 1 if name == "resnet18" else 3)
    few = LOOP_CLIENTS[name]
    with precision(mode, machine.device):
        _, loop = seconds(research_loop(net, x, y, samples, few, start), 2)
    loop *= CLIENTS / few
    return {
        "model": name,
        "precision": mode,
        "kernel": machine.kernel.name,
        "samples": samples,
        "loop_s": loop,
        "loop_clients_measured": few,
        "covey_s": ours,
        "first_call_s": first,
        "ratio": loop / ours,
        "goal": GOALS[name][mode != "ieee"] if mode in JUDGED.get(name, (mode,)) and mode not in NEVER_JUDGED else 0,
        "five_losses_s": evaluation,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
    }


WAYS: dict[str, list[tuple[str, Any, dict[str, Any]]]] = {  # model -> what it is, module, its constants
    "resnet18": [
        ("channels last, own GroupNorm", streams, {"OWN_GROUP_NORM": True}),
        ("channels first", streams, {"OWN_GROUP_NORM": False}),
        ("channels last, own GroupNorm, 16 streams", streams, {"OWN_GROUP_NORM": True, "STREAMS": 16}),
    ],
}


def ways(models: list[str], generator: torch.Generator) -> list[dict[str, object]]:
    """Covey's side in torch's arithmetic, computed otherwise; the loop is not timed again. Goes on past failures."""
    found: list[dict[str, object]] = []
    for name in models:
        net, samples = network(name), SAMPLES[name]
        x, y = data(net, CLIENTS * samples, generator)
        start = initial(net, 1).cuda()
        expected: Tensor | None = None
        for title, module, constants in WAYS.get(name, []):
            before = {constant: getattr(module, constant) for constant in constants}
            vars(module).update(constants)
            try:
                torch.cuda.empty_cache()
                machine = Machine(net, x, y, device="cuda", arithmetic="torch")
                rows = torch.arange(CLIENTS * samples, device="cuda")
                work = Train(start, Plan(lr=0.05, batch_size=BATCH))
                bundle = Bundle(work, Streams(0, 1, range(CLIENTS)), rows, np.full(CLIENTS, samples))
                _, took = seconds(partial(machine.train_bundle, bundle), 1 if name == "resnet18" else 5)
                got = machine.train_bundle(bundle)[:8]
                expected = got if expected is None else expected
                apart = float((got - expected).norm() / (expected - start).norm())
                found.append({"model": name, "way": title, "covey_s": took, "apart": apart})
                print(f"{name}, {title}: {1e3 * took:.1f} ms, from the first {apart:.1e} of the change", flush=True)
            except Exception as error:
                print(f"{name}, {title}: {type(error).__name__} {str(error)[:200]}", flush=True)
            finally:
                vars(module).update(before)
    return found


def agreement(name: str, kernels: tuple[str, ...], generator: torch.Generator) -> list[dict[str, object]]:
    """Largest difference to the loop kernel, relative to the largest change of a parameter."""
    net, samples, clients = network(name), 60 if name != "resnet18" else 12, 4 if name != "resnet18" else 2
    x, y = data(net, clients * samples, generator)
    found = []
    plans = {
        "plain": (Plan(lr=0.05, batch_size=16), False),
        "momentum+prox+correction": (Plan(lr=0.05, batch_size=16, epochs=2, momentum=0.9, proximal=0.1), True),
        "clip+noise+dropout": (Plan(lr=0.05, batch_size=16, clip=1.0, noise=0.5, dropout=0.2), False),
    }
    for label, (plan, extras) in plans.items():
        if name == "resnet18" and plan.clip:
            continue
        starts = torch.stack([initial(net, i) for i in range(clients)]).cuda()
        jobs = jobs_of(starts, samples, plan, extras, ragged=name != "resnet18")
        expected = torch.stack(Machine(net, x, y, device="cuda", kernel="loop").compute(jobs))
        change = (expected - starts).abs().max()
        for kernel in kernels:
            machine = Machine(net, x, y, device="cuda", kernel=kernel)
            machine.compute(jobs)  # the second call replays the graph that the first captured
            got = torch.stack(machine.compute(jobs))
            relative = float((got - expected).abs().max() / change)
            found.append({"model": name, "kernel": kernel, "plan": label, "relative": relative})
    return found


def head_agreement(generator: torch.Generator) -> dict[str, object]:
    net = network("fcnn")
    x, y = data(net, 120, generator)
    d = net.d + net.head_size(2)
    labels = torch.randint(0, 2, (60,), generator=generator)
    starts = 0.05 * torch.randn(2, d, generator=generator).cuda()
    jobs = [
        Job(torch.arange(i * 60, (i + 1) * 60), i, Train(s, Plan(lr=0.05), head=Head(labels)))
        for i, s in enumerate(starts)
    ]
    results = {k: torch.stack(Machine(net, x, y, device="cuda", kernel=k).compute(jobs)) for k in ("loop", "linear")}
    results["cpu"] = torch.stack(Machine(net, x, y).compute(jobs)).cuda()
    change = (results["loop"] - starts).abs().max()
    worst = max(float((results[k] - results["loop"]).abs().max() / change) for k in ("linear", "cpu"))
    return {"model": "fcnn", "kernel": "linear, cpu", "plan": "head", "relative": worst}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--models", default=",".join(GOALS), help="which to time")
    parser.add_argument("--modes", default="", help="arithmetic; without: all that fit the model")
    parser.add_argument("--ways", action="store_true", help="also time other ways to compute convolutions")
    parser.add_argument("--tile", default="", help="as of bench_rounds.py")
    arguments = parser.parse_args()
    if arguments.tile:
        set_tile(arguments.tile)
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: this benchmark needs one")
    generator = torch.Generator()
    generator.seed()
    begin = time.perf_counter()
    same: list[dict[str, object]] = []
    compared = {"fcnn": ("linear", "stacked"), "cnn": ("stacked", "streams"), "gru": ("stacked",)}
    wanted = arguments.models.split(",")
    for name, kernels in (compared | {"resnet18": ("stacked", "streams")}).items():
        same += agreement(name, kernels, generator) if name in wanted else []
    same.append(head_agreement(generator))
    rows = []
    for name in wanted:
        for mode in arguments.modes.split(",") if arguments.modes else MODES.get(name, ("ieee", "tf32", "bf16")):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            rows.append(speed(name, mode, generator))
            passed = time.perf_counter() - begin
            print(f"{name} {mode}: {rows[-1]['ratio']:.1f}x after {passed:.0f} s", flush=True)
    other = ways(wanted, generator) if arguments.ways else []
    device = torch.cuda.get_device_name()
    if arguments.json:
        with open(arguments.json, "w") as file:
            content = {"device": device, "torch": torch.__version__, "speed": rows, "agreement": same, "ways": other}
            json.dump(content, file, indent=1)
    print(f"\n{device}, torch {torch.__version__}, {time.perf_counter() - begin:.0f} s in all")
    print("agreement with the loop kernel (largest difference / largest change of a parameter)")
    for row in same:
        print(f"  {row['model']:9} {row['kernel']:12} {row['plan']:26} {row['relative']:.1e}")
    print(f"{CLIENTS} clients, batch {BATCH}, one epoch; ms; loop measured on a few clients and scaled")
    columns = ("loop", "covey", "first", "ratio", "goal", "5 losses", "GB")
    print(f"  {'model':9} {'kernel':8} {'':5}" + "".join(f"{column:>9}" for column in columns))
    for r in rows:
        times = [1e3 * float(str(r[f"{part}_s"])) for part in ("loop", "covey", "first_call", "five_losses")]
        print(
            f"  {r['model']:9} {r['kernel']:8} {r['precision']:5}{times[0]:9.0f}{times[1]:9.1f}{times[2]:9.0f}"
            f"{r['ratio']:9.1f}{r['goal']:9}{times[3]:9.1f}{r['peak_gb']:9.1f}"
        )


if __name__ == "__main__":
    main()
