"""Sealing against TenSEAL as it is commonly used, and against copying bytes. All ratios come from one run.

    python benchmarks/bench_sealing.py [--json FILE] [--clients 120]

The work of one MingledPie round at d = 159,010: 120 sealed models into 10 sums, p = .5, bytes in, bytes out.
TenSEAL is run as in its tutorials: degree 8192, primes [60, 40, 40, 60], one `CKKSVector` per model, with the
public key, deserialise, add, serialise. It is slow, so its three steps are timed alone and multiplied by their number.
Without TenSEAL (`pip install tenseal`, or the `bench` extra of covey) only our own figures are printed.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from covey.crypto import fmd
from covey.crypto.sealing import sealing

LENGTH, CLUSTERS, RATE = 159_010, 10, 0.5
TENSEAL_REPEATS = 5


def seconds(*works: Callable[[], Any], repeats: int) -> list[float]:
    """The median processor time of each, all threads together, run in turns so that a busy machine is busy for all of them."""
    times: list[list[float]] = [[] for _ in works]
    gc.disable()
    for turn in range(repeats + 1):
        for work, found in zip(works, times, strict=True):
            start = time.process_time()
            work()
            if turn:  # the first turn warms up
                found.append(time.process_time() - start)
    gc.enable()
    return [statistics.median(found) for found in times]


def ours(scheme: str, model: np.ndarray, member: np.ndarray, repeats: int) -> dict[str, float]:
    sealer = sealing.sealer(sealing.generate_keys(scheme))
    blobs = [sealer.seal(model) for _ in range(member.shape[1])]  # distinct bytes, as from distinct clients
    sums = sealing.mix(sealer.public(), member, blobs)
    opened = sealer.open(sums[0])
    assert np.abs(opened - member[0].sum() * model.astype(np.float64)).max() < 1e-4, "the sum is wrong"
    room = np.zeros((len(blobs), len(blobs[0])), dtype=np.uint8)
    sources = [np.frombuffer(blob, dtype=np.uint8) for blob in blobs]

    def copy() -> None:
        for target, source in zip(room, sources, strict=True):
            np.copyto(target, source)

    seal, open_, aggregate, memcpy = seconds(
        lambda: sealer.seal(model),
        lambda: sealer.open(sums[0]),
        lambda: sealing.mix(sealer.public(), member, blobs),
        copy,
        repeats=repeats,
    )
    return {"seal_s": seal, "open_s": open_, "aggregate_s": aggregate, "memcpy_s": memcpy, "bytes": len(blobs[0])}


def tenseal_way(model: np.ndarray, member: np.ndarray) -> dict[str, float]:
    import tenseal

    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
    context.global_scale = 2**40
    values = model.astype(np.float64).tolist()
    blob = tenseal.ckks_vector(context, values).serialize()
    vector, total = tenseal.ckks_vector_from(context, blob), tenseal.ckks_vector_from(context, blob)
    # Each step is timed alone and counted as often as a server must take it; the first addend of a sum is free.
    seal, open_, load, add, save = seconds(
        lambda: tenseal.ckks_vector(context, values).serialize(),
        lambda: tenseal.ckks_vector_from(context, blob).decrypt(),
        lambda: tenseal.ckks_vector_from(context, blob),
        lambda: total.add_(vector),
        total.serialize,
        repeats=TENSEAL_REPEATS,
    )
    aggregate = member.shape[1] * load + int(member.sum() - CLUSTERS) * add + CLUSTERS * save
    steps = {"load_s": load, "add_s": add, "save_s": save}
    return {"seal_s": seal, "open_s": open_, "aggregate_s": aggregate, "bytes": len(blob), **steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    parser.add_argument("--clients", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    model = rng.normal(0, 0.05, LENGTH).astype(np.float32)
    keys = fmd.generate_keys(CLUSTERS, RATE, rng.bytes)
    member = np.zeros((CLUSTERS, options.clients), dtype=bool)
    for i in range(options.clients):
        member[fmd.draw_set(keys, i % CLUSTERS, 2, draw=rng.bytes), i] = True

    figures: dict[str, Any] = {"length": LENGTH, "clients": options.clients, "clusters": CLUSTERS}
    # A server aggregates round after round: without this the scheme that comes first pays for fresh pages of memory (2x seen).
    ours("bfv", model, member, 2)
    for scheme in ("ckks", "bfv"):
        found = figures[scheme] = ours(scheme, model, member, options.repeats)
        found["aggregate_over_memcpy"] = found["aggregate_s"] / found["memcpy_s"]
        print(
            f"{scheme}: seal {found['seal_s'] * 1e3:.1f} ms, open {found['open_s'] * 1e3:.1f} ms, "
            f"{found['bytes'] / LENGTH:.2f} bytes per float, aggregate {found['aggregate_s'] * 1e3:.0f} ms "
            f"= {found['aggregate_over_memcpy']:.2f} x copying the bytes (goal: at most 4)"
        )
    figures["identity_set_ms"] = 1e3 * seconds(lambda: fmd.draw_set(keys, 0, 2), repeats=50)[0]
    print(f"identity set at k = 10, n = 1: {figures['identity_set_ms']:.2f} ms (goal: at most 2)")

    try:
        rival = figures["tenseal"] = tenseal_way(model, member)
    except ImportError:
        print("TenSEAL is not installed, so there is nothing to compare with: pip install 'covey[bench]' or tenseal.")
    else:
        print(
            f"TenSEAL: seal {rival['seal_s'] * 1e3:.0f} ms, open {rival['open_s'] * 1e3:.0f} ms, "
            f"{rival['bytes'] / LENGTH:.1f} bytes per float, aggregate {rival['aggregate_s']:.2f} s "
            f"(load {rival['load_s'] * 1e3:.1f} ms, add {rival['add_s'] * 1e3:.1f} ms, save {rival['save_s'] * 1e3:.1f} ms, "
            "times their number)"
        )
        goals = {"aggregate_s": 20, "seal_s": 4, "bytes": 4, "open_s": None}
        figures["times_better_than_tenseal"] = {}
        for scheme in ("ckks", "bfv"):
            ratios = {what: rival[what] / figures[scheme][what] for what in goals}
            figures["times_better_than_tenseal"][scheme] = ratios
            print(
                f"TenSEAL over {scheme}: "
                + ", ".join(
                    f"{what.removesuffix('_s')} {ratio:.1f}" + (f" (goal: {goals[what]})" if goals[what] else "")
                    for what, ratio in ratios.items()
                )
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
