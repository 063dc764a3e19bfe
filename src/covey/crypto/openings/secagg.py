"""Masks that cancel in the sum: the server learns the sums of groups of clients, and of no client more than that.

    mask    y_i = x_i + PRG(b_i) + Σ_{j>i} PRG(k_ij) − Σ_{j<i} PRG(k_ij)   modulo 2^bits
            b_i fresh; k_ij from X25519 between i and j, for this run, round and what both were sent
            b_i and every k_ij in Shamir shares, each in a box for one client, and a tag of each share -> to the server
    mix     Y_S = Σ_{i in S} y_i            for disjoint groups S of those whose vectors came
    advise  client j, asked with the groups alone: its shares of b_i for every i in them, and of k_ij' for every j' that is not in
            i's group. Never of k_ij' within a group, and of who is in no group never of b
    unmask  the server takes off PRG(b_i), and those PRG(k_ij') that did not cancel

Double masking and recovery of drop-outs are those of Bonawitz et al. (CCS 2017). As in Flamingo (Ma et al., S&P 2023) keys last
longer than a round and what is shared are the seeds of one round and pair, so that one more exchange is enough, and nobody's
key is ever put together. Tags (hashes of shares) tell the server which shares are not what their maker boxed.
docs/deployment/secagg.md has who learns what, what is proved by whom, and limits.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey import roles
from covey.crypto.draws import Integers, uniform
from covey.crypto.key_kinds import KeyKind
from covey.crypto.noise.stream import Stream
from covey.crypto.openings import shamir
from covey.crypto.openings.boxes import OVERHEAD, BoxKey
from covey.crypto.openings.cohort import (
    FIELD,
    SEED,
    SHARE_BYTES,
    TAG_BYTES,
    Cohort,
    Words,
    draw_cohort,
    read_cohort,
)
from covey.crypto.openings.roster import check_owner
from covey.crypto.openings.threshold import OpeningQuestion
from covey.crypto.sealing.sealing import checked_members
from covey.errors import CoveyError
from covey.messages import message

name = "secagg"
label = "SecAgg"
title = "masks that cancel in the sum, which the server alone learns; 4 bytes per float, 8 with weights; no common key"
family = "masks"


@message
@dataclass(frozen=True)
class UnmaskingAdvice:
    # by sender: of its own mask's seed, then of those with clients that are not in its group
    shares: Annotated[dict[int, bytes], roles.MaskShares]
    unreadable: Annotated[list[int], roles.Plain(list)]  # senders whose box does not open here


@dataclass(frozen=True)
class Upload:
    """What one client sends of a vector."""

    masked: bytes
    boxes: list[bytes]  # by client
    tags: bytes  # [clients, shares] of TAG_BYTES


@dataclass(frozen=True)
class Unmasked:
    """What the server has got out of a round."""

    sums: dict[int, tuple[NDArray[np.float64], int]]  # group -> sum of the vectors times weights, sum of the weights
    blamed: tuple[int, ...] = ()  # clients of which more than n − t others say, or show, that their shares are none


def generate_keys(bound: float, terms: int, clients: int, quorum: int, weight: int = 1) -> tuple[bytes, list[bytes]]:
    """(public parameters, each client's own key), as a dealer makes them. He is trusted: he knows all keys."""
    own = [BoxKey.generate() for _ in range(clients)]
    return circle_of(bound, terms, [key.public for key in own], quorum, weight), [key.secret for key in own]


def circle_of(bound: float, terms: int, roster: Sequence[bytes], quorum: int, weight: int = 1) -> bytes:
    """Public parameters for clients who made their keys themselves, from their public ones: nobody knows another's."""
    return draw_cohort(bound, terms, roster, quorum, weight).to_bytes()


read = read_cohort


def default_quorum(clients: int) -> int:
    """Two thirds: a server that tells clients different groups then needs a third of them on its side."""
    return -(-2 * clients // 3)


def mixer(public: bytes, clusters: int, length: int) -> MaskMixer:
    return MaskMixer(read_cohort(public), clusters, length)


def member(public: bytes, client: int, secret: bytes) -> Member:
    cohort, key = read_cohort(public), BoxKey(secret)
    check_owner(cohort.roster, client, key.public)
    return Member(cohort, client, key)


def key_kind(material: bytes, role: str) -> KeyKind:
    """Of a client's own key."""
    opens = "shares of others' masks: with those of enough other silos, what silos send; and, with the sums' masks, what it sent"
    return KeyKind(
        "own key for masks and boxes between silos (X25519)", True, opens, BoxKey(material).public, guarded=True
    )


class MaskMixer:
    """The server's sums, modulo 2^bits; flat memory, no key."""

    def __init__(self, cohort: Cohort, clusters: int, length: int) -> None:
        self._cohort, self._terms = cohort, [0] * clusters
        self._sums = np.zeros((clusters, length), cohort.word)

    def add(self, sealed: bytes, members: Sequence[int]) -> None:
        chosen = checked_members(members, len(self._terms))
        claimed, words = self._cohort.read(sealed, self._sums.shape[1])
        if any(self._terms[j] + claimed.terms > self._cohort.terms for j in chosen):
            raise CoveyError(f"More than {self._cohort.terms} vectors in one sum: make keys with more terms.")
        for j in chosen:
            self._terms[j] += claimed.terms
            self._sums[j] += words

    def sums(self) -> list[bytes]:
        return [self._cohort.write(words, terms) for words, terms in zip(self._sums, self._terms, strict=True)]


@dataclass(frozen=True)
class Member:
    """A client's side."""

    cohort: Cohort
    client: int
    key: BoxKey = field(repr=False)

    def mask(self, vector: ArrayLike, weight: int, occasion: str, alike: str = "") -> Upload:
        """Nothing is kept of the seeds. One vector an occasion: two under the same masks would show their difference.

        `alike`: what all clients must have been sent; with those who were sent something else no mask cancels.
        """
        cohort, stream = self.cohort, Stream()
        own = uniform(stream, SEED, FIELD).astype(np.int64)
        peers = cohort.peers(self.client)
        seeds = np.stack([own, *(self._seed(j, occasion, alike) for j in peers)])  # [1 + peers, SEED]
        words = cohort.encode(vector, weight)
        words += _mask(cohort, own, words.size)
        for j, seed in zip(peers, seeds[1:]):
            _add(words, _mask(cohort, seed, words.size), _sign(self.client, j))
        shares = shamir.split(seeds.reshape(-1), len(cohort.roster), cohort.quorum, FIELD, stream)
        written = [share.astype("<u2").tobytes() for share in shares]
        about = cohort.about("share", occasion)
        boxes = [self._box(j, share, about) for j, share in enumerate(written)]
        return Upload(cohort.write(words, 1), boxes, b"".join(_tags(share) for share in written))

    def advise(self, question: OpeningQuestion, occasion: str) -> UnmaskingAdvice:
        """This client's shares of the masks that stay in the groups' sums. Which groups may be opened is for the caller to
        judge, before.
        """
        shares: dict[int, bytes] = {}
        unreadable: list[int] = []
        for group in question.groups:
            for i in group:
                own = self._unbox(i, question.boxes, occasion)
                if own is None:
                    unreadable.append(i)
                else:
                    shares[i] = b"".join(own[row] for row in _rows(self.cohort, i, group))
        return UnmaskingAdvice(shares, sorted(unreadable))

    def _seed(self, other: int, occasion: str, alike: str = "") -> Integers:
        """What this client and another one alone know in a round."""
        about = self.cohort.about("pair", f"{occasion}\n{alike}")
        agreed = self.key.agree(self.cohort.public_key(other), about)
        return uniform(Stream(agreed), SEED, FIELD).astype(np.int64)

    def _box(self, receiver: int, content: bytes, about: bytes) -> bytes:
        if not self.cohort.roster[receiver]:
            return b""
        return self.key.seal(self.cohort.public_key(receiver), content, about)

    def _unbox(self, sender: int, boxes: Mapping[int, bytes], occasion: str) -> list[bytes] | None:
        """The shares that a client made for this one; None: it made none that can be read, or they were altered."""
        try:
            content = self.key.open(
                self.cohort.public_key(sender), boxes.get(sender, b""), self.cohort.about("share", occasion)
            )
        except CoveyError:
            return None
        return _pieces(content, SHARE_BYTES) if len(content) == SHARE_BYTES * self.cohort.holders else None


def unmask(
    public: bytes,
    sums: Mapping[int, bytes],
    groups: Mapping[int, Sequence[int]],
    tags: Mapping[int, bytes],
    answers: Mapping[int, UnmaskingAdvice],
) -> Unmasked:
    """The server's part: what stands in the sums of the groups, with the shares of any `quorum` clients.

    Args:
        sums: by group, as a mixer gave them.
        groups: whose vectors are in its sum; those that the answers are about.
        tags: of every client in a group, as it sent them.
    """
    cohort = read_cohort(public)
    group_of = {i: group for group in groups.values() for i in group}
    good = {i: _good_shares(cohort, i, group, tags[i], answers) for i, group in group_of.items()}
    blamed = [i for i in group_of if _is_blamed(cohort, good[i], answers)]
    seeds = {} if blamed else _seeds(cohort, good)
    if len(seeds) < len(group_of):
        return Unmasked({}, tuple(blamed))
    return Unmasked({number: _unmasked(cohort, sums[number], group, seeds) for number, group in groups.items()})


def _unmasked(
    cohort: Cohort, total: bytes, group: Sequence[int], seeds: Mapping[int, Integers]
) -> tuple[NDArray[np.float64], int]:
    """A group's sum without its own masks, and those that it does not hold both ends of."""
    words, inside = cohort.read(total)[1].copy(), set(group)
    for i in group:
        words -= _mask(cohort, seeds[i][0], words.size)
        others = [j for j in cohort.peers(i) if j not in inside]
        for j, seed in zip(others, seeds[i][1:], strict=True):
            _add(words, _mask(cohort, seed, words.size), -_sign(i, j))
    return cohort.decode(words, len(group))


def pool(
    public: bytes,
    own: Mapping[int, bytes],
    sender: int,
    sealed: Sequence[bytes],
    boxes: Sequence[bytes],
    occasion: str,
) -> list[NDArray[np.float64]] | None:
    """What clients that pool their keys read in one client's upload, its vector and weight: all of it if they are a quorum, else
    None. For attackers: no protocol of covey does this.
    """
    cohort = read_cohort(public)
    if len(own) < cohort.quorum:
        return None
    question = {j: OpeningQuestion([[sender]], {sender: boxes[j]}) for j in own}
    shares = {j: member(public, j, key).advise(question[j], occasion).shares[sender] for j, key in own.items()}
    seeds = _seeds(cohort, {sender: shares})
    total, weight = _unmasked(cohort, sealed[0], [sender], seeds)
    return [np.append(total / weight, weight)]


# ---------------------------------------------------------------- what an honest client cannot have sent


def check_upload(public: bytes, boxes: Any, tags: bytes) -> None:
    """Refuses shares of which some are missing, before anybody is asked for them."""
    cohort = read_cohort(public)
    length = OVERHEAD + SHARE_BYTES * cohort.holders
    lengths = [len(box) for box in boxes] if isinstance(boxes, list) else []
    if lengths != [length if key else 0 for key in cohort.roster]:
        raise CoveyError(f"expected {cohort.holders} shares in a box for each of the clients that hold keys")
    if len(tags) != TAG_BYTES * cohort.holders * len(cohort.roster):
        raise CoveyError(f"expected a tag for each of {cohort.holders} shares for {len(cohort.roster)} clients")


def check_advice(public: bytes, advice: UnmaskingAdvice, groups: Sequence[Sequence[int]]) -> None:
    """Refuses what an honest client cannot have answered, as far as it shows without tags."""
    cohort = read_cohort(public)
    asked = {i: group for group in groups for i in group}
    answered = [*advice.shares, *advice.unreadable]
    if sorted(map(str, answered)) != sorted(map(str, asked)):
        raise CoveyError("expected shares of every client in the groups, or that they cannot be read")
    for i, shares in advice.shares.items():
        if len(shares) != SHARE_BYTES * len(_rows(cohort, i, asked[i])):
            raise CoveyError(f"expected {len(_rows(cohort, i, asked[i]))} shares of client {i}")


# ---------------------------------------------------------------- shares, tags, masks


def _rows(cohort: Cohort, sender: int, group: Sequence[int]) -> list[int]:
    """Which of a sender's shares are asked for: of its own mask, and of those with clients outside of its group."""
    inside = set(group)
    return [0, *(1 + n for n, j in enumerate(cohort.peers(sender)) if j not in inside)]


def _good_shares(
    cohort: Cohort, sender: int, group: Sequence[int], tags: bytes, answers: Mapping[int, UnmaskingAdvice]
) -> dict[int, bytes]:
    """By client: its shares of a sender's seeds, where they are what the sender tagged."""
    table = np.frombuffer(tags, np.uint8).reshape(len(cohort.roster), cohort.holders, TAG_BYTES)
    rows, good = _rows(cohort, sender, group), {}
    for j, advice in answers.items():
        shares = advice.shares.get(sender)
        if shares is not None and _tags(shares) == table[j, rows].tobytes():
            good[j] = shares
    return good


def _is_blamed(cohort: Cohort, good: Mapping[int, bytes], answers: Mapping[int, UnmaskingAdvice]) -> bool:
    """Whether more answers lack good shares of a client than there can be liars where t are honest."""
    return len(answers) - len(good) > cohort.holders - cohort.quorum


def _seeds(cohort: Cohort, good: Mapping[int, Mapping[int, bytes]]) -> dict[int, Integers]:
    """By sender: the seeds [rows, SEED] that t good shares give; senders with the same helpers at once."""
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, shares in good.items():
        if len(shares) >= cohort.quorum:
            together[tuple(sorted(shares)[: cohort.quorum])].append(i)
    seeds: dict[int, Integers] = {}
    for helpers, senders in together.items():
        table = np.stack([_residues(b"".join(good[i][j] for i in senders)) for j in helpers])  # [t, all rows]
        whole = shamir.combine(table, helpers, FIELD).reshape(-1, SEED)
        ends = np.cumsum([len(good[i][helpers[0]]) // SHARE_BYTES for i in senders])
        seeds |= dict(zip(senders, np.split(whole, ends[:-1])))
    return seeds


def _residues(shares: bytes) -> Integers:
    return np.frombuffer(shares, "<u2").astype(np.int64)


def _pieces(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def _tags(shares: bytes) -> bytes:
    """Hashes of shares, one after the other: a share has 255 bits that nobody can guess."""
    return b"".join(
        hashlib.sha256(b"covey share 1\n" + one).digest()[:TAG_BYTES] for one in _pieces(shares, SHARE_BYTES)
    )


def _mask(cohort: Cohort, seed: Integers, length: int) -> Words:
    key = hashlib.sha256(b"covey mask 1\n" + seed.astype("<u2").tobytes()).digest()
    words = Stream(key).words(-(-length * cohort.bits // 64))
    return words.view(cohort.word)[:length]


def _sign(client: int, other: int) -> int:
    return 1 if client < other else -1


def _add(words: Words, mask: Words, sign: int) -> None:
    if sign > 0:
        words += mask
    else:
        words -= mask
