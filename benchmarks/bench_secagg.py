"""One average of models under masks, against nothing, a shared key and threshold decryption: what it costs, and who reads uploads.

    python benchmarks/bench_secagg.py [--json FILE] [--clients 8] [--length 159010] [--clusters 5]
    python benchmarks/bench_secagg.py --coalition [--clients 12]

CPU seconds, the median of several turns, of one mean of `clients` models of `length` numbers; t = ⌈2n/3⌉ for masks and for
threshold decryption. "client" is sealing and helping to open, "server" adding and unmasking or fusing, "open" what every client
does with the sum that it gets. Bytes are what one client sends and gets in a round. Lines: a tenth of the clients lost before the
upload (their masks with all others are recovered); and IFCA's clusters, of clients in equal parts. No network and no training are
in it. CKKS and threshold decryption hide the sum from the server, masks do not.

With --coalition: the attack `pooled_keys` on digits, share of the others' uploads that the server reads with 1, t − 1 and t clients
on its side, 95 % interval; control (no keys) is 0.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from covey import Experiment, run
from covey.crypto.openings import secagg, threshold
from covey.crypto.openings.threshold import OpeningQuestion
from covey.crypto.sealing import sealing

OCCASION = "bench:1"


def seconds(work: Callable[[], Any], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def clear(vectors: np.ndarray, repeats: int) -> dict[str, float]:
    models = vectors.astype(np.float32)

    def mean() -> None:
        total = np.zeros(models.shape[1])
        for model in models:
            total += model

    return {
        "client_s": 0.0,
        "server_s": seconds(mean, repeats),
        "open_s": 0.0,
        "up": models[0].nbytes,
        "down": models[0].nbytes,
    }


def shared_key(scheme: str, vectors: np.ndarray, repeats: int) -> dict[str, float]:
    box = sealing.sealer(sealing.generate_keys(scheme, 16.0, len(vectors)))
    blobs = [box.seal(vector) for vector in vectors]
    everyone = np.ones((1, len(vectors)), dtype=bool)
    (total,) = sealing.mix(box.public(), everyone, blobs)
    return {
        "client_s": seconds(lambda: box.seal(vectors[0]), repeats),
        "server_s": seconds(lambda: sealing.mix(box.public(), everyone, blobs), repeats),
        "open_s": seconds(lambda: box.open(total), repeats),
        "up": len(blobs[0]),
        "down": len(total),
    }


def opened_together(vectors: np.ndarray, quorum: int, repeats: int) -> dict[str, float]:
    clients, length = vectors.shape
    public, own = threshold.generate_keys(16.0, clients, clients, quorum)
    members = [threshold.member(public, i, key) for i, key in enumerate(own)]
    uploads = [one.seal([vector], OCCASION) for one, vector in zip(members, vectors)]
    group = list(range(clients))
    questions = {j: OpeningQuestion([group], {i: uploads[i][1][j] for i in group}) for j in group}
    answers = {j: members[j].advise(questions[j], OCCASION) for j in group}

    def serve() -> tuple[list[bytes], Any]:
        mixer = threshold.mixer(public, 1, length)
        for sealed, _ in uploads:
            mixer.add(sealed[0], [0])
        return mixer.sums(), threshold.fuse(public, answers, OCCASION, [0], [0])

    sums, opening = serve()
    assert np.abs(members[0].open(sums, opening)[0] - vectors.sum(0)).max() < 1e-4, "the sum is wrong"
    boxes = sum(map(len, uploads[0][1]))
    seal = seconds(lambda: members[0].seal([vectors[0]], OCCASION), repeats)
    return {
        "client_s": seal + seconds(lambda: members[0].advise(questions[0], OCCASION), repeats),
        "server_s": seconds(serve, repeats),
        "open_s": seconds(lambda: members[0].open(sums, opening), repeats),
        "up": len(uploads[0][0][0]) + boxes + sum(map(len, answers[0].shares)) + len(answers[0].pads),
        "down": len(sums[0]) + boxes + sum(map(len, [*opening.fused, *opening.pads])),
    }


def masked(
    vectors: np.ndarray, quorum: int, repeats: int, weight: int = 1, lost: int = 0, clusters: int = 1
) -> dict[str, float]:
    clients, length = vectors.shape
    public, own = secagg.generate_keys(16.0, clients, clients, quorum, weight)
    members = [secagg.member(public, i, key) for i, key in enumerate(own)]
    there = range(clients - lost)
    uploads = {i: members[i].mask(vectors[i], 1, OCCASION) for i in there}
    groups = {j: [i for i in there if i % clusters == j] for j in range(clusters)}
    sets = list(groups.values())
    questions = {j: OpeningQuestion(sets, {i: uploads[i].boxes[j] for i in there}) for j in there}
    answers = {j: members[j].advise(questions[j], OCCASION) for j in there}
    tags = {i: uploads[i].tags for i in there}

    def serve() -> Any:
        sums = {}
        for j, group in groups.items():
            mixer = secagg.mixer(public, 1, length + 1)
            for i in group:
                mixer.add(uploads[i].masked, [0])
            sums[j] = mixer.sums()[0]
        return secagg.unmask(public, sums, groups, tags, answers).sums

    for j, (total, _) in serve().items():
        assert np.abs(total - vectors[groups[j]].sum(0)).max() < 1e-4, "the sum is wrong"
    boxes = sum(map(len, uploads[0].boxes))
    mask = seconds(lambda: members[0].mask(vectors[0], 1, OCCASION), repeats)
    return {
        "client_s": mask + seconds(lambda: members[0].advise(questions[0], OCCASION), repeats),
        "server_s": seconds(serve, max(1, repeats // 3)),
        "open_s": 0.0,
        "up": len(uploads[0].masked) + boxes + len(tags[0]) + sum(map(len, answers[0].shares.values())),
        "down": 4 * length * clusters + sum(map(len, questions[0].boxes.values())),
    }


def costs(o: argparse.Namespace) -> dict[str, dict[str, float]]:
    vectors = np.random.default_rng(0).normal(0, 0.05, (o.clients, o.length))
    quorum, lost = secagg.default_quorum(o.clients), max(1, o.clients // 10)
    figures = {
        "none": clear(vectors, o.repeats),
        "CKKS, shared key": shared_key("ckks", vectors, o.repeats),
        "BFV, shared key": shared_key("bfv", vectors, o.repeats),
        "threshold": opened_together(vectors, quorum, o.repeats),
        "secagg, by clients": masked(vectors, quorum, o.repeats),
        "secagg, by samples": masked(vectors, quorum, o.repeats, weight=1 << 20),
        f"secagg, {lost} lost": masked(vectors, quorum, o.repeats, lost=lost),
    }
    if o.clusters * 3 <= o.clients:
        figures[f"secagg, {o.clusters} clusters"] = masked(vectors, quorum, o.repeats, clusters=o.clusters)
    print(f"{o.clients} clients, t = {quorum}, {o.length:,} numbers")
    print(f"{'':20} {'client s':>9} {'server s':>9} {'open s':>8} {'up MB':>8} {'down MB':>8}")
    for name, row in figures.items():
        print(
            f"{name:20} {row['client_s']:9.4f} {row['server_s']:9.4f} {row['open_s']:8.4f} {row['up'] / 1e6:8.3f} "
            f"{row['down'] / 1e6:8.3f}"
        )
    return figures


def coalition(clients: int) -> dict[str, dict[str, float]]:
    table: dict[str, Any] = {
        "dataset": "digits",
        "model": "softmax",
        "clients": clients,
        "clusters": 2,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 2, "epochs": 1},
        "evaluation": {"every": 2, "samples": 100},
    }
    t = secagg.default_quorum(clients)
    ways = [("fedavg", "none", [1]), ("routing", "ckks", [1]), ("routing", "threshold", [1, t - 1, t])]
    ways += [("fedavg", "secagg", [1, t - 1, t]), ("ifca", "secagg", [1, t - 1, t])]
    figures = {}
    for algorithm, encryption, sizes in ways:
        quorum = {"quorum": t} if encryption in ("threshold", "secagg") else {}
        for size in sizes:
            place = "+".join(["server", *(f"client:{i}" for i in range(size))])
            attack = {"name": "pooled_keys", "vantage": place}
            experiment = Experiment.of(
                table, algorithm={"name": algorithm, **quorum}, encryption=encryption, attacks=[attack]
            )
            one = run(experiment, quiet=True).attacks["pooled_keys"]
            figures[f"{algorithm}, {encryption}, server + {size}"] = one
            value, low, high = (100 * one[key] for key in ("value", "low", "high"))
            print(
                f"{algorithm:8} {encryption:10} server + {size:2}  {value:5.1f} % [{low:.1f}, {high:.1f}]  {one['verdict']}"
            )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    parser.add_argument("--coalition", action="store_true")
    parser.add_argument("--clients", type=int, default=0, help="0: 8, or 12 for the coalition")
    parser.add_argument("--clusters", type=int, default=5)
    parser.add_argument("--length", type=int, default=159_010)
    parser.add_argument("--repeats", type=int, default=7)
    o = parser.parse_args()
    o.clients = o.clients or (12 if o.coalition else 8)
    figures = coalition(o.clients) if o.coalition else costs(o)
    if o.json:
        with open(o.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
