"""Masks that cancel: exact sums, who may be gone, what t clients read and fewer do not, and shares that are none."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from covey.crypto.openings import secagg
from covey.crypto.openings.boxes import BoxKey
from covey.crypto.openings.cohort import SHARE_BYTES, TAG_BYTES, draw_cohort, read_cohort
from covey.crypto.openings.secagg import UnmaskingAdvice, Upload
from covey.crypto.openings.threshold import OpeningQuestion
from covey.errors import CoveyError

N, D, QUORUM = 6, 50, 4
PUBLIC, OWN = secagg.generate_keys(4.0, N, N, QUORUM)
WEIGHTED, OWN_WEIGHTED = secagg.generate_keys(4.0, N, N, QUORUM, weight=1 << 20)
RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.uniform(-4, 4, (N, D))


def uploads(
    public: bytes = PUBLIC, own: list[bytes] = OWN, occasion: str = "run:1", weights: object = None
) -> dict[int, Upload]:
    chosen = weights if isinstance(weights, list) else [1] * N
    return {i: secagg.member(public, i, own[i]).mask(VECTORS[i], chosen[i], occasion) for i in range(N)}


UPLOADS = uploads()


def answers(
    groups: list[list[int]],
    helpers: list[int],
    sent: dict[int, Upload] = UPLOADS,
    public: bytes = PUBLIC,
    own: list[bytes] = OWN,
    occasion: str = "run:1",
) -> dict[int, UnmaskingAdvice]:
    senders = [i for group in groups for i in group]
    return {
        j: secagg.member(public, j, own[j]).advise(
            OpeningQuestion(groups, {i: sent[i].boxes[j] for i in senders}), occasion
        )
        for j in helpers
    }


def opened(
    groups: list[list[int]],
    given: dict[int, UnmaskingAdvice],
    sent: dict[int, Upload] = UPLOADS,
    public: bytes = PUBLIC,
) -> secagg.Unmasked:
    sums = {}
    for n, group in enumerate(groups):
        mixer = secagg.mixer(public, 1, D + 1)
        for i in group:
            mixer.add(sent[i].masked, [0])
        sums[n] = mixer.sums()[0]
    return secagg.unmask(public, sums, dict(enumerate(groups)), {i: sent[i].tags for i in sent}, given)


@pytest.mark.parametrize(
    "groups", [[[0, 1, 2, 3, 4, 5]], [[0, 2, 3, 5]], [[0, 1, 3], [2, 4, 5]], [[0, 5], [1, 4], [2, 3]], [[1, 4], [2, 5]]]
)
def test_sums_are_exact_whoever_is_gone_before_or_after_the_upload(groups: list[list[int]]) -> None:
    """Those in no group are gone before it; of the rest any t answer."""
    step = 2.0 ** -read_cohort(PUBLIC).unit_bits
    fixed = np.rint(VECTORS / step) * step
    for helpers in itertools.combinations(range(N), QUORUM):
        result = opened(groups, answers(groups, list(helpers)))
        for n, group in enumerate(groups):
            total, weight = result.sums[n]
            assert weight == len(group)
            np.testing.assert_array_equal(total, fixed[group].sum(0))
            assert np.abs(total - VECTORS[group].sum(0)).max() <= len(group) * step / 2


def test_sums_by_weight() -> None:
    weights = [1, 7, 1 << 20, 3, 100, 12345]
    sent = uploads(WEIGHTED, OWN_WEIGHTED, weights=weights)
    groups = [[0, 2, 4], [1, 3, 5]]
    given = answers(groups, [0, 2, 3, 5], sent, WEIGHTED, OWN_WEIGHTED)
    result = opened(groups, given, sent, WEIGHTED)
    for n, group in enumerate(groups):
        total, weight = result.sums[n]
        assert weight == sum(weights[i] for i in group)
        np.testing.assert_allclose(
            total / weight, np.average(VECTORS[group], axis=0, weights=[weights[i] for i in group]), atol=1e-8
        )
    for weight in (0, -1, (1 << 20) + 1):
        with pytest.raises(CoveyError, match=r"a model's weight is .*algorithm\.weighting = 'clients'"):
            secagg.member(WEIGHTED, 0, OWN_WEIGHTED[0]).mask(VECTORS[0], weight, "run:1")


def test_fewer_than_the_quorum_open_nothing() -> None:
    assert opened([[0, 1, 2, 3]], answers([[0, 1, 2, 3]], [0, 1, 2])).sums == {}


def test_masks_of_two_rounds_runs_and_rosters_differ_and_hide() -> None:
    """Numbers under masks are uniform to whoever has no seed; of the same vector in two rounds every number differs."""
    cohort = read_cohort(PUBLIC)
    first = cohort.read(UPLOADS[0].masked)[1].astype(np.int64)
    for occasion in ("run:2", "other:1", "run:1"):  # asked again in the same round: another own mask
        other = cohort.read(uploads(occasion=occasion)[0].masked)[1].astype(np.int64)
        assert (first != other).all()
    seeds = [secagg.member(PUBLIC, 0, OWN[0])._seed(1, occasion).tolist() for occasion in ("run:1", "run:2", "other:1")]
    assert len({tuple(seed) for seed in seeds}) == 3
    assert secagg.member(PUBLIC, 1, OWN[1])._seed(0, "run:1").tolist() == seeds[0]
    other_roster = secagg.circle_of(4.0, N, [BoxKey(key).public for key in OWN], QUORUM + 1)
    assert secagg.member(other_roster, 0, OWN[0])._seed(1, "run:1").tolist() != seeds[0]
    long = secagg.member(PUBLIC, 0, OWN[0]).mask(np.zeros(20000), 1, "run:1")
    words = cohort.read(long.masked)[1] / 2.0**32
    assert abs(words.mean() - 0.5) < 0.02 and abs(words.std() - 12**-0.5) < 0.02


def test_a_quorum_of_keys_reads_an_upload_and_fewer_do_not() -> None:
    """Server + t clients; + t − 1; a single one. Pair seeds alone do not, either: the own mask is left."""
    held = dict(enumerate(OWN))
    upload = ([UPLOADS[0].masked], UPLOADS[0].boxes, "run:1")
    (read,) = secagg.pool(PUBLIC, {j: held[j] for j in range(1, 5)}, 0, *upload) or [np.zeros(D + 1)]
    np.testing.assert_allclose(read, [*VECTORS[0], 1.0], atol=1e-6)
    assert secagg.pool(PUBLIC, {j: held[j] for j in range(1, 4)}, 0, *upload) is None
    assert secagg.pool(PUBLIC, {1: held[1]}, 0, *upload) is None
    given = answers([[0, 1, 2, 3]], [0, 1, 2, 3])  # of the sum of four the sum of three does not follow
    assert opened([[0, 1, 2, 3]], given).sums
    assert not opened([[0, 1, 2]], {j: _cut(one, [0, 1, 2]) for j, one in given.items()}).sums


def _cut(advice: UnmaskingAdvice, senders: list[int]) -> UnmaskingAdvice:
    """Answers about four clients, passed off as answers about three: of their masks with the fourth nothing is known."""
    return UnmaskingAdvice({i: advice.shares[i] + advice.shares[i][:SHARE_BYTES] for i in senders}, [])


def test_two_questions_to_two_halves() -> None:
    """A server that tells clients different survivors needs 2t − n of them on its side: 2 here. Then it reads client 3."""
    everyone, without = [[0, 1, 2, 3, 4, 5]], [[0, 1, 2, 4, 5]]
    for corrupted, reads in (([4, 5], True), ([5], False)):
        honest = [i for i in range(N) if i not in corrupted]
        first, second = honest[: len(honest) // 2], honest[len(honest) // 2 :]
        whole = opened(everyone, answers(everyone, [*first, *corrupted])).sums
        rest = opened(without, answers(without, [*second, *corrupted])).sums
        assert bool(whole and rest) == reads
        if reads:
            np.testing.assert_allclose(whole[0][0] - rest[0][0], VECTORS[3], atol=1e-5)


def test_what_is_asked_for_never_has_both_kinds_of_one_client() -> None:
    """Of who is in a group: its own mask, and pairs that leave the group. Of who is in none: nothing at all."""
    (advice,) = answers([[0, 1, 2, 3]], [4]).values()
    assert sorted(advice.shares) == [0, 1, 2, 3]
    assert {len(one) for one in advice.shares.values()} == {SHARE_BYTES * 3}  # own, with 4, with 5
    box = secagg.member(PUBLIC, 4, OWN[4])._unbox(0, {0: UPLOADS[0].boxes[4]}, "run:1")
    assert box is not None and advice.shares[0] == b"".join(box[row] for row in (0, 4, 5))
    for pair in (1, 2, 3):  # masks within the group
        assert box[pair] not in advice.shares[0]


# ---------------------------------------------------------------- liars


def test_wrong_shares_are_left_aside_by_their_tags() -> None:
    group = [[0, 1, 2, 3, 4, 5]]
    given = answers(group, [0, 1, 2, 3, 4, 5])
    lie = dataclasses.replace(given[0], shares={i: bytes(SHARE_BYTES) for i in given[0].shares})
    result = opened(group, given | {0: lie, 1: UnmaskingAdvice({}, list(range(N)))})
    assert result.blamed == () and result.sums[0][1] == N
    np.testing.assert_allclose(result.sums[0][0], VECTORS.sum(0), atol=1e-5)
    assert opened(group, {j: given[j] for j in (0, 1, 2, 3)} | {0: lie}).sums == {}  # three good ones are too few


def test_who_boxes_garbage_is_blamed_by_more_than_can_lie_and_by_fewer_is_not() -> None:
    group = [[0, 1, 2, 3, 4, 5]]
    for spoilt, blamed in ((2, ()), (3, (2,)), (6, (2,))):
        boxes = [b"\1" * len(box) if j < spoilt else box for j, box in enumerate(UPLOADS[2].boxes)]
        sent = {**UPLOADS, 2: dataclasses.replace(UPLOADS[2], boxes=boxes)}
        given = answers(group, list(range(N)), sent)
        assert [j for j, one in given.items() if one.unreadable == [2]] == list(range(spoilt))
        result = opened(group, given, sent)
        assert result.blamed == blamed and bool(result.sums) == (not blamed)


def test_tags_that_are_none_blame_their_maker() -> None:
    sent = {**UPLOADS, 3: dataclasses.replace(UPLOADS[3], tags=bytes(len(UPLOADS[3].tags)))}
    assert opened([[0, 1, 2, 3]], answers([[0, 1, 2, 3]], [0, 1, 2, 3], sent), sent).blamed == (3,)


def test_a_vector_that_is_none_is_noticed() -> None:
    cohort = read_cohort(PUBLIC)
    words = RANDOM.integers(0, 2**32, D + 1, dtype=np.uint64).astype(np.uint32)
    sent = {**UPLOADS, 1: dataclasses.replace(UPLOADS[1], masked=cohort.write(words, 1))}
    with pytest.raises(CoveyError, match="the sum of 4 clients is out of range"):
        opened([[0, 1, 2, 3]], answers([[0, 1, 2, 3]], [0, 1, 2, 3], sent), sent)


# ---------------------------------------------------------------- what is refused


def test_vectors_beyond_the_bound_and_other_peoples_bytes_are_refused() -> None:
    one = secagg.member(PUBLIC, 0, OWN[0])
    for bad in (4.1, np.nan, np.inf):
        with pytest.raises(CoveyError, match="largest magnitude"):
            one.mask(np.full(3, bad), 1, "run:1")
    with pytest.raises(CoveyError, match="not the one that the circle knows of client 1"):
        secagg.member(PUBLIC, 1, OWN[0])
    with pytest.raises(CoveyError, match="holds no key in this circle"):
        secagg.member(PUBLIC, 6, OWN[0])
    mixer = secagg.mixer(PUBLIC, 1, D + 1)
    masked = UPLOADS[0].masked
    for bad_bytes, why in (
        (masked[:-4], "cut or altered"),
        (masked[:-1] + bytes([masked[-1] ^ 1]), "cut or altered"),
        (b"", "64 bytes of label"),
        (secagg.member(WEIGHTED, 0, OWN_WEIGHTED[0]).mask(VECTORS[0], 1, "run:1").masked, "other secagg parameters"),
        (one.mask(VECTORS[0][:7], 1, "run:1").masked, "of 8 floats, expected 51"),
    ):
        with pytest.raises(CoveyError, match=why):
            mixer.add(bad_bytes, [0])


def test_uploads_and_advice_of_another_form_are_refused() -> None:
    boxes, tags = UPLOADS[0].boxes, UPLOADS[0].tags
    secagg.check_upload(PUBLIC, boxes, tags)
    for bad in (boxes[:-1], [*boxes, boxes[0]], [boxes[0][:-1], *boxes[1:]], [b"", *boxes[1:]]):
        with pytest.raises(CoveyError, match="in a box for each"):
            secagg.check_upload(PUBLIC, bad, tags)
    with pytest.raises(CoveyError, match="a tag for each"):
        secagg.check_upload(PUBLIC, boxes, tags[:-TAG_BYTES])
    groups = [[0, 1, 2, 3]]
    (advice,) = answers(groups, [5]).values()
    secagg.check_advice(PUBLIC, advice, groups)
    for shares, unreadable, why in (
        ({}, [], "of every client"),
        (advice.shares, [0], "of every client"),
        ({**advice.shares, 4: b""}, [], "of every client"),
        ({**advice.shares, 0: b""}, [], "expected 3 shares of client 0"),
    ):
        with pytest.raises(CoveyError, match=why):
            secagg.check_advice(PUBLIC, UnmaskingAdvice(shares, unreadable), groups)


def test_parameters_that_were_altered_are_refused() -> None:
    for old, new, why in (
        (b'"quorum": 4', b'"quorum": 3', "were altered"),
        (b'"quorum": 4', b'"quorum": 7', "shares for 6 holders"),
        (b'"bits": 32', b'"bits": 33', "expected 32 or 64 bits"),
        (b'"bits": 32', b'"bits": "x"', "expected 32 or 64|incomplete"),
        (b'"unit_bits"', b'"other"', "incomplete"),
        (b'"scheme": "secagg"', b'"scheme": "bfv"', "Found parameters of 'bfv'"),
    ):
        assert old in PUBLIC
        with pytest.raises(CoveyError, match=why):
            read_cohort(PUBLIC.replace(old, new))
    with pytest.raises(CoveyError, match="the same public key"):
        read_cohort(draw_cohort(4.0, 2, [BoxKey(OWN[0]).public] * 2, 2, 1).to_bytes())
    with pytest.raises(CoveyError, match="is none"):
        read_cohort(draw_cohort(4.0, 2, [BoxKey(OWN[0]).public, bytes(32)], 2, 1).to_bytes())
    with pytest.raises(CoveyError, match="bits after the point"):
        draw_cohort(1e6, 1000, [BoxKey(key).public for key in OWN], 4, 1)


def test_places_that_nobody_holds_yet() -> None:
    roster = [BoxKey(key).public if i != 2 else b"" for i, key in enumerate(OWN)]
    public = secagg.circle_of(4.0, N, roster, 4)
    there = [0, 1, 3, 4, 5]
    sent = {i: secagg.member(public, i, OWN[i]).mask(VECTORS[i], 1, "r") for i in there}
    for i in there:
        secagg.check_upload(public, sent[i].boxes, sent[i].tags)
    groups = [[0, 1], [3, 5]]
    given = answers(groups, [0, 3, 4, 5], sent, public, OWN, "r")
    result = opened(groups, given, sent, public)
    np.testing.assert_allclose(result.sums[1][0], VECTORS[[3, 5]].sum(0), atol=1e-6)


def test_known_numbers() -> None:
    """A pair's mask, derived by hand; whatever changes these changes what silos of two versions add up."""
    keys = [BoxKey(bytes([n]) * 32) for n in range(1, 4)]
    one = secagg.member(secagg.circle_of(16.0, 3, [key.public for key in keys], 2), 0, keys[0].secret)
    cohort, publics = one.cohort, sorted(key.public for key in keys[:2])
    shared = X25519PrivateKey.from_private_bytes(keys[1].secret).exchange(
        X25519PublicKey.from_public_bytes(keys[0].public)
    )
    info = b"covey pair 1\n" + publics[0] + publics[1] + b"covey secagg 1\n" + cohort.digest + b"pair\nrun:1\n"
    stream = _chacha(HKDF(SHA256(), 32, None, info).derive(shared), 800)
    drawn = np.frombuffer(stream, "<u8") & np.uint64(0xFFFF)
    seed = drawn[drawn < 65521][:16].astype("<u2")
    assert one._seed(1, "run:1").tolist() == seed.tolist()
    mask = np.frombuffer(_chacha(hashlib.sha256(b"covey mask 1\n" + seed.tobytes()).digest(), 20), "<u4")
    assert secagg._mask(cohort, seed.astype(np.int64), 5).tolist() == mask.tolist()
    assert cohort.digest.hex()[:16] == "f5f43079172c6d17"
    assert mask.tolist()[:2] == [1330310661, 2674907177]


def _chacha(key: bytes, size: int) -> bytes:
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(size))
