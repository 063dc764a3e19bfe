"""Vectors sealed with Paillier: as servers and key holders use them, and blinded."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.crypto.paillier.paillier import PrivateKey, generate
from covey.crypto.paillier.vectors import VectorOpener, VectorSealer
from covey.crypto.sealing.packing import Packing
from covey.crypto.sealing.sealing import LABEL_BYTES
from covey.errors import CoveyError


@functools.cache
def small_key(which: int) -> PrivateKey:
    return generate(512, insecure_for_tests=True)


@functools.cache
def real_key() -> PrivateKey:
    return generate(2048)


def opener(which: int = 0, **packing: float) -> VectorOpener:
    return VectorOpener(small_key(which), Packing(512, **packing))  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sums_are_exact_up_to_the_encoding(data: st.DataObject) -> None:
    count, dimension = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 40))
    seed, precision = data.draw(st.integers(0, 2**32)), data.draw(st.integers(4, 30))
    vectors = np.random.default_rng(seed).uniform(-8, 8, (count, dimension))
    party = opener(precision=precision, bound=8.0, additions=6)
    blobs = [party.sealer.seal(v) for v in vectors]
    total = functools.reduce(party.sealer.add, blobs)
    opened = party.open(total, additions=count)
    assert opened.shape == (dimension,)
    assert np.array_equal(opened, sum(np.rint(v * 2**precision) for v in vectors) / 2**precision)
    assert len(total) == len(blobs[0]) == party.sealer.size(dimension)


def test_subtract_scale_and_mix() -> None:
    party = opener()
    sealer = party.sealer
    a, b, c = (sealer.seal(x) for x in ([1.0, -2.0], [0.5, 8.0], [-4.0, 0.25]))
    assert party.open(sealer.subtract(a, b), additions=2).tolist() == [0.5, -10.0]
    assert party.open(sealer.scale(a, -3), additions=3).tolist() == [-3.0, 6.0]
    both, none, weighted = sealer.mix([[1, 0, 1], [0, 0, 0], [2, 1, 3]], [a, b, c])
    assert party.open(both, additions=2).tolist() == [-3.0, -1.75]
    assert party.open(none, additions=0).tolist() == [0.0, 0.0]
    assert party.open(weighted, additions=6).tolist() == [-9.5, 4.75]


def test_too_many_terms_are_refused() -> None:
    party = opener(additions=3)
    blob = party.sealer.seal([64.0, -64.0])
    three = party.sealer.scale(blob, 3)
    assert party.open(three).tolist() == [192.0, -192.0]
    for overflow in (lambda: party.sealer.add(three, blob), lambda: party.sealer.scale(blob, -4)):
        with pytest.raises(CoveyError, match="overflow"):
            overflow()
    with pytest.raises(CoveyError, match="expected a sum of 2"):
        party.open(three, additions=2)


def test_mix_refuses_what_it_cannot_weigh() -> None:
    sealer = opener().sealer
    blob = sealer.seal([1.0])
    for weights in ([[0.5]], [[-1]], [[1, 1]]):
        with pytest.raises(CoveyError):
            sealer.mix(weights, [blob])
    with pytest.raises(CoveyError, match="one model"):
        sealer.add(blob, sealer.seal([1.0, 2.0]))
    with pytest.raises(CoveyError, match="times 0"):
        sealer.scale(blob, 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 2**32))
def test_a_blinded_mean_under_another_key(rows: int, dimension: int, seed: int) -> None:
    """A round of FedCAPrivacy without clustering: the blind itself, not its share, is what must come off."""
    rng = np.random.default_rng(seed)
    models = rng.uniform(-64, 64, (rows, dimension))
    weights = rng.integers(0, 3, rows) + (np.arange(rows) == 0)
    csp, users = opener(0, additions=2), opener(1, additions=2)
    blind = csp.packing.draw_blind(dimension)
    sealed_blind = csp.sealer.seal_blind(blind, dimension)
    seen = csp.open_blinded([csp.sealer.add(csp.sealer.seal(m), sealed_blind) for m in models])
    encoded = np.rint(models * 2**24)
    assert np.array_equal(seen.differences() * 2**24, encoded - encoded[0])
    mean = users.sealer.seal_blinded(seen.mean(weights), dimension)
    got = users.open(users.sealer.unblind(mean, blind), additions=1)
    assert np.abs(got - weights @ models / weights.sum()).max() <= 2**-24


def test_the_key_holder_sees_the_blind_not_the_model() -> None:
    """Two models, the same blind removed with the wrong share: the paper's μ/|C| leaves garbage, and it is noticed."""
    party = opener()
    blind = party.packing.draw_blind(3)
    row = party.sealer.add(party.sealer.seal([1.0, 2.0, 3.0]), party.sealer.seal_blind(blind, 3))
    with pytest.raises(CoveyError, match="blinded"):
        party.open(row)
    wrong = party.sealer.unblind(row, [b // 2 for b in blind])
    with pytest.raises(CoveyError, match="outside the packing's range"):
        party.open(wrong)
    assert party.open(party.sealer.unblind(row, blind)).tolist() == [1.0, 2.0, 3.0]


def test_blinds_are_counted() -> None:
    party = opener()
    sealer = party.sealer
    blind = party.packing.draw_blind(1)
    row, mask = sealer.seal([1.0]), sealer.seal_blind(blind, 1)
    blinded = sealer.add(row, mask)
    for wrong in (
        lambda: sealer.add(blinded, mask),
        lambda: sealer.unblind(row, blind),
        lambda: sealer.scale(blinded, 2),
        lambda: sealer.subtract(row, blinded),
        lambda: party.open_blinded([row]),
        lambda: party.open_blinded([mask]),
        lambda: party.open_blinded([]),
        lambda: sealer.seal_blind(blind, 1000),
    ):
        with pytest.raises(CoveyError):
            wrong()
    other = sealer.add(row, sealer.seal_blind(party.packing.draw_blind(1), 1))
    with pytest.raises(CoveyError, match="blinded differently"):
        party.open_blinded([blinded, other])


def test_rearranging_keeps_distances_and_comes_back() -> None:
    party = opener(bound=4.0, additions=2)
    sealer, rng = party.sealer, np.random.default_rng(3)
    dimension = 5 * party.packing.slots - 2
    models = rng.integers(-12, 13, (3, dimension)) / 4
    count = party.packing.count(dimension)
    order, signs = rng.permutation(count), rng.choice([-1, 1], count)
    moved = [sealer.rearrange(sealer.seal(m), order, signs) for m in models]
    padded = count * party.packing.slots
    blind = party.packing.draw_blind(padded)
    mask = sealer.seal_blind(blind, padded)
    rows = party.open_blinded([sealer.add(m, mask) for m in moved])
    seen, true = rows.differences(), models - models[0]
    assert np.allclose((seen**2).sum(1), (true**2).sum(1), rtol=0, atol=1e-12)
    assert not np.array_equal(seen[1, :dimension], true[1])
    back = sealer.unblind(sealer.seal_blinded(rows.mean([0, 1, 0]), padded), blind)
    assert np.array_equal(party.open(sealer.restore(back, order, signs, dimension)), models[1])
    with pytest.raises(CoveyError, match="permutation"):
        sealer.rearrange(moved[0], np.zeros(count, int), signs)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_any_altered_byte_is_noticed(position: int, flip: int) -> None:
    party = opener()
    blob = bytearray(_sealed_once())
    blob[position % len(blob)] ^= flip
    with pytest.raises(CoveyError):
        party.open(bytes(blob))


@functools.cache
def _sealed_once() -> bytes:
    return opener().sealer.seal(np.arange(20.0))


def test_damaged_and_foreign_blobs_are_refused() -> None:
    party, blob = opener(), _sealed_once()
    for bad in (b"", blob[:10], blob[:-1], blob + b"\0", blob[:LABEL_BYTES]):
        with pytest.raises(CoveyError):
            party.open(bad)
    with pytest.raises(CoveyError, match="another key"):
        opener(1).open(blob)
    with pytest.raises(CoveyError, match="other paillier parameters"):
        opener(precision=20).open(blob)
    with pytest.raises(CoveyError, match="modulus"):
        VectorSealer(small_key(0).public, Packing(1024))


def test_a_forged_ciphertext_with_a_right_digest_is_refused() -> None:
    """Whoever alters a body can recompute the digest: the checks of range and unit stand on their own."""
    party = opener()
    sealer = party.sealer
    honest = sealer.read(_sealed_once())
    for forged in (0, small_key(0).p):
        blob = sealer.write(type(honest)([forged, *honest.ciphertexts[1:]], honest.dimension, 1))
        with pytest.raises(CoveyError, match=r"outside|no unit"):
            sealer.add(blob, _sealed_once())


def test_a_model_under_a_real_key() -> None:
    party = VectorOpener(real_key(), Packing(2048, additions=3))
    models = np.random.default_rng(0).normal(0, 0.1, (3, 200)).astype(np.float32)
    total = functools.reduce(party.sealer.add, [party.sealer.seal(m) for m in models])
    assert np.abs(party.open(total, additions=3) - models.astype(np.float64).sum(0)).max() <= 3 * 2**-25
    assert len(total) == LABEL_BYTES + math.ceil(200 / party.packing.slots) * 512
