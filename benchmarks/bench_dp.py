"""Per-sample clipping (DP-SGD) on the FCNN 784-200-10 with batches of 50, against plain SGD and against the usual ways to clip.

    python benchmarks/bench_dp.py [--model fcnn] [--steps 20] [--repeats 7] [--json FILE]

Every way takes the same steps on the same batch from the same start, one after the other within each pass, on one thread; a
ratio is the median over the passes, with the smallest and largest, since machines are shared. Rivals: `torch.func`'s
vmap(grad), and Opacus' hooks where it is installed (`pip install --no-deps opacus opt_einsum`: it must not bring its own
torch). The largest difference between the models that the clipping ways arrive at is shown: they must agree.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from covey.learn.flat import Network
from covey.learn.initial import initial
from covey.learn.machine import Machine
from covey.learn.work import Job, Plan, Train

BATCH, LR, CLIP, NOISE = 50, 0.1, 1.0, 0.5
GOAL = 2.0  # clipped training costs at most so many times plain training


def covey(network: Network, x: Tensor, y: Tensor, start: Tensor, plan: Plan) -> Callable[[], Tensor]:
    machine = Machine(network, x, y)
    job = Job(torch.arange(len(x)), 0, Train(start, plan))
    return lambda: machine.compute([job])[0]


def clipping_step(parameters: dict[str, Tensor], gradients: dict[str, Tensor], noisy: bool) -> None:
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    scale = (CLIP / norms.clamp(min=1e-30)).clamp(max=1)
    for name, parameter in parameters.items():
        total = torch.tensordot(scale, gradients[name], dims=1)
        if noisy:
            total += torch.randn_like(total) * NOISE * CLIP
        parameter.data.sub_(total, alpha=LR / len(norms))


def with_functorch(network: Network, x: Tensor, y: Tensor, start: Tensor, steps: int) -> Callable[[], Tensor]:
    def train() -> Tensor:
        module, parameters = unpacked(network, start)

        def loss(given: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
            return F.cross_entropy(functional_call(module, given, (sample[None],)), label[None])

        per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
        for _ in range(steps):
            plain = {name: p.detach() for name, p in parameters.items()}
            clipping_step(parameters, per_sample(plain, x, y), noisy=False)
        return flat(parameters)

    return train


def with_opacus(network: Network, x: Tensor, y: Tensor, start: Tensor, steps: int) -> Callable[[], Tensor]:
    from opacus.grad_sample import GradSampleModule

    def train() -> Tensor:
        module, parameters = unpacked(network, start)
        hooked = GradSampleModule(module)
        for _ in range(steps):
            hooked.zero_grad(set_to_none=True)
            F.cross_entropy(hooked(x), y).backward()
            clipping_step(parameters, {name: p.grad_sample for name, p in parameters.items()}, noisy=False)
        hooked.remove_hooks()
        return flat(parameters)

    return train


def unpacked(network: Network, start: Tensor) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    module = network.module("cpu")
    parameters = dict(module.named_parameters())
    at = 0
    for parameter in parameters.values():
        parameter.data = start[at : at + parameter.numel()].view_as(parameter).clone()
        at += parameter.numel()
    return module, parameters


def flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in parameters.values()])


def measure(model: str, steps: int, repeats: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, 28, 28, generator=random)
    y = torch.randint(0, 10, (BATCH,), generator=random)
    network = Network(model, (28, 28), 10)
    start = initial(network, 0)
    plan = Plan(lr=LR, steps=steps, batch_size=0, clip=CLIP)
    read = Machine(network, x, y).samples.inputs(torch.arange(BATCH))
    ways = {
        "plain": covey(network, x, y, start, Plan(lr=LR, steps=steps, batch_size=0)),
        "clipped": covey(network, x, y, start, plan),
        "clipped, noisy": covey(network, x, y, start, Plan(lr=LR, steps=steps, batch_size=0, clip=CLIP, noise=NOISE)),
        "vmap(grad)": with_functorch(network, read, y, start, steps),
    }
    if importlib.util.find_spec("opacus"):
        ways["opacus"] = with_opacus(network, read, y, start, steps)
    found = {name: way() for name, way in ways.items()}  # warms every way up
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - begin)
    ratios = {name: [s / p for s, p in zip(times, seconds["plain"])] for name, times in seconds.items()}
    rivals = [name for name in ways if name in ("vmap(grad)", "opacus")]
    return {
        "model": model,
        "steps": steps,
        "milliseconds_a_step": {name: 1e3 * statistics.median(times) / steps for name, times in seconds.items()},
        "ratio_to_plain": {name: (statistics.median(r), min(r), max(r)) for name, r in ratios.items()},
        "largest_difference": {name: float((found[name] - found["clipped"]).abs().max()) for name in rivals},
        "moved": float((found["clipped"] - start).abs().max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="fcnn")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # Opacus warns about hooks on inputs that need no gradient
    result = measure(options.model, options.steps, options.repeats)
    print(f"{result['model']}, batch {BATCH}, {result['steps']} steps, one thread")
    for name, (ratio, low, high) in result["ratio_to_plain"].items():
        aim = f", goal at most {GOAL:g}x" if (name, result["model"]) == ("clipped", "fcnn") else ""
        print(
            f"  {name}: {result['milliseconds_a_step'][name]:.2f} ms a step, {ratio:.2f}x plain ({low:.2f} to {high:.2f}){aim}"
        )
    for name, difference in result["largest_difference"].items():
        print(f"  {name} ends within {difference:.1e} of ours; training moved a weight by up to {result['moved']:.1e}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
