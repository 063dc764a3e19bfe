"""Products of polynomials against the schoolbook, and residues against SEAL's own."""

import numpy as np
import pytest
import seal

from covey.crypto.sealing.ring import prime
from covey.crypto.transform import transform
from covey.errors import CoveyError

Q = prime(4096, 58)


def schoolbook(x, y, q):
    """In Z_q[X]/(X^N + 1), with Python's integers."""
    n = len(x)
    total = [0] * n
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            sign = 1 if i + j < n else -1
            total[(i + j) % n] = (total[(i + j) % n] + sign * int(a) * int(b)) % q
    return total


@pytest.mark.parametrize(("degree", "q"), [(2, 5), (16, 97), (64, prime(4096, 60))])
def test_products_are_the_schoolbooks(degree, q):
    rng = np.random.default_rng(degree)
    ring = transform(degree, q)
    x, y = rng.integers(0, q, (2, degree), dtype=np.uint64)
    x[0] = y[-1] = q - 1
    product = ring.products(ring.forward(x), ring.factors(ring.forward(y)[0]))[0]
    assert product.tolist() == schoolbook(x, y, q)


def test_there_and_back():
    rows = np.random.default_rng(0).integers(0, Q, (3, 4096), dtype=np.uint64)
    rows[0] = Q - 1
    ring = transform(4096, Q)
    assert np.array_equal(ring.inverse(ring.forward(rows)), rows)
    assert int(ring.forward(rows).max()) < Q


def seal_context(plain_bits):
    parameters = seal.EncryptionParameters(seal.scheme_type.bfv)
    parameters.set_poly_modulus_degree(4096)
    parameters.set_coeff_modulus([seal.Modulus(Q)])
    parameters.set_plain_modulus(1 << plain_bits)
    return seal.SEALContext(parameters)


def test_a_secret_key_of_seal_has_the_same_residues_here():
    """SEAL keeps its secret in the transform's domain: back here it is ternary, and there again it is the same words."""
    saved = seal.KeyGenerator(seal_context(20)).secret_key().to_string()
    image = np.frombuffer(saved[-8 * 4096 :], "<u8")
    ring = transform(4096, Q)
    secret = ring.inverse(image)[0]
    assert set(secret.tolist()) == {0, 1, Q - 1}
    assert np.array_equal(ring.forward(secret)[0], image)


def test_a_ciphertext_of_seal_opens_here():
    context = seal_context(20)
    generator = seal.KeyGenerator(context)
    secret = generator.secret_key()
    plain = seal.Plaintext("5x^3 + 7x^1 + 9")
    saved = seal.Encryptor(context, secret).encrypt_symmetric(plain).to_string()
    c0, c1 = np.frombuffer(saved[-2 * 8 * 4096 :], "<u8").reshape(2, 4096)
    ring = transform(4096, Q)
    image = np.frombuffer(secret.to_string()[-8 * 4096 :], "<u8")
    opened = (c0 + ring.products(ring.forward(c1), ring.factors(image))[0]) % np.uint64(Q)
    numbers = [round(int(x) * 2**20 / Q) % 2**20 for x in opened[:5]]
    assert numbers == [9, 7, 0, 5, 0]


@pytest.mark.parametrize(("degree", "q"), [(3, 7), (16, 101), (4096, 2**62 + 1)])
def test_rings_without_a_transform_are_refused(degree, q):
    with pytest.raises(CoveyError, match="a transform of degree"):
        transform(degree, q)
