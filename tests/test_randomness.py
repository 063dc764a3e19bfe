"""Keyed streams: the published generator, reproducible, independent of company, with the right distributions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import randomness

MASK = (1 << 64) - 1


def splitmix(key: int, position: int) -> int:
    """SplitMix64 as published (Steele, Lea and Flood 2014), on Python integers."""
    z = (key + (position + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@given(st.integers(0, 2**63 - 1))
def test_bits_are_splitmix64(key: int) -> None:
    assert randomness.bits([key], 5)[0].tolist() == [splitmix(key, i) >> 1 for i in range(5)]


def test_words_are_the_same_whoever_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = randomness.bits([2**63 - 1, 0, 7], 1)[:, 0]
    numpys, wrapped = randomness.bits(keys, 1000), randomness.bits(keys, 1000, under_vmap=True)
    monkeypatch.setattr(randomness, "_GRAIN", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(randomness, "_bits", None)
    assert torch.equal(randomness.bits(keys, 1000), numpys) and torch.equal(wrapped, numpys)


def test_keys_differ_by_every_part() -> None:
    keys = {
        randomness.key(seed, rnd, who, use) for seed in range(3) for rnd in range(3) for who in range(9) for use in "ab"
    }
    assert len(keys) == 3 * 3 * 9 * 2
    assert all(0 <= key < 2**63 for key in keys)
    assert randomness.key(1, 11) != randomness.key(11, 1)
    assert randomness.key("1") != randomness.key(1)


def test_a_stream_does_not_depend_on_company_or_length() -> None:
    for draw in (randomness.bits, randomness.uniforms):
        assert torch.equal(draw([5], 7)[0], draw([3, 5, 9], 12)[1, :7])
    assert torch.equal(randomness.normals([5], 7)[0], randomness.normals([3, 5], 7)[1])


def test_keys_may_be_a_tensor() -> None:
    keys = randomness.bits([1], 4)[0]
    assert torch.equal(randomness.normals(keys, 9), randomness.normals(keys.tolist(), 9))
    assert torch.equal(keys, randomness.bits([1], 4)[0])  # drawing does not change them


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 2**62))
def test_permutations_are_permutations(sizes: list[int], seed: int) -> None:
    orders = randomness.permutations([seed + i for i in range(len(sizes))], sizes)
    for order, size in zip(orders, sizes):
        assert sorted(order[:size].tolist()) == list(range(size))
        assert order[size:].tolist() == list(range(size, max(sizes)))


def test_permutations_are_uniform() -> None:
    """All 6 orders of 3 things, 60,000 draws: χ² with 5 degrees of freedom, below its 1 − 1e-6 quantile."""
    orders = randomness.permutations(list(range(60_000)), [3] * 60_000)
    codes = orders[:, 0] * 3 + orders[:, 1]
    counts = torch.bincount(codes, minlength=9)
    seen = counts[counts > 0].double()
    assert len(seen) == 6
    assert float(((seen - 10_000) ** 2 / 10_000).sum()) < 35.9


def test_uniforms_and_normals_have_their_moments() -> None:
    n = 400_000
    u, z = randomness.uniforms([1], n)[0].double(), randomness.normals([2], n)[0].double()
    assert 0 < float(u.min()) < float(u.max()) < 1
    bound = 6 / math.sqrt(n)  # six standard errors
    assert abs(float(u.mean()) - 0.5) < bound * math.sqrt(1 / 12)
    assert abs(float(z.mean())) < bound
    assert abs(float((z**2).mean()) - 1) < bound * math.sqrt(2)
    assert abs(float((z**3).mean())) < bound * math.sqrt(15)
    assert abs(float((z**4).mean()) - 3) < bound * math.sqrt(96)
    half = n // 2
    assert abs(float((z[:half] * z[half:]).mean())) < bound * math.sqrt(2)  # the two of a pair share a word


def test_generator_is_keyed() -> None:
    assert randomness.generator(1, "a").random() == randomness.generator(1, "a").random()
    assert randomness.generator(1, "a").random() != randomness.generator(1, "b").random()
