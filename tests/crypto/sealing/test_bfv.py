"""BFV on its own: exactness, the library's own additions, noise limits."""

import numpy as np
import pytest
import seal
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.crypto.sealing.bfv import BfvSealer, bfv_ring
from covey.crypto.sealing.lattice import Keys
from covey.crypto.sealing.sealing import LABEL_BYTES, mix
from covey.errors import CoveyError

KEYS = Keys.generate(bfv_ring())
SEALER = BfvSealer(KEYS)
STEP = 2.0**-22


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(st.integers(-(2**26), 2**26), min_size=3, max_size=3), min_size=1, max_size=12))
def test_sums_of_fixed_point_numbers_are_exact(rows):
    """Every multiple of the step within the bound, up to ±16."""
    plain = np.array(rows) * STEP
    total = mix(SEALER.public(), np.ones((1, len(rows))), map(SEALER.seal, plain))[0]
    assert np.array_equal(SEALER.open(total), plain.sum(0))


def test_rounding_is_half_a_step_per_vector():
    plain = np.random.default_rng(0).normal(0, 1, (50, 4096))
    total = mix(SEALER.public(), np.ones((1, 50)), map(SEALER.seal, plain))[0]
    error = np.abs(SEALER.open(total) - plain.sum(0))
    assert 0 < error.max() <= 50 * STEP / 2


def test_equal_inputs_give_equal_openings_under_other_randomness_and_keys():
    plain = np.random.default_rng(0).normal(0, 1, (5, 300))

    def run(sealer):
        return sealer.open(mix(sealer.public(), np.ones((1, 5)), map(sealer.seal, plain))[0])

    assert np.array_equal(run(SEALER), run(SEALER))
    assert np.array_equal(run(SEALER), run(BfvSealer(Keys.generate(bfv_ring()))))


def test_raw_sums_are_the_librarys_sums_bit_for_bit():
    context, evaluator = KEYS.ring.context, seal.Evaluator(KEYS.ring.context)
    plaintext = seal.BatchEncoder(context).encode(np.arange(5))
    encryptor = seal.Encryptor(context, context.from_public_str(KEYS.encryption))
    header = encryptor.encrypt(plaintext).to_string()[:113]
    blobs = [SEALER.seal(np.random.default_rng(i).normal(0, 1, 4096)) for i in range(23)]
    total = mix(SEALER.public(), np.ones((1, 23)), blobs)[0]
    ciphertexts = [context.from_cipher_str(header + b[LABEL_BYTES:]) for b in blobs]
    assert total[LABEL_BYTES:] == evaluator.add_many(ciphertexts).to_string()[113:]


def test_the_full_number_of_terms_leaves_noise_to_spare():
    """1024 additions of public-key ciphertexts, the noisy kind, at the bound."""
    blind = BfvSealer(KEYS.sealing_only())
    blob = blind.seal(np.full(4096, -16.0))
    total = mix(KEYS.public(), np.ones((1, 1024)), [blob] * 1024)[0]  # one blob: its noise adds up fully
    assert np.array_equal(SEALER.open(total), np.full(4096, -16384.0))


def test_parameters_that_noise_could_drown_are_refused():
    with pytest.raises(CoveyError, match="noise"):
        bfv_ring(terms=2**30)
    with pytest.raises(CoveyError, match="noise"):
        bfv_ring(plain_bits=39)
    with pytest.raises(CoveyError, match="after the point"):
        bfv_ring(bound=1e9)
    with pytest.raises(CoveyError, match="128-bit"):
        bfv_ring(degree=2048, modulus_bits=54)
    assert bfv_ring(modulus_bits=54, plain_bits=32).unit_bits == 16
    assert bfv_ring().unit_bits == 22
    assert bfv_ring(terms=128).unit_bits == 28


def test_sixteen_bytes_per_float():
    assert len(SEALER.seal(np.zeros(4096))) == 64 + 16 * 4096
