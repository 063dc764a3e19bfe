"""What one client that helps to open sums learns of all others' clusters, by name, from who is in which sum and its counts.

    python benchmarks/bench_counts.py [--clients 40] [--clusters 5] [--draws 10]

MingledPie under `encryption = "threshold"`, with sets as covey draws them (rate 1/2, threshold 2) that stay, and clusters that do
not change; nothing is trained. Share of clients whose cluster is found, its 95 % interval over draws of the federation, and A1's on
the same sets. The client takes part in every round. Attack `counts_by_name` does the same in a run, with what a client is sent.
"""

import argparse

import numpy as np

from covey.clustering.isolation import clusters_by_counts
from covey.crypto import fmd
from covey.statistics import student


def shares(clients: int, clusters: int, present: float, rounds: int, seed: int) -> tuple[float, float]:
    """(found by counts, found by the set alone) in one draw."""
    rng = np.random.default_rng(seed)
    true = rng.integers(clusters, size=clients)
    keys = fmd.generate_keys(clusters, 0.5, rng.bytes)
    sets = [fmd.shown_set(keys, int(b), 2, fmd.no_memory(clusters), draw=rng.bytes)[0] for b in true]
    shown = np.array([[a in one for one in sets] for a in range(clusters)])
    groups = [shown & (rng.random(clients) < present) for _ in range(rounds)]
    counts = [member.astype(float) @ np.eye(clusters)[true] for member in groups]
    solved = clusters_by_counts(groups, counts)
    assert solved is not None  # the true clusters are a solution
    return float(np.mean(solved == true)), float(np.mean(1 / shown.sum(0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--clusters", type=int, default=5)
    parser.add_argument("--draws", type=int, default=10)
    o = parser.parse_args()
    print(f"{o.clients} clients, {o.clusters} clusters, {o.draws} draws\n")
    print("| clients in a round | rounds | found from counts | from the set alone |\n| --- | --- | --- | --- |")
    for present, rounds in ((1.0, 10), (0.9, 5), (0.9, 10), (0.5, 5), (0.5, 10)):
        found = [shares(o.clients, o.clusters, present, rounds, seed) for seed in range(o.draws)]
        ours, alone = (student([draw[place] for draw in found]) for place in (0, 1))
        counted, guessed = (f"{100 * one.value:.0f} ± {100 * one.half:.0f} %" for one in (ours, alone))
        print(f"| {present:.0%} | {rounds} | {counted} | {guessed} |")


if __name__ == "__main__":
    main()
