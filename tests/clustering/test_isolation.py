"""What sums over groups give away, worked out by hand; and how often three silos in two clusters give somebody away."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from covey.clustering.isolation import Groups, is_held_by_few, isolating, keeps_apart, smallest


def groups(*rows: str) -> Groups:
    return np.array([[letter == "1" for letter in row] for row in rows])


def test_a_group_of_one_is_everybodys() -> None:
    assert isolating(groups("100")) == [(1, 0), (2, 0)]
    assert smallest(groups("100", "111")) == 1


def test_a_group_of_two_is_each_others() -> None:
    assert isolating(groups("1100")) == [(0, 1), (1, 0)]
    assert isolating(groups("1110")) == []


def test_two_groups_that_differ_by_one() -> None:
    assert (3, 0) in isolating(groups("1110", "0110")) and smallest(groups("1110", "0110")) == 1


def test_three_groups_may_give_away_what_no_two_do() -> None:
    # a + b + c, c + d + e and a + b + d + e: the first two minus the third is 2 c.
    three = groups("11100", "00111", "11011")
    assert smallest(three) == 3 and (0, 2) in isolating(three)
    assert not keeps_apart(three, 3) and keeps_apart(three, 1)


def test_groups_that_are_equal_or_empty_tell_nothing_more() -> None:
    assert smallest(groups("000")) == 0 and keeps_apart(groups("000"), 3)
    assert keeps_apart(groups("11110000", "00001111"), 4) and not keeps_apart(groups("11110000", "00001111"), 5)
    assert keeps_apart(groups("1111", "1111"), 3)


@functools.cache  # most rounds look like one that was there before
def gives_away(member: bytes, clusters: int) -> bool:
    return bool(isolating(np.frombuffer(member, dtype=bool).reshape(clusters, -1)))


def share_isolated(silos: int, clusters: int, rate: float) -> float:
    """Of all rounds of MingledPie with the threshold 1: every silo of any cluster, every other cluster shown at `rate`."""
    share = 0.0
    for truth in itertools.product(range(clusters), repeat=silos):
        others = [[j for j in range(clusters) if j != own] for own in truth]
        for shown in itertools.product((0, 1), repeat=silos * (clusters - 1)):
            member = np.zeros((clusters, silos), dtype=bool)
            member[list(truth), range(silos)] = True
            for i, bits in enumerate(np.reshape(shown, (silos, clusters - 1))):
                for j, bit in zip(others[i], bits):
                    member[j, i] |= bool(bit)
            chance = rate ** sum(shown) * (1 - rate) ** (len(shown) - sum(shown)) / clusters**silos
            share += chance * gives_away(member.tobytes(), clusters)
    return share


def test_three_silos_in_two_clusters_give_somebody_away_in_most_rounds() -> None:
    # By hand: 3 + 0 (1 of 4) unless none or all show the other, 3/4; 2 + 1: the pair alone ½, else unless both show, ½ · ¾.
    assert share_isolated(3, 2, 0.5) == pytest.approx(0.25 * 0.75 + 0.75 * (0.5 + 0.5 * 0.75))  # .84375
    assert share_isolated(6, 2, 0.5) == pytest.approx(0.4028, abs=1e-4)
    assert share_isolated(3, 1, 0.5) == 0


def test_combinations_of_three_sums_hold_as_many_as_were_agreed() -> None:
    """A + {i, c, c'}, B and A + B: the first two minus the third is i with two that may collude."""
    three = groups("11110000111", "00001111000", "11111111000")
    assert smallest(three) == 4 and not isolating(three)
    assert is_held_by_few(three, 3) and not is_held_by_few(three, 2)
    assert keeps_apart(three, 3) and not keeps_apart(three, 4)


def test_what_few_hold_is_what_every_set_of_them_says() -> None:
    """Against the definition: some combination vanishes outside U if and only if the others' columns have a smaller rank."""
    draws = np.random.default_rng(0)
    for _ in range(60):
        n, few = int(draws.integers(3, 9)), int(draws.integers(1, 5))
        table = draws.random((int(draws.integers(1, 5)), n)) < 0.5
        rank = np.linalg.matrix_rank(table.astype(float))
        outside = [np.delete(table, list(u), axis=1) for u in itertools.combinations(range(n), min(few, n))]
        smaller = any(rank > (np.linalg.matrix_rank(o.astype(float)) if o.size else 0) for o in outside)
        assert is_held_by_few(table, few) == smaller


def test_many_clients_are_judged_soon() -> None:
    table = np.random.default_rng(1).random((10, 120)) < 0.5
    assert not is_held_by_few(table, 5)
