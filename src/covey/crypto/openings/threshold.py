"""Sums that t of n clients open together; no key is shared and none lasts longer than a round.

    seal    c_i = a s_i + e_i + 2^gap m_i     s_i, e_i fresh Gaussians, a public and common to all clients of a round
            s_i in Shamir shares, each in a box for one client                                  -> to the server
    mix     C_S = Σ_{i in S} c_i              the server adds residues, without any key
    advise  y_j = Σ_{i in S} share_ij + pad_j  client j, asked with the sets S alone; pad_j from a key in boxes for all clients
    fuse    Y = Σ_j λ_j y_j                    the server, from any t answers; uniform to it, because of the pads
    open    s_S = Y − Σ_j λ_j pad_j, then m_S from C_S − a s_S                                   every client

Where noise is in the sums everybody may see them: then no pads are put on, and the server opens.

What a client answers depends on the sets S and on what clients boxed for it, never on a ciphertext from the server: there is
no way to present one client's ciphertext as a sum. Nothing in an answer is noise that a second answer could average
away. Whoever opens sums learns the sums of the secrets and errors too; that this tells no more than the sums of the vectors is
the lemma of docs/deployment/threshold_review.md. What is compared with shared keys: docs/deployment/threshold.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey import roles
from covey.crypto.draws import TAIL, Integers, gaussians, uniform
from covey.crypto.key_kinds import KeyKind
from covey.crypto.noise.stream import KEY_BYTES, Stream, Words
from covey.crypto.openings import shamir
from covey.crypto.openings.boxes import OVERHEAD, BoxKey
from covey.crypto.openings.circle import Circle, draw_circle, read_circle
from covey.crypto.openings.roster import check_owner
from covey.crypto.sealing.mixing import ResidueMixer, read_words, write_words
from covey.crypto.sealing.sealing import checked_vector
from covey.errors import CoveyError
from covey.messages import LATER, message

name = "threshold"
label = "Threshold"
title = "exact sums that t of n clients open together, 8 bytes per float; no common key"
family = "sums"
PAD_BOX = KEY_BYTES + OVERHEAD  # bytes of a box with a pad's key


@message
@dataclass(frozen=True)
class OpeningQuestion:
    """What one client is asked: the sets of clients whose keys' sums are wanted, and what these clients boxed for it."""

    groups: Annotated[list[list[int]], roles.Groups]
    boxes: Annotated[dict[int, bytes], roles.Boxes]


@message
@dataclass(frozen=True)
class OpeningAdvice:
    shares: Annotated[list[bytes], roles.BlindedShares]  # of the key of each group, under a pad
    pads: Annotated[bytes, roles.Boxes]  # the pad's key, in a box for each client of the roster, one after the other
    # senders whose box does not open here: then there is nothing else in it
    unreadable: Annotated[list[int] | None, roles.Plain()] = field(default=None, metadata=LATER)


@message
@dataclass(frozen=True)
class Opening:
    """What clients need, beside their own key, to open the sums of one round."""

    occasion: Annotated[str, roles.Plain(str)]
    fused: Annotated[list[bytes], roles.BlindedShares]  # the keys of the groups, under the sum of the pads
    group: Annotated[list[int], roles.Plain(list)]  # of each sum; −1: nobody is in it
    vector: Annotated[list[int], roles.Plain(list)]  # which of the clients' vectors each sum adds
    advisers: Annotated[list[int], roles.Plain(list)]  # whose shares these are
    pads: Annotated[list[bytes], roles.Boxes]  # of each of them, as they sent them


def generate_keys(bound: float, terms: int, clients: int, quorum: int) -> tuple[bytes, list[bytes]]:
    """(public parameters, each client's own key), as a dealer makes them. He is trusted: he knows all keys."""
    own = [BoxKey.generate() for _ in range(clients)]
    return circle_of(bound, terms, [key.public for key in own], quorum), [key.secret for key in own]


def circle_of(bound: float, terms: int, roster: Sequence[bytes], quorum: int) -> bytes:
    """Public parameters for clients who made their keys themselves, from their public ones: nobody knows another's."""
    return draw_circle(bound, terms, roster, quorum).to_bytes()


read = read_circle


def default_quorum(clients: int) -> int:
    """More than half."""
    return clients // 2 + 1


def mixer(public: bytes, clusters: int, length: int) -> ResidueMixer:
    circle = read_circle(public)
    return ResidueMixer(circle, circle.label, clusters, length)


def member(public: bytes, client: int, secret: bytes) -> Member:
    circle, key = read_circle(public), BoxKey(secret)
    check_owner(circle.roster, client, key.public)
    return Member(circle, client, key)


def key_kind(material: bytes, role: str) -> KeyKind:
    """Of a client's own key."""
    opens = "shares of others' one-round keys: with those of enough other silos, what silos seal"
    return KeyKind("own key for the boxes of other silos (X25519)", True, opens, BoxKey(material).public, guarded=True)


@dataclass(frozen=True)
class Member:
    """A client's side."""

    circle: Circle
    client: int
    key: BoxKey = field(repr=False)

    def seal(self, vectors: Sequence[ArrayLike], occasion: str) -> tuple[list[bytes], list[bytes]]:
        """(the vectors sealed under one fresh key, that key's shares in boxes by client); nothing is kept of the key."""
        circle = self.circle
        stream = Stream()
        secret = gaussians(stream, circle.degree)
        from covey.crypto.transform import transform  # brings numba

        ring = transform(circle.degree, circle.modulus)
        factors = ring.factors(ring.forward(_residues(secret, circle.modulus))[0])
        sealed = []
        for number, vector in enumerate(vectors):
            values = checked_vector(vector, circle.bound)
            images = public_images(circle, occasion, number, circle.blocks(values.size))
            masks = ring.products(images, factors)
            plain = gaussians(stream, masks.size)
            plain[: values.size] += np.rint(values * 2.0**circle.unit_bits).astype(np.int64) << circle.gap_bits
            words = masks.reshape(-1) + _residues(plain, circle.modulus)
            words = np.minimum(words, words - np.uint64(circle.modulus))
            sealed.append(write_words(words, circle.label, values.size, 1))
        shares = shamir.split(secret, len(circle.roster), circle.quorum, circle.field, stream)
        about = circle.about("share", occasion)
        return sealed, [self._box(j, circle.write_shares(share), about) for j, share in enumerate(shares)]

    def advise(self, question: OpeningQuestion, occasion: str, padded: bool = True) -> OpeningAdvice:
        """This client's shares of the groups' keys. Which groups may be opened is for the caller to judge, before.

        Without pads the server, too, opens the sums: where they may be seen by everybody, noise being in them.
        """
        circle = self.circle
        about = circle.about("share", occasion)
        senders = sorted({i for group in question.groups for i in group})
        shares, unreadable = self._unboxed(senders, question.boxes, about)
        if unreadable:
            return OpeningAdvice([], b"", unreadable)
        pad_key = Stream().words(KEY_BYTES // 8).tobytes()
        drawn = _pads(circle, pad_key, len(question.groups))
        pads = drawn if padded else [np.zeros_like(pad) for pad in drawn]
        answers = []
        for group, pad in zip(question.groups, pads):
            total = pad.copy()
            for i in group:
                total += shares[i]
            answers.append(circle.write_shares(total % circle.field))
        if not padded:
            return OpeningAdvice(answers, b"")
        about = circle.about("pad", occasion)
        boxes = (self._box(j, pad_key, about) or bytes(PAD_BOX) for j in range(len(circle.roster)))
        return OpeningAdvice(answers, b"".join(boxes))

    def open(self, sums: Sequence[bytes], opening: Opening) -> list[NDArray[np.float64]]:
        """The sums' vectors, exactly; refuses what no honest sum and no honest key can give."""
        circle = self.circle
        check_opening(circle, opening, len(sums))
        secrets = [*self._secrets(opening), None]  # the last is of no group
        return [
            _opened(circle, one, secrets[group], opening.occasion, vector)
            for one, group, vector in zip(sums, opening.group, opening.vector)
        ]

    def _secrets(self, opening: Opening) -> list[Integers]:
        """The sums of the groups' one-round keys, pads taken off."""
        circle = self.circle
        about = circle.about("pad", opening.occasion)
        totals = [circle.read_shares(key) for key in opening.fused]
        for weight, i, boxes in zip(shamir.weights(opening.advisers, circle.field), opening.advisers, opening.pads):
            own = boxes[PAD_BOX * self.client : PAD_BOX * (self.client + 1)]
            pad_key = self.key.open(circle.public_key(i), own, about)
            pads = _pads(circle, pad_key, len(totals))
            totals = [(total - weight * pad) % circle.field for total, pad in zip(totals, pads)]
        return [shamir.centred(total, circle.field) for total in totals]

    def _box(self, receiver: int, content: bytes, about: bytes) -> bytes:
        if not self.circle.roster[receiver]:
            return b""
        return self.key.seal(self.circle.public_key(receiver), content, about)

    def _unboxed(
        self, senders: Sequence[int], boxes: Mapping[int, bytes], about: bytes
    ) -> tuple[dict[int, NDArray[np.int64]], list[int]]:
        """(the shares that these clients made for this one, whose cannot be read). Where more cannot than may be liars, the
        question is of another round, or its boxes were altered on the way: refused.
        """
        shares: dict[int, NDArray[np.int64]] = {}
        problems: dict[int, CoveyError] = {}
        for i in senders:
            try:
                shares[i] = self._unbox(i, boxes, about)
            except CoveyError as e:
                problems[i] = e
                if i not in boxes or len(problems) > self.circle.holders - self.circle.quorum:
                    raise next(iter(problems.values())) from e
        return shares, list(problems)

    def _unbox(self, sender: int, boxes: Mapping[int, bytes], about: bytes) -> NDArray[np.int64]:
        if sender not in boxes:
            raise CoveyError(f"the key of client {sender} is asked for without the share that it made for this client")
        try:
            return self.circle.read_shares(self.key.open(self.circle.public_key(sender), boxes[sender], about))
        except CoveyError as e:
            raise CoveyError(f"the share of client {sender}: {e}") from e


def fuse(
    public: bytes,
    answers: Mapping[int, OpeningAdvice],
    occasion: str,
    group: Sequence[int],
    vector: Sequence[int],
) -> Opening:
    """The server's part: any `quorum` answers become what all clients can open the sums with. It learns nothing from them."""
    circle = read_circle(public)
    advisers = sorted(answers)[: circle.quorum]
    if len(advisers) < circle.quorum:
        raise CoveyError(
            f"{len(advisers)} clients help to open the sums, {circle.quorum} must (algorithm.quorum): this round stays closed"
        )
    groups = len(answers[advisers[0]].shares)
    shares = [[circle.read_shares(share) for share in answers[i].shares] for i in advisers]
    keys = [
        circle.write_shares(shamir.combine(np.stack([own[g] for own in shares]), advisers, circle.field))
        for g in range(groups)
    ]
    return Opening(occasion, keys, list(group), list(vector), advisers, [answers[i].pads for i in advisers])


def pool(
    public: bytes,
    own: Mapping[int, bytes],
    sender: int,
    sealed: Sequence[bytes],
    boxes: Sequence[bytes],
    occasion: str,
) -> list[NDArray[np.float64]] | None:
    """What clients that pool their keys read in one client's upload: everything if they are a quorum, else None.

    For attackers: no protocol of covey does this.
    """
    circle = read_circle(public)
    advisers = sorted(own)[: circle.quorum]
    if len(advisers) < circle.quorum:
        return None
    held = {j: {sender: boxes[j]} for j in advisers}
    about = circle.about("share", occasion)
    shares = np.stack([member(public, j, own[j])._unbox(sender, held[j], about) for j in advisers])
    secret = shamir.centred(shamir.combine(shares, advisers, circle.field), circle.field)
    return [_opened(circle, one, secret, occasion, number) for number, one in enumerate(sealed)]


def check_boxes(public: bytes, boxes: Sequence[bytes]) -> None:
    """Refuses shares of which some are missing, before anybody is asked for them."""
    circle = read_circle(public)
    if len(boxes) != len(circle.roster) or any(bool(key) != bool(box) for key, box in zip(circle.roster, boxes)):
        raise CoveyError(f"expected a share for each of the {circle.holders} clients that hold keys")


def open_unpadded(public: bytes, sums: Sequence[bytes], opening: Opening) -> list[NDArray[np.float64]]:
    """The sums' vectors, exactly, by whoever has the answers of clients that put no pads on them: no key is needed."""
    circle = read_circle(public)
    secrets = [*(shamir.centred(circle.read_shares(key), circle.field) for key in opening.fused), None]
    return [
        _opened(circle, one, secrets[group], opening.occasion, vector)
        for one, group, vector in zip(sums, opening.group, opening.vector)
    ]


def check_advice(public: bytes, advice: OpeningAdvice, groups: int, padded: bool = True) -> None:
    """Refuses what an honest client cannot have answered, as far as it shows."""
    circle = read_circle(public)
    if len(advice.shares) != groups or len(advice.pads) != (PAD_BOX * len(circle.roster) if padded else 0):
        raise CoveyError(f"expected {groups} shares, and pads for {len(circle.roster) if padded else 0} clients")
    for share in advice.shares:
        circle.read_shares(share)


def check_opening(circle: Circle, opening: Opening, sums: int) -> None:
    """Refuses an opening of another form than the server can honestly have made."""
    advisers, groups = opening.advisers, len(opening.fused)
    numbers = [*opening.group, *opening.vector, *advisers]
    if (
        len(opening.group) != sums
        or len(opening.vector) != sums
        or len(advisers) != circle.quorum
        or len(opening.pads) != len(advisers)
        or any(len(boxes) != PAD_BOX * len(circle.roster) for boxes in opening.pads)
        or any(type(n) is not int for n in numbers)
        or any(not -1 <= g < groups for g in opening.group)
        or any(not 0 <= v < max(sums, 1) for v in opening.vector)
    ):
        raise CoveyError(f"the sums came with an opening that does not fit them, or not of {circle.quorum} clients")


@lru_cache(maxsize=32)
def public_images(circle: Circle, occasion: str, vector: int, blocks: int) -> Words:
    """The transforms of the public polynomials [blocks, N] that a vector is sealed with, from a hash of what it is about."""
    seed = hashlib.sha256(circle.about(f"public {vector}", occasion)).digest()
    return uniform(Stream(seed), blocks * circle.degree, circle.modulus).reshape(blocks, circle.degree)


def _opened(circle: Circle, sealed: bytes, secret: Integers | None, occasion: str, vector: int) -> NDArray[np.float64]:
    """What stands in a sealed vector, or in a sum, with the (sum of the) keys that it was sealed under."""
    claimed, words = read_words(sealed, circle.label, circle)
    if claimed.terms == 0:  # nobody is in it: there is nothing to open
        return np.zeros(claimed.length)
    if secret is None:
        raise CoveyError("a sum came without the key that opens it: the server mixed up its groups")
    from covey.crypto.transform import transform

    ring = transform(circle.degree, circle.modulus)
    factors = ring.factors(ring.forward(_residues(secret, circle.modulus))[0])
    images = public_images(circle, occasion, vector, circle.blocks(claimed.length))
    masks = ring.products(images, factors).reshape(-1)
    return _values(circle, words, masks, claimed.terms)[: claimed.length]


def _pads(circle: Circle, key: bytes, groups: int) -> list[NDArray[np.int64]]:
    stream = Stream(key)
    return [uniform(stream, circle.degree, circle.field).astype(np.int64) for _ in range(groups)]


def _residues(numbers: Integers, q: int) -> Words:
    """Whole numbers within ±q as residues, without a branch."""
    return (numbers + (numbers >> 63 & q)).view(np.uint64)


def _values(circle: Circle, words: Words, masks: Words, terms: int) -> NDArray[np.float64]:
    q = np.uint64(circle.modulus)
    rest = words + q - masks
    rest = np.minimum(rest, rest - q)
    numbers = rest.astype(np.int64)
    numbers -= circle.modulus * (numbers > circle.modulus // 2)
    whole = (numbers + (1 << (circle.gap_bits - 1))) >> circle.gap_bits
    errors = numbers - (whole << circle.gap_bits)
    if int(np.abs(errors).max()) > terms * TAIL:
        raise CoveyError("a sum does not open: it, its key or a share of its key was altered, or is of other clients")
    values: NDArray[np.float64] = whole / 2.0**circle.unit_bits
    if float(np.abs(values).max()) > 1.001 * circle.bound * terms:
        raise CoveyError(
            f"an opened sum of {terms} vectors exceeds ±{circle.bound * terms:g}: a vector in it was too large"
        )
    return values
