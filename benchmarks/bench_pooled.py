"""Convolution, pooling and ReLU of many clients on a GPU: covey's CUDA kernels beside its Triton products, milliseconds a call.

    PYTHONPATH=src python benchmarks/bench_pooled.py [--clients 120] [--batch 400]

The two layers of LeNet on images of 32 × 32 × 3. Products compute convolutions alone: pooling and ReLU come on top of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch

from covey.learn.kernels.convolutions import convolve, pooled

NONE, KERNEL = (0, 0), (5, 5)


def milliseconds(work: Callable[[], object], repeats: int = 5) -> float:
    for _ in range(2):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=120)
    parser.add_argument("--batch", type=int, default=400)
    options = parser.parse_args()
    c, device = options.clients, torch.device("cuda")
    x = torch.rand(c, options.batch, 3, 32, 32, device=device)
    w1, w2 = (0.1 * torch.randn(c, *shape, *KERNEL, device=device) for shape in ((6, 3), (16, 6)))
    b1, b2 = (torch.zeros(c, outputs, device=device) for outputs in (6, 16))
    y1, code1 = pooled.outputs(x, w1, b1, NONE)
    y2, code2 = pooled.outputs(y1, w2, b2, NONE)
    d1, d2 = torch.randn_like(y1), torch.randn_like(y2)
    shown: dict[str, Callable[[], object]] = {
        "outputs, layer 1": lambda: pooled.outputs(x, w1, b1, NONE),
        "outputs, layer 2": lambda: pooled.outputs(y1, w2, b2, NONE),
        "gradient at weights, layer 1": lambda: pooled.at_weights(d1, code1, x, KERNEL, NONE),
        "gradient at weights, layer 2": lambda: pooled.at_weights(d2, code2, y1, KERNEL, NONE),
        "gradient at inputs, layer 2": lambda: pooled.at_inputs(d2, code2, w2, (14, 14), NONE),
    }
    for mode in ("ieee", "tf32"):
        z1, z2 = convolve.outputs(x, w1, b1, NONE, mode), convolve.outputs(y1, w2, b2, NONE, mode)

        def outputs(mode: str = mode) -> None:
            convolve.outputs(x, w1, b1, NONE, mode)
            convolve.outputs(y1, w2, b2, NONE, mode)

        def at_weights(mode: str = mode, z1: torch.Tensor = z1, z2: torch.Tensor = z2) -> None:
            convolve.at_weights(z1, x, KERNEL, NONE, mode)
            convolve.at_weights(z2, y1, KERNEL, NONE, mode)

        shown[f"products, {mode}: outputs of both"] = outputs
        shown[f"products, {mode}: gradients at weights of both"] = at_weights
        shown[f"products, {mode}: gradient at inputs"] = partial(convolve.at_inputs, z2, w2, NONE, mode)
    for name, work in shown.items():
        print(f"{name:44s} {milliseconds(work):8.3f}", flush=True)


if __name__ == "__main__":
    main()
