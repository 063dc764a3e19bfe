"""Shares by hand, from any quorum, and that fewer say nothing."""

from itertools import combinations

import numpy as np
import pytest

from covey.crypto.noise.stream import Stream
from covey.crypto.openings import shamir
from covey.errors import CoveyError


def test_weights_by_hand():
    """At the points 1 and 3: λ = 3/(3 − 1) and 1/(1 − 3)."""
    assert shamir.weights([0, 2], 97) == [3 * pow(2, -1, 97) % 97, pow(-2, -1, 97)]
    with pytest.raises(CoveyError, match="different"):
        shamir.weights([1, 1], 97)


@pytest.mark.parametrize(("holders", "quorum"), [(1, 1), (3, 3), (5, 3), (8, 5)])
def test_any_quorum_gives_the_secret_and_sums_of_it(holders, quorum):
    rng = np.random.default_rng(0)
    secrets = rng.integers(-240, 241, (2, 16))
    shares = [shamir.split(secret, holders, quorum, 3847, Stream()) for secret in secrets]
    for chosen in combinations(range(holders), quorum):
        total = (shares[0] + shares[1])[list(chosen)] % 3847
        assert np.array_equal(shamir.centred(shamir.combine(total, chosen, 3847), 3847), secrets.sum(0))


def test_fewer_shares_fit_every_secret():
    """Of 3 out of 5: two shares, and for any secret a polynomial through both."""
    prime = 101
    shares = shamir.split(np.array([7]), 5, 3, prime, Stream())
    for secret in range(prime):
        third = [v for v in range(prime) if _value_at_0(shares[0, 0], shares[3, 0], v, prime) == secret]
        assert len(third) == 1


def _value_at_0(first, fourth, fifth, prime):
    return int(shamir.combine(np.array([[first], [fourth], [fifth]]), [0, 3, 4], prime)[0])


@pytest.mark.parametrize(("prime", "holders", "quorum"), [(97, 3, 4), (97, 3, 0), (5, 5, 2), (2**26, 10, 3)])
def test_what_cannot_be_shared_is_refused(prime, holders, quorum):
    with pytest.raises(CoveyError, match=r"shares"):
        shamir.split(np.array([1]), holders, quorum, prime, Stream())
