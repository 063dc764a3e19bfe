"""Paillier: the scheme on integers, packed fixed point, and sealed vectors as servers and key holders use them."""

from __future__ import annotations

import functools
import math

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.crypto.packing import Packing
from covey.crypto.paillier import PrivateKey, PublicKey, generate
from covey.crypto.paillier_vectors import VectorOpener, VectorSealer
from covey.crypto.sealing import LABEL_BYTES
from covey.errors import CoveyError


@functools.cache
def small_key(which: int) -> PrivateKey:
    return generate(512, insecure_for_tests=True)


@functools.cache
def real_key() -> PrivateKey:
    return generate(2048)


def opener(which: int = 0, **packing: float) -> VectorOpener:
    return VectorOpener(small_key(which), Packing(512, **packing))  # type: ignore[arg-type]


# --- the scheme ------------------------------------------------------------------------------------------------


def test_decryption_by_the_textbook_formula() -> None:
    """m = L(c^λ mod n²)·μ mod n, computed here without remaindering, on ciphertexts of the fast encryption."""
    key = small_key(0)
    n, lcm = key.public.n, gmpy2.lcm(key.p - 1, key.q - 1)
    for m in (0, 1, 12345678901234567890, n - 1):
        (c,) = key.public.encrypt([m])
        assert (gmpy2.powmod(c, lcm, n * n) - 1) // n * gmpy2.invert(lcm, n) % n == m
        assert key.decrypt([c])[0] % n == m


def test_decrypts_textbook_ciphertexts() -> None:
    key = small_key(0)
    n = key.public.n
    c = gmpy2.powmod(n + 1, 42, n * n) * gmpy2.powmod(7, n, n * n) % (n * n)
    assert key.decrypt([c]) == [42]


def test_encryption_is_randomised() -> None:
    assert len(set(small_key(0).public.encrypt([5] * 20))) == 20


def test_the_table_holds_the_powers_of_the_base() -> None:
    """A wrong table would still decrypt: only the randomness would be another than the one the security rests on."""
    public = small_key(0).public
    assert len(public._powers) == 32
    for i, row in enumerate(public._powers):
        assert row == [gmpy2.powmod(public.h, byte * 256**i, public.n_squared) for byte in range(256)]


def test_every_key_has_factors_with_little_in_common() -> None:
    keys = [generate(256, insecure_for_tests=True) for _ in range(12)]  # by chance alone, half of them would not
    assert all(gmpy2.gcd(key.p - 1, key.q - 1) == 2 for key in keys)
    assert all(key.public.bits == 256 for key in keys)


def test_arithmetic_under_encryption() -> None:
    key = small_key(0)
    public = key.public
    a, b = public.encrypt([10, -3]), public.encrypt([-4, -4])
    assert key.decrypt(public.add(a, b)) == [6, -7]
    assert key.decrypt(public.add_known(a, [-10, 10**20])) == [0, 10**20 - 3]
    assert key.decrypt(public.negate(a)) == [-10, 3]
    assert key.decrypt(public.multiply(a, -5)) == [-50, 15]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_change_nothing(workers: int) -> None:
    key = small_key(0)
    numbers = list(range(-5, 6))
    assert key.decrypt(key.public.encrypt(numbers), workers=workers) == numbers


def test_encryption_in_processes() -> None:
    key = small_key(0)
    assert key.decrypt(key.public.encrypt(list(range(9)), workers=2)) == list(range(9))


def test_a_real_key_has_the_structure_its_security_needs() -> None:
    key = real_key()
    assert key.public.bits == 2048
    assert key.p % 4 == key.q % 4 == 3
    assert gmpy2.gcd(key.p - 1, key.q - 1) == 2
    assert abs(key.p - key.q) > 1 << 924
    assert gmpy2.is_prime(key.p) and gmpy2.is_prime(key.q)
    assert gmpy2.jacobi(key.public.h % key.public.n, key.public.n) == 1
    assert key.decrypt(key.public.encrypt([-(10**300)])) == [-(10**300)]


def test_fast_decryption() -> None:
    """The base has the secret order, decryption agrees with the textbook formula, and foreign ciphertexts are noticed."""
    key = generate(1024, fast_decryption=True, insecure_for_tests=True)
    n, h = key.public.n, key.public.h
    for factor, order in ((key.p, key.order_p), (key.q, key.order_q)):
        assert gmpy2.is_prime(order) and order.bit_length() == 320 and (factor - 1) % order == 0
        assert gmpy2.powmod(h, order, factor * factor) == 1 and h % factor != 1
        assert factor % 4 == 3 and gmpy2.is_prime(factor)
    numbers = [0, 1, -1, 10**100, n // 2, -(n // 2)]
    ciphertexts = key.public.encrypt(numbers)
    assert key.decrypt(ciphertexts) == numbers
    slow = PrivateKey(key.public, key.p, key.q, key.p - 1, key.q - 1)
    assert slow.decrypt(ciphertexts) == numbers
    stored = PrivateKey.from_bytes(key.to_bytes(), insecure_for_tests=True)
    assert stored.decrypt(ciphertexts) == numbers and stored.order_p == key.order_p
    foreign = gmpy2.powmod(n + 1, 42, n * n) * gmpy2.powmod(7, n, n * n) % (n * n)
    assert slow.decrypt([foreign]) == [42]
    with pytest.raises(CoveyError, match="public base"):
        key.decrypt([foreign])
    with pytest.raises(CoveyError, match="orders"):
        PrivateKey(key.public, key.p, key.q, key.order_q, key.order_p)
    with pytest.raises(CoveyError, match="at least"):
        generate(512, fast_decryption=True, insecure_for_tests=True)


def test_longer_exponents() -> None:
    key = generate(1024, exponent_bits=512, insecure_for_tests=True)
    assert len(key.public._powers) == 64
    assert key.decrypt(key.public.encrypt([1, 2])) == [1, 2]


def test_short_keys_are_refused() -> None:
    with pytest.raises(CoveyError, match="2048"):
        generate(1024)
    small = small_key(0).public
    with pytest.raises(CoveyError, match="factored"):
        PublicKey(small.n, small.h)
    with pytest.raises(CoveyError, match="factored"):
        PublicKey.from_bytes(small.to_bytes())
    with pytest.raises(CoveyError, match="exponent_bits"):
        PublicKey(small.n, small.h, exponent_bits=128, insecure_for_tests=True)


def test_keys_survive_storage() -> None:
    key = small_key(0)
    public = PublicKey.from_bytes(key.public.to_bytes(), insecure_for_tests=True)
    private = PrivateKey.from_bytes(key.to_bytes(), insecure_for_tests=True)
    assert private.decrypt(public.encrypt([77])) == [77]
    assert public.key_id == private.public.key_id == key.public.key_id
    assert str(int(key.p)) not in repr(key)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"", lambda b: b"X" + b[1:]])
def test_damaged_keys_are_refused(damage) -> None:  # type: ignore[no-untyped-def]
    key = small_key(0)
    with pytest.raises(CoveyError):
        PublicKey.from_bytes(damage(key.public.to_bytes()), insecure_for_tests=True)
    with pytest.raises(CoveyError):
        PrivateKey.from_bytes(damage(key.to_bytes()), insecure_for_tests=True)


def test_a_key_with_a_changed_factor_is_refused() -> None:
    data = bytearray(small_key(0).to_bytes())
    data[60] ^= 1
    with pytest.raises(CoveyError, match="prime"):
        PrivateKey.from_bytes(bytes(data), insecure_for_tests=True)


def test_impossible_ciphertexts_are_refused() -> None:
    key = small_key(0)
    good = key.public.encrypt([1, 2, 3])
    key.public.check(good)
    for bad in (0, key.public.n_squared, -1):
        with pytest.raises(CoveyError, match="outside"):
            key.public.check([*good, bad])
    for bad in (key.p, key.public.n, 5 * key.q):
        with pytest.raises(CoveyError, match="no unit"):
            key.public.check([bad, *good])


# --- packing ---------------------------------------------------------------------------------------------------


def test_packing_by_hand() -> None:
    packing = Packing(512, precision=1, bound=2.0, additions=3)
    assert (packing.largest, packing.width) == (4, 5)  # 3·4 = 12 takes 4 bits, and a sign
    assert packing.slots == (512 - 3 - 128) // 5 == 76
    encoded = packing.encode([1.5, -0.5, 2.0])
    assert encoded.tolist() == [3, -1, 4]
    assert packing.pack(encoded) == [3 - 1 * 2**5 + 4 * 2**10]
    assert packing.unpack([3 - 32 + 4096], 3).tolist() == [3, -1, 4]
    assert packing.decode(encoded).tolist() == [1.5, -0.5, 2.0]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_slots_never_overflow(data: st.DataObject) -> None:
    """The worst sums that the packing allows come back exactly, next to each other, whatever their signs."""
    packing = Packing(
        512,
        precision=data.draw(st.integers(0, 30)),
        bound=data.draw(st.floats(0.51, 100)),
        additions=data.draw(st.integers(1, 300)),
    )
    signs = np.array(data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=60)))
    sums = signs * packing.largest * packing.additions
    total = [packing.additions * x for x in packing.pack(packing.encode(signs * packing.bound))]
    assert np.array_equal(packing.unpack(total, signs.size), sums)
    blind = packing.draw_blind(signs.size)
    limit = 2 ** (packing.modulus_bits - 1) // 2  # below n/2 for every n of that many bits
    assert all(abs(a) + b < limit and abs(a) < 2 ** (packing.slots * packing.width) for a, b in zip(total, blind))


def test_the_blind_is_longer_than_the_slots() -> None:
    packing = Packing(2048)
    lengths = [int(b).bit_length() for b in packing.draw_blind(200 * packing.slots)]
    top = packing.slots * packing.width + packing.hiding
    assert top - 20 < max(lengths) <= top <= 2048 - 3
    assert len(set(lengths)) > 1


def test_what_hides_behind_the_last_value_is_refused() -> None:
    packing = Packing(512)
    packed = packing.pack(np.array([1, 2, 3]))
    with pytest.raises(CoveyError, match="zeros behind"):
        packing.unpack(packed, 2)
    with pytest.raises(CoveyError, match="expected 100"):
        packing.unpack(packed, 100)


@pytest.mark.parametrize("bad", [64.01, -1e9, math.nan, math.inf])
def test_values_outside_the_bound_are_refused(bad: float) -> None:
    with pytest.raises(CoveyError, match="bound"):
        Packing(512).encode([0.0, bad])


@pytest.mark.parametrize(
    "fields", [{"precision": 60}, {"additions": 0}, {"bound": 0.0}, {"bound": math.nan}, {"hiding": 8}]
)
def test_impossible_packings_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(CoveyError):
        Packing(512, **fields)  # type: ignore[arg-type]


# --- sealed vectors --------------------------------------------------------------------------------------------


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
