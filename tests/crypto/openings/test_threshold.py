"""The scheme as its parties use it: exact sums from any quorum, nothing from fewer, SEAL's decryption, the largest noise."""

import dataclasses
from itertools import combinations

import numpy as np
import pytest
import seal
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.crypto.draws import TAIL
from covey.crypto.openings import shamir, threshold
from covey.crypto.openings.circle import MODULUS_BITS, Circle, draw_circle, read_circle
from covey.crypto.openings.threshold import Opening, OpeningAdvice, OpeningQuestion, fuse
from covey.crypto.sealing.sealing import LABEL_BYTES, check_sealed, mixer
from covey.crypto.transform import transform
from covey.errors import CoveyError

CLIENTS, QUORUM, LENGTH = 5, 3, 5000  # two blocks
PUBLIC, OWN = threshold.generate_keys(16.0, CLIENTS, CLIENTS, QUORUM)
MEMBERS = [threshold.member(PUBLIC, i, key) for i, key in enumerate(OWN)]
CIRCLE = MEMBERS[0].circle
VECTORS = np.random.default_rng(0).normal(0, 1, (CLIENTS, LENGTH))
SEALED, BOXES = zip(*(m.seal([v], "run:1") for m, v in zip(MEMBERS, VECTORS)))
GROUPS = [[0, 1, 2], [1, 3, 4], [0, 1, 2, 3, 4]]


def question(j, groups=GROUPS, boxes=BOXES):
    return OpeningQuestion(groups, {i: boxes[i][j] for i in sorted({i for group in groups for i in group})})


def sums(groups=GROUPS, sealed=SEALED, vectors=None):
    mixed = threshold.mixer(PUBLIC, len(groups), LENGTH)
    for i in range(CLIENTS):
        mixed.add(sealed[i][0], [g for g, group in enumerate(groups) if i in group])
    return mixed.sums()


SUMS = sums()
ADVICE = {j: MEMBERS[j].advise(question(j), "run:1") for j in range(CLIENTS)}
OPENING = fuse(PUBLIC, ADVICE, "run:1", [0, 1, 2], [0, 0, 0])


@pytest.mark.parametrize("advisers", list(combinations(range(CLIENTS), QUORUM)))
def test_any_quorum_opens_the_same_exact_sums(advisers):
    opening = fuse(PUBLIC, {j: ADVICE[j] for j in advisers}, "run:1", [0, 1, 2], [0, 0, 0])
    assert opening.advisers == list(advisers)
    steps = np.rint(VECTORS * 2.0**CIRCLE.unit_bits)
    for group, opened in zip(GROUPS, MEMBERS[advisers[0] - 1].open(SUMS, opening)):
        assert np.array_equal(opened * 2.0**CIRCLE.unit_bits, steps[group].sum(0))


def test_fewer_than_the_quorum_open_nothing():
    with pytest.raises(CoveyError, match="2 clients help to open the sums, 3 must"):
        fuse(PUBLIC, {j: ADVICE[j] for j in (0, 3)}, "run:1", [0, 1, 2], [0, 0, 0])


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=9))
def test_every_number_within_the_bound_comes_back(numbers):
    plain = np.array(numbers) * 2.0**-16
    sealed, boxes = zip(*(m.seal([plain], "run:9") for m in MEMBERS))
    mixed = threshold.mixer(PUBLIC, 1, plain.size)
    for one in sealed:
        mixed.add(one[0], [0])
    everyone = [list(range(CLIENTS))]
    answers = {j: MEMBERS[j].advise(question(j, everyone, boxes), "run:9") for j in range(QUORUM)}
    opened = MEMBERS[4].open(mixed.sums(), fuse(PUBLIC, answers, "run:9", [0], [0]))
    assert np.array_equal(opened[0], CLIENTS * plain)


def test_what_the_server_gets_is_not_the_key():
    """Padded, a share is another one for every question; two advices of the same groups have nothing in common."""
    again = MEMBERS[0].advise(question(0), "run:1")
    assert all(a != b for a, b in zip(again.shares, ADVICE[0].shares))
    residues = np.concatenate([CIRCLE.read_shares(share) for share in again.shares])
    assert abs(residues.mean() / (CIRCLE.field / 2) - 1) < 0.05  # uniform, where keys are small numbers
    mixed = {**ADVICE, 0: again}
    assert np.array_equal(MEMBERS[1].open(SUMS, fuse(PUBLIC, mixed, "run:1", [0, 1, 2], [0, 0, 0]))[0], opened_first())


def opened_first():
    return MEMBERS[1].open(SUMS, OPENING)[0]


@pytest.mark.parametrize("change", ["residue", "key", "group", "occasion", "vector", "adviser"])
def test_what_was_altered_does_not_open(change):
    total, opening = SUMS, OPENING
    if change == "residue":  # with a digest that fits
        other = threshold.mixer(PUBLIC, 1, LENGTH)
        for i in (0, 1, 3):
            other.add(SEALED[i][0], [0])
        total = [*other.sums(), *SUMS[1:]]
    elif change == "key":
        residues = CIRCLE.read_shares(OPENING.fused[0])
        residues[7] = (residues[7] + 1) % CIRCLE.field
        opening = dataclasses.replace(OPENING, fused=[CIRCLE.write_shares(residues), *OPENING.fused[1:]])
    elif change == "group":
        opening = dataclasses.replace(OPENING, group=[1, 1, 2])
    elif change == "occasion":
        opening = dataclasses.replace(OPENING, occasion="run:2")
    elif change == "vector":
        opening = dataclasses.replace(OPENING, vector=[1, 0, 0])
    else:
        opening = dataclasses.replace(OPENING, advisers=[0, 1, 4])
    with pytest.raises(CoveyError, match=r"does not open"):
        MEMBERS[0].open(total, opening)


@pytest.mark.parametrize(
    "change",
    [
        {"advisers": [0, 1]},
        {"group": [0, 1]},
        {"group": [0, 1, 7]},
        {"vector": [0, 0, 9]},
        {"pads": [b"", b"", b""]},
        {"fused": [b"x"] * 3},
    ],
)
def test_openings_of_another_form_are_refused(change):
    with pytest.raises(CoveyError):
        MEMBERS[0].open(SUMS, dataclasses.replace(OPENING, **change))


def test_a_share_counts_in_its_round_for_its_receiver_and_from_its_sender():
    with pytest.raises(CoveyError, match=r"share of client 0: a box does not open"):
        MEMBERS[2].advise(question(2), "run:2")
    with pytest.raises(CoveyError, match=r"share of client 0: a box does not open"):
        MEMBERS[2].advise(question(3), "run:1")
    swapped = {**question(2).boxes, 0: BOXES[1][2]}
    assert MEMBERS[2].advise(OpeningQuestion(GROUPS, swapped), "run:1") == OpeningAdvice([], b"", [0])
    with pytest.raises(CoveyError, match="without the share"):
        MEMBERS[2].advise(OpeningQuestion(GROUPS, {}), "run:1")


def test_a_client_with_fewer_shares_than_the_quorum_gets_no_key():
    """Two clients that pool what was boxed for them: their shares of client 0's key interpolate to something else."""
    about = CIRCLE.about("share", "run:1")
    pooled = [
        CIRCLE.read_shares(MEMBERS[j].key.open(MEMBERS[0].key.public, BOXES[0][j], about)) for j in range(CLIENTS)
    ]
    whole = shamir.centred(shamir.combine(np.stack(pooled[1:4]), [1, 2, 3], CIRCLE.field), CIRCLE.field)
    part = shamir.centred(shamir.combine(np.stack(pooled[1:3]), [1, 2], CIRCLE.field), CIRCLE.field)
    assert np.abs(whole).max() <= TAIL < np.abs(part).max()


def test_seal_decrypts_our_sums():
    """SEAL's own BFV decryption, given a sum and the sum of the keys, reads the same numbers."""
    member = MEMBERS[0]
    ring = transform(CIRCLE.degree, CIRCLE.modulus)
    small = np.rint(np.linspace(-1000, 1000, CIRCLE.degree)) * 2.0**-CIRCLE.unit_bits
    sealed, boxes = member.seal([small], "run:1")
    about = CIRCLE.about("share", "run:1")
    shares = np.stack([CIRCLE.read_shares(m.key.open(member.key.public, boxes[m.client], about)) for m in MEMBERS[:3]])
    secret = shamir.centred(shamir.combine(shares, [0, 1, 2], CIRCLE.field), CIRCLE.field)
    plain_bits = MODULUS_BITS - CIRCLE.gap_bits
    parameters = seal.EncryptionParameters(seal.scheme_type.bfv)
    parameters.set_poly_modulus_degree(CIRCLE.degree)
    parameters.set_coeff_modulus([seal.Modulus(CIRCLE.modulus)])
    parameters.set_plain_modulus(1 << plain_bits)
    context = seal.SEALContext(parameters)
    theirs = seal.KeyGenerator(context).secret_key()
    blank = seal.Encryptor(context, theirs).encrypt_symmetric(seal.Plaintext("1")).to_string()
    image = ring.forward((secret % CIRCLE.modulus).astype(np.uint64))[0]
    key = context.from_secret_str(theirs.to_string()[: -8 * CIRCLE.degree] + image.tobytes())
    a = ring.inverse(threshold.public_images(CIRCLE, "run:1", 0, 1))[0]
    c1 = (np.uint64(CIRCLE.modulus) - a) % np.uint64(CIRCLE.modulus)
    header = blank[: -2 * 8 * CIRCLE.degree]
    ciphertext = context.from_cipher_str(header + sealed[0][LABEL_BYTES:] + c1.tobytes())
    opened = seal.Decryptor(context, key).decrypt(ciphertext)
    coefficients = np.frombuffer(opened.to_bytes()[-8 * opened.coeff_count() :], "<u8").astype(np.int64)
    coefficients -= (1 << plain_bits) * (coefficients >> (plain_bits - 1))
    assert np.array_equal(coefficients, np.rint(small * 2.0**CIRCLE.unit_bits)[: len(coefficients)])


@pytest.mark.parametrize("terms", [1, 8, 1024])
def test_the_largest_errors_of_all_clients_leave_the_sum_exact(terms):
    circle = draw_circle(16.0, terms, [bytes([1]) * 32] * 3, 2)
    for sign in (-1, 1):
        whole = sign * int(16 * 2.0**circle.unit_bits) * terms
        for error in (-terms * TAIL, 0, terms * TAIL):
            residue = ((whole << circle.gap_bits) + error) % circle.modulus
            words = np.full(circle.degree, residue, np.uint64)
            values = threshold._values(circle, words, np.zeros_like(words), terms)
            assert np.array_equal(values, np.full(circle.degree, sign * 16.0 * terms))
        beyond = np.full(4, ((whole << circle.gap_bits) + terms * TAIL + 1) % circle.modulus, np.uint64)
        with pytest.raises(CoveyError, match="does not open"):
            threshold._values(circle, beyond, np.zeros_like(beyond), terms)
    assert 2 * terms * TAIL < circle.field


def test_precision_follows_from_the_clients():
    assert [draw_circle(16.0, n, [b""] * 2 + [bytes([1]) * 32] * 3, 2).unit_bits for n in (8, 120, 1024)] == [
        37,
        30,
        23,
    ]


def test_vectors_that_cannot_be_sealed_are_refused():
    for bad in (np.full(3, 17.0), np.array([np.nan]), np.zeros((2, 2)), np.zeros(0)):
        with pytest.raises(CoveyError):
            MEMBERS[0].seal([bad], "run:1")


def test_a_server_checks_what_it_can():
    check_sealed(PUBLIC, SEALED[0][0], LENGTH)
    with pytest.raises(CoveyError, match="sum of several"):
        check_sealed(PUBLIC, SUMS[0], LENGTH)
    with pytest.raises(CoveyError, match="altered"):
        check_sealed(PUBLIC, SEALED[0][0][:-1] + b"\xff", LENGTH)
    with pytest.raises(CoveyError, match="share for each"):
        threshold.check_boxes(PUBLIC, BOXES[0][:-1])
    with pytest.raises(CoveyError, match="expected 2 shares"):
        threshold.check_advice(PUBLIC, ADVICE[0], 2)
    with pytest.raises(CoveyError, match="too large"):
        threshold.check_advice(PUBLIC, OpeningAdvice([b"\xff" * 8192] * 3, ADVICE[0].pads), 3)
    with pytest.raises(CoveyError, match="another length"):
        threshold.check_advice(PUBLIC, OpeningAdvice([b""] * 3, ADVICE[0].pads), 3)


def test_parameters_are_checked_when_they_are_read():
    text = PUBLIC.decode()
    for altered in (
        text.replace('"quorum": 3', '"quorum": 2'),
        text.replace('"quorum": 3', '"quorum": 6'),
        text.replace('"quorum": 3', '"quorum": "x"'),
        text.replace('"degree": 4096', '"degree": 1024'),
        text.replace(f'"gap_bits": {CIRCLE.gap_bits}', '"gap_bits": 3'),
        text.replace('"threshold"', '"ckks"'),
        text.replace('"roster"', '"rooster"'),
    ):
        assert altered != text
        with pytest.raises(CoveyError):
            read_circle(altered.encode())
    with pytest.raises(CoveyError, match="not the one that the circle knows"):
        threshold.member(PUBLIC, 1, OWN[0])
    with pytest.raises(CoveyError, match=r"lower algorithm\.quorum"):
        Circle(**dataclasses.asdict(CIRCLE) | {"roster": (CIRCLE.roster[0], "", "", "", "")})
    with pytest.raises(CoveyError, match="after the point"):
        draw_circle(1e12, 8, [bytes([1]) * 32] * 3, 2)


def test_a_place_that_nobody_holds_gets_no_share():
    public = threshold.circle_of(16.0, 3, [m.key.public for m in MEMBERS[:2]] + [b""], 2)
    member = threshold.member(public, 0, OWN[0])
    _, boxes = member.seal([np.zeros(4)], "run:1")
    assert boxes[2] == b"" and all(boxes[:2])
    threshold.check_boxes(public, boxes)
    with pytest.raises(CoveyError, match="holds no key"):
        threshold.member(public, 2, OWN[2])


def test_sums_of_nobody_are_zeros():
    mixed = mixer(PUBLIC, 1, 10)
    opening = Opening("run:1", [], [-1], [0], OPENING.advisers, OPENING.pads)
    assert np.array_equal(MEMBERS[0].open(mixed.sums(), opening)[0], np.zeros(10))


def test_public_keys_that_a_silo_made_up_are_refused():
    """With another's key twice in the roster its share would stand for two, and its vector twice in a sum; for a point of small
    order no silo could seal, and all of them would stop.
    """
    publics = [m.key.public for m in MEMBERS[:3]]
    with pytest.raises(CoveyError, match="two clients have the same public key"):
        read_circle(threshold.circle_of(16.0, 3, [*publics[:2], publics[0]], 2))
    for point in (bytes(32), bytes([1]) + bytes(31)):
        with pytest.raises(CoveyError, match="public key is none"):
            read_circle(threshold.circle_of(16.0, 3, [*publics[:2], point], 2))
