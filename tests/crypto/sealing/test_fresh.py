"""Fresh ciphertexts under the secret key: the library reads them as its own, and they are drawn as it draws."""

import json
import math

import numpy as np
import pytest
import seal

from covey.crypto.draws import binomials
from covey.crypto.sealing.bfv import BfvSealer, bfv_ring
from covey.crypto.sealing.ckks import CkksSealer, ckks_ring
from covey.crypto.sealing.encoding import batching, embedding
from covey.crypto.sealing.fresh import spread
from covey.crypto.sealing.lattice import BLOCK, Keys
from covey.crypto.sealing.sealing import LABEL_BYTES
from covey.crypto.transform import transform
from covey.errors import CoveyError

RINGS = {"ckks": ckks_ring(), "bfv": bfv_ring()}
KEYS = {name: Keys.generate(ring) for name, ring in RINGS.items()}
SEALERS = {"ckks": CkksSealer(KEYS["ckks"]), "bfv": BfvSealer(KEYS["bfv"])}
EXACT = {"ckks": 1e-7, "bfv": 2.0**-22 / 2}


def residues(sealed):
    return np.frombuffer(sealed, "<u8", offset=LABEL_BYTES).reshape(-1, 2, 4096)


def errors(scheme, sealed):
    """c0 + c1 s of a sealed vector of zeros, as whole numbers about 0: the noise and nothing else."""
    keys = KEYS[scheme]
    q = keys.ring.modulus
    ring = transform(4096, q)
    image = np.frombuffer(keys.secret[-8 * 4096 :], "<u8")
    c0, c1 = residues(sealed).swapaxes(0, 1)
    if scheme == "ckks":  # residues are images
        c0 = ring.inverse(c0)
    else:
        c1 = ring.forward(c1)
    rest = (c0 + ring.products(c1, ring.factors(image))) % np.uint64(q)
    return rest.astype(np.int64) - q * (rest > q // 2)


@pytest.mark.parametrize("scheme", RINGS)
@pytest.mark.parametrize("length", [1, 4095, 4097, 4096 * BLOCK + 1])
def test_what_is_sealed_here_the_library_opens(scheme, length):
    vector = np.random.default_rng(length).uniform(-16, 16, length)
    vector[0] = -16.0
    assert np.abs(SEALERS[scheme].open(SEALERS[scheme].seal(vector)) - vector).max() <= EXACT[scheme]


@pytest.mark.parametrize("scheme", RINGS)
def test_the_noise_is_a_centred_binomial(scheme):
    noise = errors(scheme, SEALERS[scheme].seal(np.zeros(40 * 4096)))
    assert np.abs(noise).max() <= 21
    assert abs(noise.mean()) < 5 * math.sqrt(10.5 / noise.size)
    assert abs(noise.var() / 10.5 - 1) < 5 * math.sqrt(2 / noise.size)
    share = math.comb(42, 21) / 2**42
    assert abs((noise == 0).mean() - share) < 5 * math.sqrt(share / noise.size)


def test_binomials_are_21_bits_less_21_bits():
    class Words:
        def words(self, count):
            return np.array([(1 << 21) - 1, ((1 << 21) - 1) << 21, (1 << 64) - 1, 1, 1 << 42, 0b111 << 20], "<u8")[
                :count
            ]

    assert binomials(Words(), 6).tolist() == [21, -21, 0, 1, 0, -1]


@pytest.mark.parametrize("scheme", RINGS)
def test_c1_fills_the_ring_and_no_draw_comes_twice(scheme):
    zeros = np.zeros(20 * 4096)
    first, second = (residues(SEALERS[scheme].seal(zeros)) for _ in range(2))
    q = KEYS[scheme].ring.modulus
    for sealed in (first, second):
        assert int(sealed.max()) < q
        shares = sealed.astype(np.float64) / q
        assert abs(shares.mean() - 0.5) < 5 / math.sqrt(12 * shares.size)
        assert np.abs(np.bincount((shares * 16).astype(int).ravel()) * 16 / shares.size - 1).max() < 0.05
    drawn = np.concatenate([first[:, 1].ravel(), second[:, 1].ravel()])
    assert len(np.unique(drawn)) == drawn.size
    assert (errors(scheme, SEALERS[scheme].seal(zeros))[0] != errors(scheme, SEALERS[scheme].seal(zeros))[0]).any()


def test_encodings_are_the_librarys():
    """Coefficients of our polynomials against those that the library's encoders make."""
    rng = np.random.default_rng(0)
    slots = rng.normal(size=(3, 2048)) + 1j * rng.normal(size=(3, 2048))
    ring = RINGS["ckks"]
    scale = 2.0**ring.unit_bits
    encoder = seal.CKKSEncoder(ring.context)
    images = [encoder.encode_complex(row, scale).to_bytes()[-8 * 4096 :] for row in slots]
    library = transform(4096, ring.modulus).inverse(np.frombuffer(b"".join(images), "<u8").reshape(3, 4096))
    centred = library.astype(np.int64) - ring.modulus * (library > ring.modulus // 2)
    assert np.abs(embedding(4096).polynomials(slots, scale) - centred).max() <= 1  # two ways to sum in float64

    ring = RINGS["bfv"]
    numbers = rng.integers(-(2**36), 2**36, (2, 4096))
    saved = [seal.BatchEncoder(ring.context).encode(row).to_bytes()[-8 * 4096 :] for row in numbers]
    library = np.frombuffer(b"".join(saved), "<u8").reshape(2, 4096)
    assert np.array_equal(batching(4096, ring.plain_modulus).polynomials(numbers), library)


def test_messages_are_spread_over_the_ring_exactly():
    ring = RINGS["bfv"]
    q, t = ring.modulus, ring.plain_modulus
    messages = np.array([0, 1, t // 2, t // 2 + 1, t - 1, *np.random.default_rng(0).integers(0, t, 500)], np.uint64)
    exact = [(int(m) * q + (t + 1) // 2) // t for m in messages]
    assert spread(messages, q, t).tolist() == exact


@pytest.mark.parametrize("scheme", RINGS)
def test_a_library_that_reads_otherwise_is_refused_before_anything_is_sealed(scheme, monkeypatch):
    sealer = type(SEALERS[scheme])(KEYS[scheme])
    original = type(sealer).open
    monkeypatch.setattr(type(sealer), "open", lambda self, sealed: original(self, sealed)[::-1])
    with pytest.raises(CoveyError, match="use seal-python"):
        sealer.seal(np.zeros(5))


def altered(scheme, change):
    """Keys whose secret's words were changed."""
    keys = KEYS[scheme]
    words = np.frombuffer(keys.secret[-8 * 4096 :], "<u8").copy()
    change(words)
    return Keys(keys.ring, keys.name, keys.secret[: -8 * 4096] + words.tobytes(), keys.encryption)


@pytest.mark.parametrize("scheme", RINGS)
def test_damaged_secrets_never_seal(scheme):
    """Under a secret of zeros a message would go in the clear; under any other wrong one nobody else could open it."""

    def flip(words):
        words[7] ^= np.uint64(1)

    for change in (flip, lambda words: words.fill(0), lambda words: words.__setitem__(slice(None), np.roll(words, 1))):
        with pytest.raises(CoveyError, match="secret of these keys is damaged"):
            type(SEALERS[scheme])(altered(scheme, change)).seal(np.ones(9))
    keys = KEYS[scheme]
    other = Keys(keys.ring, keys.name, Keys.generate(keys.ring).secret, keys.encryption)
    with pytest.raises(CoveyError, match="does not open what their public key seals"):
        type(SEALERS[scheme])(other).seal(np.ones(9))


@pytest.mark.parametrize("scheme", RINGS)
@pytest.mark.parametrize(
    ("field", "value"),
    [("unit_bits", 60), ("unit_bits", 39.5), ("bound", 1e300), ("terms", 2.5), ("plain_modulus", 17), ("degree", "a")],
)
def test_altered_parameters_are_refused_in_a_sentence(scheme, field, value):
    described = json.loads(KEYS[scheme].to_bytes()) | {field: value}
    with pytest.raises(CoveyError, match=r"expected whole numbers|cannot carry sums"):
        Keys.from_bytes(json.dumps(described).encode(), scheme)


@pytest.mark.parametrize(("scheme", "ring"), [("ckks", ckks_ring), ("bfv", bfv_ring)])
def test_small_numbers_seal_and_tiny_ones_are_refused(scheme, ring):
    small = type(SEALERS[scheme])(Keys.generate(ring(bound=1e-6, terms=3)))
    vector = np.array([1e-6, -1e-6, 0.0])
    assert np.abs(small.open(small.seal(vector)) - vector).max() < 1e-11
    with pytest.raises(CoveyError, match="drown in noise"):
        ring(bound=1e-9, terms=1)
