"""Sums that clients open together against a shared key, exact routing and Paillier: seconds and bytes of one client and round.

    python benchmarks/bench_threshold.py [--json FILE] [--clients 8] [--quorum 5] [--clusters 5] [--length 159010]

CPU seconds, the median of several turns, of one model of `length` numbers. Sealing, a client's part of the opening, fusing and
opening are timed alone; bytes are what one client sends and gets in a round of MingledPie (every client in half of the sums) or
of exact routing (a block for every cluster). Paillier's packed ciphertexts, of 3072 bits, are timed on a part of the model and
counted up. No network and no training are in it.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from covey.crypto.openings import threshold
from covey.crypto.paillier.paillier import generate
from covey.crypto.paillier.vectors import VectorOpener
from covey.crypto.sealing import sealing
from covey.crypto.sealing.packing import Packing


def seconds(work: Callable[[], Any], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def shared_key(
    scheme: str, vectors: np.ndarray, groups: list[list[int]], blocks: int, repeats: int
) -> dict[str, float]:
    """`blocks`: sealed vectors of a client, 1 for MingledPie, one for each cluster for exact routing."""
    box = sealing.sealer(sealing.generate_keys(scheme, 16.0, len(vectors)))
    blobs = [box.seal(vector) for vector in vectors]
    sums = sealing.mix(box.public(), np.array([[i in g for i in range(len(vectors))] for g in groups]), blobs)
    return {
        "seal_s": blocks * seconds(lambda: box.seal(vectors[0]), repeats),
        "advise_s": 0.0,
        "fuse_s": 0.0,
        "open_s": seconds(lambda: [box.open(one) for one in sums], repeats),
        "up": blocks * len(blobs[0]),
        "down": sum(map(len, sums)),
    }


def together(vectors: np.ndarray, groups: list[list[int]], quorum: int, blocks: int, repeats: int) -> dict[str, float]:
    clients, length = vectors.shape
    public, own = threshold.generate_keys(16.0, clients, clients, quorum)
    members = [threshold.member(public, i, key) for i, key in enumerate(own)]
    uploads = [m.seal([vector] * blocks, "bench:1") for m, vector in zip(members, vectors)]
    everyone = [list(range(clients))]
    asked, of, numbers = (groups, list(range(len(groups))), [0] * len(groups))
    if blocks > 1:  # exact routing: one key opens all sums
        asked, of, numbers = everyone, [0] * blocks, list(range(blocks))
    mixer = threshold.mixer(public, len(of), length)
    for i, (sealed, _) in enumerate(uploads):
        for n, one in enumerate(sealed):
            mixer.add(one, [n] if blocks > 1 else [g for g, group in enumerate(groups) if i in group])
    sums = mixer.sums()
    senders = sorted({i for group in asked for i in group})
    question = {j: threshold.OpeningQuestion(asked, {i: uploads[i][1][j] for i in senders}) for j in range(clients)}
    answers = {j: members[j].advise(question[j], "bench:1") for j in range(clients)}
    opening = threshold.fuse(public, answers, "bench:1", of, numbers)
    opened = members[-1].open(sums, opening)
    expected = vectors[asked[of[0]]].sum(0)
    assert np.abs(opened[0] - expected).max() < 1e-5, "the sum is wrong"
    boxes = sum(map(len, uploads[0][1]))
    return {
        "seal_s": seconds(lambda: members[0].seal([vectors[0]] * blocks, "bench:1"), repeats),
        "advise_s": seconds(lambda: members[0].advise(question[0], "bench:1"), repeats),
        "fuse_s": seconds(lambda: threshold.fuse(public, answers, "bench:1", of, numbers), repeats),
        "open_s": seconds(lambda: members[-1].open(sums, opening), repeats),
        "up": sum(map(len, uploads[0][0])) + boxes + sum(map(len, answers[0].shares)) + len(answers[0].pads),
        "down": sum(map(len, sums)) + boxes + sum(map(len, [*opening.fused, *opening.pads])),
        "boxes": boxes,
    }


def paillier(length: int, sums: int, bits: int = 3072) -> dict[str, float]:
    """A vector under one Paillier key that clients share, packed; on a part of it, counted up."""
    part = 4000
    party = VectorOpener(generate(bits), Packing(bits), 1)
    vector = np.random.default_rng(0).normal(0, 0.05, part)
    blob, share = party.sealer.seal(vector), length / part
    return {
        "seal_s": share * seconds(lambda: party.sealer.seal(vector), 1),
        "advise_s": 0.0,
        "fuse_s": 0.0,
        "open_s": sums * share * seconds(lambda: party.open(blob, additions=1), 1),
        "up": share * len(blob),
        "down": sums * share * len(blob),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--quorum", type=int, default=5)
    parser.add_argument("--clusters", type=int, default=5)
    parser.add_argument("--length", type=int, default=159_010)
    parser.add_argument("--repeats", type=int, default=7)
    o = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors = rng.normal(0, 0.05, (o.clients, o.length + o.clusters))
    groups = [sorted(rng.choice(o.clients, max(2, o.clients // 2), replace=False).tolist()) for _ in range(o.clusters)]
    figures = {
        "shared key, CKKS": shared_key("ckks", vectors, groups, 1, o.repeats),
        "shared key, BFV": shared_key("bfv", vectors, groups, 1, o.repeats),
        "threshold": together(vectors, groups, o.quorum, 1, o.repeats),
        "shared key, Paillier": paillier(o.length, o.clusters),
        "routing, BFV": shared_key("bfv", vectors, groups, o.clusters, o.repeats),
        "routing, threshold": together(vectors, groups, o.quorum, o.clusters, o.repeats),
    }
    print(f"{o.clients} clients, quorum {o.quorum}, {o.clusters} sums, {o.length:,} numbers")
    print(f"{'':20} {'seal s':>8} {'advise s':>9} {'fuse s':>8} {'open s':>8} {'up MB':>8} {'down MB':>8}")
    for name, row in figures.items():
        print(
            f"{name:20} {row['seal_s']:8.4f} {row['advise_s']:9.4f} {row['fuse_s']:8.4f} {row['open_s']:8.4f} "
            f"{row['up'] / 1e6:8.3f} {row['down'] / 1e6:8.3f}"
        )
    if o.json:
        with open(o.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
