"""What an identity set gives away, in closed form (MingledPie, Sec. V; no randomness, no cryptography).

A client of `k` clusters shows its true cluster and `M ~ Binomial(k - 1, p)` others, redrawn until the threshold
`T` holds. The paper has two readings of `T`, and its tables use both:

* `"members"` (Algorithm 1, the default): the set has at least `T` members, the true one included, `M >= T - 1`;
* `"false"` (Eq. 9 and Table II): at least `T` *false* members, `M >= T`.

Eq. 9 as printed gives an effective rate of .75 at k=5, p=.5, T=2; the conditional means below give .5333 and .6364.
"""

from math import comb
from typing import Literal, get_args

from covey.errors import CoveyError, nearest

Reading = Literal["members", "false"]


def least_false(clusters: int, threshold: int, reading: Reading = "members") -> int:
    """How many false identities a set must have; refuses a threshold that no set of `clusters` can meet."""
    if reading not in get_args(Reading):
        raise CoveyError(f"Unknown reading of the threshold '{reading}'{nearest(reading, get_args(Reading))}")
    if clusters < 1:
        raise CoveyError(f"Found {clusters} clusters, expected at least 1.")
    most = clusters if reading == "members" else clusters - 1
    if not 0 <= threshold <= most:
        raise CoveyError(
            f"Threshold T = {threshold} with {clusters} clusters: reading '{reading}' allows 0 to {most}; "
            "lower T or use more clusters."
        )
    return max(threshold - 1, 0) if reading == "members" else threshold


def acceptance(clusters: int, rate: float, threshold: int, reading: Reading = "members") -> float:
    """Probability that one draw meets the threshold; its inverse is the expected number of draws."""
    floor = least_false(clusters, threshold, reading)
    return sum(_binomial(clusters - 1, rate)[floor:])


def false_counts(clusters: int, rate: float, threshold: int = 0, reading: Reading = "members") -> list[float]:
    """`P(M = m)` for `m = 0..k-1`, given that the threshold holds."""
    floor = least_false(clusters, threshold, reading)
    mass = [0.0 if m < floor else weight for m, weight in enumerate(_binomial(clusters - 1, rate))]
    total = sum(mass)
    if total == 0.0:
        raise CoveyError(
            f"No set of {clusters} clusters meets T = {threshold} ('{reading}') at rate p = {rate}: raise p or lower T."
        )
    return [weight / total for weight in mass]


def guess_accuracy(clusters: int, rate: float, threshold: int, reading: Reading = "members") -> float:
    """`E[1/|CI|]`: how often a uniform guess inside the shown set finds the true cluster."""
    return sum(weight / (1 + m) for m, weight in enumerate(false_counts(clusters, rate, threshold, reading)))


def effective_rate(clusters: int, rate: float, threshold: int, reading: Reading = "members") -> float:
    """Probability that a given other cluster is in the shown set: above `p`, since small sets are redrawn."""
    if clusters == 1:
        return 0.0
    counts = false_counts(clusters, rate, threshold, reading)
    return sum(m * weight for m, weight in enumerate(counts)) / (clusters - 1)


def ruled_out(clusters: int, rate: float, threshold: int, reading: Reading = "members", sets: int = 1) -> float:
    """δ of showing so many fresh sets: with this probability they rule out another given cluster for certain.

    A set that holds both clusters is as likely under one as under the other; one that holds only the first is impossible under the
    second. So showing sets is (0, δ)-private for a replaced cluster, and at no ε, however large, private with a smaller δ.
    """
    return 1.0 - effective_rate(clusters, rate, threshold, reading) ** sets


def pairing(clusters: int, rate: float, threshold: int, reading: Reading = "members") -> float:
    """How much likelier two given others are in a set together than if each came alone: 1 if the threshold never bites."""
    counts = false_counts(clusters, rate, threshold, reading)
    one = sum(m * weight for m, weight in enumerate(counts)) / max(clusters - 1, 1)
    both = sum(m * (m - 1) * weight for m, weight in enumerate(counts)) / max((clusters - 1) * (clusters - 2), 1)
    return both / one**2 if one else 0.0


def _binomial(n: int, rate: float) -> list[float]:
    if not 0.0 <= rate <= 1.0:
        raise CoveyError(f"False positive rate p = {rate}: expected a number from 0 to 1.")
    return [comb(n, m) * rate**m * (1.0 - rate) ** (n - m) for m in range(n + 1)]
