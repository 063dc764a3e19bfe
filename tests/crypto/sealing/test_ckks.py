"""CKKS on its own: security, the library's own additions, precision, sealing without opening."""

import numpy as np
import pytest
import seal

from covey.crypto.sealing.ckks import CkksSealer, ckks_ring
from covey.crypto.sealing.lattice import Keys
from covey.crypto.sealing.ring import HE_STANDARD_128, check_security
from covey.crypto.sealing.sealing import LABEL_BYTES, mix
from covey.errors import CoveyError


def ring_residues(ciphertext):
    return ciphertext.to_string()[-2 * 4096 * 8 :]


def test_the_table_is_the_librarys():
    """SEAL carries the HE standard's table too."""
    for degree, bits in HE_STANDARD_128.items():
        assert seal.CoeffModulus.MaxBitCount(degree, seal.sec_level_type.tc128) == bits


@pytest.mark.parametrize(("degree", "bits"), [(2048, 54), (1024, 27), (4096, 109), (4096, 106), (3000, 30), (512, 20)])
def test_weak_rings_are_refused(degree, bits):
    with pytest.raises(CoveyError, match=r"128-bit security|Ring degree"):
        check_security(degree, bits)
    with pytest.raises(CoveyError):
        ckks_ring(degree=degree, modulus_bits=bits)


def test_strong_rings_are_accepted():
    for degree, bits in ((2048, 52), (4096, 54), (4096, 105), (8192, 60)):
        check_security(degree, bits)


def test_the_scale_follows_from_bound_and_terms():
    assert ckks_ring(bound=2.8, terms=128).unit_bits == 44
    assert ckks_ring().unit_bits == 38
    with pytest.raises(CoveyError, match="after the point"):
        ckks_ring(bound=1e9, terms=10**7)
    for bound, terms in ((0.0, 5), (-1.0, 5), (float("nan"), 5), (1.0, 0)):
        with pytest.raises(CoveyError):
            ckks_ring(bound=bound, terms=terms)


@pytest.mark.parametrize("clients", [1, 4, 5, 16, 21, 40])
def test_raw_sums_are_the_librarys_sums_bit_for_bit(clients):
    keys = Keys.generate(ckks_ring())
    sealer = CkksSealer(keys)
    context, evaluator = keys.ring.context, seal.Evaluator(keys.ring.context)
    header = library_header(keys)
    rng = np.random.default_rng(clients)
    blobs = [sealer.seal(rng.normal(0, 1, 4096)) for _ in range(clients)]
    member = rng.random((3, clients)) < 0.6
    member[0] = True
    for row, total in zip(member, mix(sealer.public(), member, blobs), strict=True):
        chosen = [context.from_cipher_str(header + b[LABEL_BYTES:]) for b, m in zip(blobs, row, strict=True) if m]
        if chosen:
            expected = chosen[0]
            for other in chosen[1:]:
                evaluator.add_inplace(expected, other)
            assert total[LABEL_BYTES:] == ring_residues(expected)


def library_header(keys):
    """The bytes that seal-python 4.4.0 writes before the residues."""
    context = keys.ring.context
    plain = seal.CKKSEncoder(context).encode(np.zeros(1), 2.0**keys.ring.unit_bits)
    saved = seal.Encryptor(context, context.from_public_str(keys.encryption)).encrypt(plain).to_string()
    assert len(saved) == 113 + 2 * 4096 * 8
    return saved[:113]


def test_error_of_a_sum_of_120():
    sealer = CkksSealer(Keys.generate(ckks_ring()))
    plain = np.random.default_rng(0).normal(0, 0.1, (120, 4096)).astype(np.float32)
    total = mix(sealer.public(), np.ones((1, 120)), map(sealer.seal, plain))[0]
    error = sealer.open(total) - plain.sum(0, dtype=np.float64)
    assert error.std() < 2e-8
    assert np.abs(error).max() < 1e-7
    assert np.abs(error).max() > 0  # CKKS is approximate: an exact result would mean that nothing was encrypted


def test_sixteen_bytes_per_float():
    sealer = CkksSealer(Keys.generate(ckks_ring()))
    assert len(sealer.seal(np.zeros(4096 * 3))) == 64 + 16 * 4096 * 3


def test_public_key_holders_seal_and_secret_key_holders_open():
    keys = Keys.generate(ckks_ring(bound=2.8, terms=128))
    whole, blind = CkksSealer(keys), CkksSealer(keys.sealing_only())
    stored = Keys.from_bytes(keys.sealing_only().to_bytes(), "ckks")
    assert stored.secret is None and b'"secret"' not in keys.sealing_only().to_bytes()
    vector = np.random.default_rng(0).normal(0, 0.1, 5000)
    sealed = blind.seal(vector)
    assert np.abs(whole.open(sealed) - vector).max() < 1e-7
    total = mix(keys.public(), [[1, 1]], [sealed, whole.seal(vector)])[0]  # the two kinds add
    assert np.abs(whole.open(total) - 2 * vector).max() < 1e-7
    with pytest.raises(CoveyError, match="seal but do not open"):
        blind.open(sealed)


def test_the_secret_is_not_printed():
    assert "secret" not in repr(Keys.generate(ckks_ring()))
