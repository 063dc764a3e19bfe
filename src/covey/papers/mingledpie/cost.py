"""What MingledPie costs: Table IV (identity, aggregation, rebuilding) and Table IX (encryption by model)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from covey.algorithms.mingledpie.mingledpie import MingledSums, open_sums, seal_with_indicator
from covey.algorithms.rebuild import solve
from covey.algorithms.sums.openings import Seals
from covey.crypto import fmd
from covey.crypto.sealing import sealing
from covey.models import MODELS
from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction
from covey.randomness import generator

TABLE4: dict[
    str, tuple[dict[str, Any], tuple[float, float, float]]
] = {  # changed parameter -> seconds for identity, aggregation, rebuilding
    "p = 0.5": ({"p": 0.5}, (0.068, 18.014, 0.284)),
    "p = 0.25": ({"p": 0.25}, (0.101, 11.763, 0.267)),
    "p = 0.125": ({"p": 0.125}, (0.181, 8.211, 0.254)),
    "T = 3": ({"t": 3}, (0.071, 23.047, 0.287)),
    "T = 4": ({"t": 4}, (0.077, 29.523, 0.290)),
    "k = 5": ({"k": 5}, (0.041, 10.137, 0.184)),
    "k = 8": ({"k": 8}, (0.058, 14.521, 0.243)),
    "N = 60": ({"n": 60}, (0.069, 9.154, 0.260)),
    "N = 240": ({"n": 240}, (0.068, 39.138, 0.316)),
}
TABLE9 = {
    "FCNN": ("fcnn", (28, 28), 10, (3.32, 0.36)),
    "CNN": ("cnn", (32, 32, 3), 10, (7.22, 0.73)),
    "ResNet-18": ("resnet18", (32, 32, 3), 100, (22.08, 2.78)),
}
REPEATS = 5  # of every timing: what a verdict needs for its interval
HERE = "Seconds depend on the machine: compare rows with each other, and orders of magnitude with the paper."


def table4(options: Options) -> Reproduction:
    """Seconds for identity generation, aggregation and rebuilding by p, T, k and N, with CKKS."""
    options.alone()
    model = "fcnn" if options.quick else "mlp_wide"
    shape, classes = ((784,), 10) if options.quick else ((6169,), 100)
    d = parameters(model, shape, classes)
    cells: list[Cell] = []
    _seconds(d=4096, k=3, p=0.5, t=2, n=30)  # compiles the adding of residues
    for row, (change, printed) in TABLE4.items():
        options.say(row)
        values: dict[str, Any] = {"k": 10, "p": 0.5, "t": 2, "n": 120, **change}
        for column, ours, theirs in zip(("identity", "aggregation", "rebuilding"), _seconds(d=d, **values), printed):
            cells.append(cell(row, column, ours, theirs, unit="s"))
    settings = {"parameters": d, "model": model, "defaults": "p = 0.5, T = 2, k = 10, N = 120", "encryption": "ckks"}
    title = "Seconds per component"
    return Reproduction("mingledpie", "table4", title, "", settings, cells, notes=[HERE])


def _seconds(d: int, k: int, p: float, t: int, n: int) -> tuple[list[float], list[float], list[float]]:
    """(one client's identity, the server's aggregation of all, one client's decryption and rebuilding), each several times."""
    random = generator("table4", k, int(1e6 * p), t, n)
    keys = fmd.generate_keys(k, p, random.bytes)
    sets: list[list[int]] = []
    identity = []
    for _ in range(REPEATS):
        sets.clear()
        spent = _timed(lambda: sets.extend(fmd.draw_set(keys, i % k, t, draw=random.bytes) for i in range(n)))
        identity.append(spent / n)
    seal = sealing.generate_keys("ckks", 16.0, n)
    seals = Seals(seal)
    # One sealed model per cluster stands for all of its clients: adding costs the same whose it is.
    blobs = [seal_with_indicator(seals, torch.from_numpy(random.normal(0, 0.05, d)), j, k)[0] for j in range(k)]
    public = sealing.sealer(seal).public()
    sums: list[bytes] = []

    def aggregate() -> None:
        mixer = sealing.mixer(public, k, d + k)
        for i, shown in enumerate(sets):
            mixer.add(blobs[i % k], shown)
        sums[:] = mixer.sums()

    aggregation = [_timed(aggregate) for _ in range(REPEATS)]
    sizes = np.bincount(np.concatenate([np.array(s) for s in sets]), minlength=k).tolist()
    rebuilding = [_timed(_rebuild, seals, MingledSums(sums, sizes), k) for _ in range(REPEATS)]
    return identity, aggregation, rebuilding


def _rebuild(seals: Seals, message: MingledSums, k: int) -> None:
    opened, counts = open_sums(seals, message, k)
    solve(counts, opened)


def table9(options: Options) -> Reproduction:
    """Seconds to encrypt and decrypt a model with CKKS, by model."""
    options.alone()
    cells: list[Cell] = []
    for column, (model, shape, classes, printed) in TABLE9.items():
        d = parameters(model, shape, classes)
        options.say(f"{column}: {d:,} parameters")
        box = sealing.sealer(sealing.generate_keys("ckks"))
        vector = generator("table9", model).normal(0, 0.05, d)
        sealed = box.seal(vector)
        sealing_took = [_timed(box.seal, vector) for _ in range(REPEATS)]
        opening_took = [_timed(box.open, sealed) for _ in range(REPEATS)]
        cells.append(cell(column, "encryption", sealing_took, printed[0], unit="s"))
        cells.append(cell(column, "decryption", opening_took, printed[1], unit="s"))
        cells.append(cell(column, "bytes per parameter", [len(sealed) / d], unit=""))
    settings = {"encryption": "ckks", "shown": f"mean of {REPEATS}, one thread"}
    return Reproduction("mingledpie", "table9", "Seconds of encryption by model", "", settings, cells, notes=[HERE])


def parameters(model: str, shape: tuple[int, ...], classes: int) -> int:
    kind = "image" if len(shape) > 1 else "binary"
    return sum(p.numel() for p in MODELS[model].build(shape, classes, kind).parameters())


def _timed(work: Callable[..., Any], *arguments: Any) -> float:
    begin = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begin
