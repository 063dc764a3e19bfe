"""What MingledPie's shown sets are as a DP statement, beside randomised response with the same A1 success. Closed forms, no runs.

    python benchmarks/bench_identities.py

A1 guesses uniformly within a shown set, or believes a randomised answer: with equal clusters both are right as often as the table
says. `largest`: the same adversary with the sizes of unequal clusters (12, 12, 24, 36, 36 clients) guesses the likeliest; who
sees nothing guesses a largest cluster and is right in .300. `worst odds`: how many times likelier one cluster can become against
another by what is shown, at most. `10 sets`: ten fresh ones.
"""

from __future__ import annotations

import math
from itertools import combinations

from covey.crypto.identity_math import false_counts, guess_accuracy, ruled_out
from covey.ledger.clients import epsilon_of_truth, truth_probability

CLUSTERS, SIZES = 5, (12, 12, 24, 36, 36)
SETTINGS = ((0.25, 2), (0.5, 2), (0.75, 2), (0.75, 4))


def by_sets(rate: float, threshold: int) -> float:
    """How often the likeliest member of the shown set is right, with these sizes."""
    shares, counts = [size / sum(SIZES) for size in SIZES], false_counts(CLUSTERS, rate, threshold)
    right = 0.0
    for m, weight in enumerate(counts):
        each = weight / math.comb(CLUSTERS - 1, m)
        right += sum(each * max(shares[j] for j in shown) for shown in combinations(range(CLUSTERS), m + 1))
    return right


def by_answers(epsilon: float) -> float:
    shares, truth = [size / sum(SIZES) for size in SIZES], truth_probability(epsilon, CLUSTERS)
    other = (1 - truth) / (CLUSTERS - 1)
    return sum(max(shares[j] * (truth if j == told else other) for j in range(CLUSTERS)) for told in range(CLUSTERS))


def main() -> None:
    print(
        "| p, T | A1 | sets: δ at any ε | δ, 10 sets | worst odds | largest | answers: ε | δ | ε, 10 | worst odds | largest |"
    )
    print("| --- " * 11 + "|")
    for rate, threshold in SETTINGS:
        success = guess_accuracy(CLUSTERS, rate, threshold)
        epsilon = epsilon_of_truth(success, CLUSTERS)
        sets = [f"{ruled_out(CLUSTERS, rate, threshold, sets=n):.3f}" for n in (1, 10)]
        print(
            f"| {rate}, {threshold} | {success:.3f} | {sets[0]} | {sets[1]} | ∞ | {by_sets(rate, threshold):.3f} | "
            f"{epsilon:.2f} | 0 | {10 * epsilon:.1f} | {math.exp(epsilon):.1f} | {by_answers(epsilon):.3f} |"
        )


if __name__ == "__main__":
    main()
