"""Where noise comes from: keyed as ever, secret on its grid; what the grid costs, what floats give away without it.

Secret draws differ from run to run: every bound on them is at least six standard errors wide.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from covey.crypto.noise.discrete import add
from covey.crypto.noise.source import GRID, KeyedNoise, SecretNoise
from covey.randomness import generator, key, normals

D = 40_000


def test_keyed_noise_is_what_its_stream_gives() -> None:
    source, values = KeyedNoise((7, 2, 5)), torch.linspace(-1, 1, 9)
    expected = values + 0.3 * normals([key(7, 2, 5, "train", "ldp", 0)], 9)[0]
    assert torch.equal(source.gaussian(values, 0.3, "train", "ldp", 0), expected) and not source.secret
    rows, scale = np.ones((4, 2), np.float32), np.array([1.0, 3.0])
    noise = generator(7, 2, 5, "features").laplace(size=(4, 2)) * scale
    assert np.array_equal(source.laplace(rows, scale, "features"), (rows + noise).astype(np.float32))
    assert source.gaussian_rounding(D) == source.laplace_rounding(1.0) == 0.0


def test_secret_noise_has_the_scale_that_was_asked_for() -> None:
    source, values = SecretNoise(), torch.full((D,), 0.25)
    even = source.gaussian(values, 0.3)
    assert even.dtype == torch.float32 and float((even - values).std()) == pytest.approx(0.3, rel=0.03)
    scales = torch.linspace(0.1, 2.0, D, dtype=torch.float64)
    z = (source.gaussian(values, scales) - values) / scales
    assert float(z[: D // 2].std()) == pytest.approx(1, rel=0.03) and float(z[D // 2 :].std()) == pytest.approx(
        1, rel=0.03
    )
    rows = source.laplace(np.zeros((D, 2), np.float32), np.array([1.0, 5.0]), "features")
    assert rows.dtype == np.float32 and rows.std(0) == pytest.approx([math.sqrt(2), 5 * math.sqrt(2)], rel=0.04)


def test_no_noise_is_no_change() -> None:
    values = torch.rand(9)
    assert SecretNoise().gaussian(values, 0.0) is values
    assert torch.equal(SecretNoise().gaussian(values, torch.zeros(9)), values)


def test_secret_draws_never_repeat() -> None:
    source, values = SecretNoise(), torch.zeros(D)
    one, other = source.gaussian(values, 1.0, "same"), source.gaussian(values, 1.0, "same")
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.03
    assert not torch.equal(source.bits(2, 3), source.bits(2, 3)) and int(source.bits(50, 50).min()) >= 0


@given(arrays(np.float64, 20, elements=st.floats(-1e3, 1e3)), arrays(np.float64, 20, elements=st.floats(-1, 1)))
def test_rounding_brings_neighbours_no_further_apart_than_is_priced(values: np.ndarray, change: np.ndarray) -> None:
    scale, nothing = 0.7, np.zeros(20, np.int64)
    step = np.array([scale * 2.0**-8])  # a coarse grid shows it; rounding in units of the scale is 2^-8 per coordinate
    apart = np.linalg.norm(add(values + change, step, nothing) - add(values, step, nothing))
    assert apart / scale <= np.linalg.norm(values + change - values) / scale + math.sqrt(20) * 2.0**-8 * (1 + 1e-9)


def test_what_the_grid_costs_is_nothing_that_shows() -> None:
    """159,010 weights at σ = 4.84 (ε = 1): 1/σ grows by 9e-7 of itself; a coordinate of PQFed by some 1e-7 of ε = 1."""
    source = SecretNoise()
    assert source.gaussian_rounding(159_010) == pytest.approx(2 * math.sqrt(159_010) * 2.0**-32)
    assert source.gaussian_rounding(159_010) * 4.84 < 1e-6
    assert source.laplace_rounding(1.0) == pytest.approx(2.0**-32 + 2.0**-23)


def test_the_sum_is_a_whole_number_of_steps_whatever_the_value() -> None:
    """In float64 every step is seen. Two values half a step apart answer alike: their lowest bits are gone before the noise."""
    step = np.array([0.5 * GRID])
    noise = np.arange(-50, 50, dtype=np.int64)
    for value in (0.0, 0.3, 1 / 3, 0.3 + 0.2 * step[0], -7.123456789):
        steps = add(np.full(100, value), step, noise) / step
        assert np.array_equal(steps, np.rint(steps))
        assert np.array_equal(steps - np.rint(value / step[0]), noise)


def test_floats_give_values_away_and_the_grid_does_not() -> None:
    """Mironov 2012: float noise reaches other numbers from 1 than from 0, so one answer may tell the two apart."""
    floats = KeyedNoise((1, 1, 1))
    from_zero = floats.gaussian(torch.zeros(D), 1.0, "x").double()
    from_one = floats.gaussian(torch.ones(D), 1.0, "y").double()
    small = from_one.abs() < 0.1
    coarse = (from_one[small] / 2.0**-25).frac() == 0  # 1 + noise, rounded, is a multiple of 2^-25 …
    assert bool(coarse.all())
    assert (
        float(((from_zero[from_zero.abs() < 0.1] / 2.0**-25).frac() == 0).double().mean()) < 0.2
    )  # … noise alone is not
    secret = SecretNoise()
    shares = []
    for value in (0.0, 1.0):
        answer = secret.gaussian(torch.full((D,), value), 1.0).double()
        near = answer[answer.abs() < 0.1]
        shares.append(float(((near / 2.0**-28).frac() == 0).double().mean()))
    assert shares[0] == pytest.approx(shares[1], abs=0.1)  # 8 standard errors


def test_values_far_beyond_the_noise_are_cut_not_wrapped() -> None:
    huge = torch.tensor([1e30, -1e30, 1.0])
    answer = SecretNoise().gaussian(huge, 1e-3)
    assert answer[0] == pytest.approx(2.0**30 * 1e-3, rel=1e-3) and answer[1] == pytest.approx(
        -(2.0**30) * 1e-3, rel=1e-3
    )


def test_streams_of_shares_are_keyed_in_a_simulation_and_secret_in_a_silo() -> None:
    keyed = KeyedNoise((1, 2, 3))
    first = keyed.stream("shares").words(4).tolist()
    assert first == KeyedNoise((1, 2, 3)).stream("shares").words(4).tolist()
    for other in (KeyedNoise((1, 3, 3)), KeyedNoise((1, 2, 4)), KeyedNoise((2, 2, 3))):
        assert other.stream("shares").words(4).tolist() != first
    assert keyed.stream("another").words(4).tolist() != first
    assert SecretNoise().stream("shares").words(4).tolist() != SecretNoise().stream("shares").words(4).tolist()
