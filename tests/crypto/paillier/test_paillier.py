"""Paillier: the scheme on integers, and fixed point packed into them."""

from __future__ import annotations

import functools
import math

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.crypto.paillier.paillier import PrivateKey, PublicKey, generate
from covey.crypto.sealing.packing import Packing
from covey.errors import CoveyError


@functools.cache
def small_key(which: int) -> PrivateKey:
    return generate(512, insecure_for_tests=True)


@functools.cache
def real_key() -> PrivateKey:
    return generate(2048)


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
    # Factors are new in each run: of a hundred changed ones some stay prime, and then the orders are another key's.
    data[60] ^= 1
    with pytest.raises(CoveyError, match=r"prime|orders do not belong"):
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


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.data())
def test_masked_slots_drown_and_the_others_stay(width: int, data: st.DataObject) -> None:
    """Two packed rows under masks of their own: their difference at the kept slots is right up to carries of 2 units."""
    packing = Packing(2048, additions=256)
    width = min(width, packing.slots)
    kept = np.array(sorted(data.draw(st.sets(st.integers(0, width - 1), min_size=1))))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = random.integers(-100 * packing.largest, 100 * packing.largest, (2, width))
    noise = random.integers(-1000, 1000, (2, len(kept)))
    masked = [packing.pack(row)[0] + packing.draw_mask(width, kept, more) for row, more in zip(rows, noise)]
    found = packing.unpack_at(masked[1] - masked[0], kept)
    assert np.abs(found - (rows[1] - rows[0])[kept] - (noise[1] - noise[0])).max() <= 2


def test_masks_fill_their_slots() -> None:
    """Of one row under many masks, a masked slot is uniform over all it can hold, wherever it stands; a kept one is not."""
    packing = Packing(2048)
    kept, half = np.array([3, 5]), 2.0 ** (packing.width - 1)
    row = packing.pack(np.full(packing.slots, packing.largest))[0]
    everywhere = np.arange(packing.slots)
    seen = np.stack(
        [
            packing.unpack_at(row + packing.draw_mask(packing.slots, kept, np.zeros(2, np.int64)), everywhere)
            for _ in range(400)
        ]
    )
    masked = np.delete(seen, kept, axis=1) / half
    assert np.abs(masked.mean(0)).max() < 0.15 and np.abs(masked.std(0) - 3**-0.5).max() < 0.08  # uniform on ±1
    assert np.abs(seen[:, kept] - packing.largest).max() <= 2


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
