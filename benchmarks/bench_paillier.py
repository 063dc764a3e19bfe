"""Sealing one model with Paillier, against `phe` with one weight per ciphertext, in the same run.

    python benchmarks/bench_paillier.py [--bits 2048 3072] [--workers 1] [--fast-decryption] [--json FILE]

The rival needs about half an hour for a model of 178,110 weights (the MLP 784-200-100-10), so it is measured on a slice
of it, before and after each of our passes, and scaled to the whole; the table says so. A ratio is the median over the
passes, with the smallest and largest, since machines are shared; for the same reason seconds are CPU seconds of the one
process that both sides run in, or wall clock with more workers. It encrypts weights as they are and ours
rounds them to 24 bits behind the point, so the error of both is shown. `pip install phe` (or the `bench` extra).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from covey.crypto.paillier.paillier import generate
from covey.crypto.paillier.vectors import VectorOpener
from covey.crypto.sealing.packing import Packing

DIMENSION = 178_110
GOALS = {"encrypt": 300.0, "decrypt": 30.0}


def timed(work: Callable[[], Any], workers: int) -> tuple[float, Any]:
    clock = time.process_time if workers == 1 else time.perf_counter
    start = clock()
    result = work()
    return clock() - start, result


def measure(bits: int, workers: int, slice_size: int, repeats: int, **key: Any) -> dict[str, Any]:
    from phe import paillier as rival

    model = np.random.default_rng(0).normal(0, 0.05, DIMENSION)
    party = VectorOpener(generate(bits, **key), Packing(bits), workers)
    table_s, _ = timed(lambda: party.key.public._powers, 1)  # once per key and process, so apart from sealing
    public, private = rival.generate_paillier_keypair(n_length=bits)
    part = [float(w) for w in model[:slice_size]]
    names = [f"{who} {what}" for who in ("ours", "phe") for what in GOALS]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    blob, opened, decrypted = b"", model, part

    def rival_pass() -> tuple[float, float]:
        nonlocal decrypted
        encrypting, encrypted = timed(lambda: [public.encrypt(w) for w in part], workers)
        decrypting, decrypted = timed(lambda: [private.decrypt(c) for c in encrypted], workers)
        return encrypting, decrypting

    for _ in range(repeats):
        before = rival_pass()
        sealing, blob = timed(lambda: party.sealer.seal(model), workers)
        opening, opened = timed(partial(party.open, blob, additions=1), workers)
        after = rival_pass()
        scaled = [(a + b) / 2 * DIMENSION / slice_size for a, b in zip(before, after, strict=True)]
        for name, value in zip(names, (sealing, opening, *scaled), strict=True):
            seconds[name].append(value)
    ratios = {
        what: sorted(
            theirs / ours for ours, theirs in zip(seconds[f"ours {what}"], seconds[f"phe {what}"], strict=True)
        )
        for what in GOALS
    }
    return {
        "bits": bits,
        "key": key,
        "workers": workers,
        "clock": "CPU" if workers == 1 else "wall",
        "dimension": DIMENSION,
        "slots": party.packing.slots,
        "bytes_per_weight": len(blob) / DIMENSION,
        "table_s": table_s,
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "ratio": {what: statistics.median(values) for what, values in ratios.items()},
        "ratio_range": {what: [values[0], values[-1]] for what, values in ratios.items()},
        "largest_error": {
            "ours": float(np.abs(opened - model).max()),
            "phe": float(np.abs(np.array(decrypted) - model[:slice_size]).max()),
        },
        "phe_slice": slice_size,
        "phe": version("phe"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bits", type=int, nargs="+", default=[2048, 3072])
    parser.add_argument(
        "--workers", type=int, default=1, help="processes to encrypt, threads to decrypt; phe takes one"
    )
    parser.add_argument("--fast-decryption", action="store_true", help="keys with a hidden subgroup, see paillier.py")
    parser.add_argument("--exponent-bits", type=int, default=256, help="bits // 2 needs no short-exponent assumption")
    parser.add_argument("--slice", type=int, default=200, help="weights that phe is measured on")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    try:
        import phe  # noqa: F401
    except ImportError:
        raise SystemExit("this benchmark needs its rival: pip install --constraint constraints.txt phe") from None
    key = {"fast_decryption": options.fast_decryption, "exponent_bits": options.exponent_bits}
    results = [measure(bits, options.workers, options.slice, options.repeats, **key) for bits in options.bits]
    for r in results:
        print(
            f"{r['bits']} bits, {r['dimension']:,} weights, {r['slots']} in a ciphertext, {r['workers']} worker(s), "
            f"{r['clock']} seconds, {r['key']}"
        )
        for what, goal in GOALS.items():
            ours, theirs = r["seconds"][f"ours {what}"], r["seconds"][f"phe {what}"]
            low, high = r["ratio_range"][what]
            aim = f", goal {goal:g}x" if r["bits"] == 2048 else ""
            print(
                f"  {what}: {ours:.2f} s; phe {theirs:,.0f} s (scaled from {r['phe_slice']} weights); "
                f"{r['ratio'][what]:,.0f}x ({low:,.0f} to {high:,.0f}){aim}"
            )
        print(f"  table of powers {r['table_s']:.2f} s, once per key; {r['bytes_per_weight']:.1f} bytes a weight")
        print(f"  largest error: ours {r['largest_error']['ours']:.1e}, phe {r['largest_error']['phe']:.1e}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
