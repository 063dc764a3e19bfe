"""One interface for rows that a relay covers and a key holder compares: FedCAPrivacy's two directions of encryption.

A row is a model as whole numbers, `round(w · 2^24)`. Its owner seals it under a key that the relay lacks. The relay covers
all rows of a round alike: it adds one blind, the same for all, so that only differences survive, and on request moves and
turns blocks of coordinates first. The key holder opens covered rows, compares them, and seals means of them, still covered,
under a second key; the relay uncovers these without reading them. `SCHEMES` names what does this; each module offers

    issue(bits, terms, fast) -> (opening, sealing)   a key pair as bytes: for its holder, for everybody else; `terms`
                                                     rows (or blocks of one row) may be added under it
    sealer(sealing), opener(opening)                 the two sides; both keys of a protocol share one format

All schemes compute on the same whole numbers, so that they give the same models bit for bit. `none` is the same protocol
in the clear: the relay could read what it relays, and covered rows are what the key holder would see (the blind is
uniform modulo 2^32 or 2^64, so it is as good as the encrypted one). `bfv` is ours, not the paper's: far faster than Paillier.

Beside rows, a relay can cover *sums* of rows, each under a blind of its own, from which the key holder learns nothing, and
*sketches*: the blocks of a row, turned or not at random, are added up, and of the sum a few numbers stay while the others
drown in random ones. Distances between sketches are those between rows up to chance (a random projection): the fewer
numbers, the more chance, which is what keeps the key holder from recognising a row by its distances in another round.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.blinded import SCHEMES
from covey.crypto.blinded.integers import PRECISION, Cover, Integers, Points, Sketch, gram, to_floats
from covey.crypto.key_kinds import NOTHING_ENCRYPTED, KeyKind


class CoveredRows(Protocol):
    """What the key holder learns from covered rows."""

    @property
    def length(self) -> int:
        """Coordinates of a covered row: more than of the model if blocks were moved."""
        ...

    @property
    def offsets(self) -> Any:
        """Each row minus row 0, [n, d], as whole numbers; a tensor where a GPU computes with them."""
        ...

    def means(self, weights: ArrayLike) -> list[Any]:
        """For each row of `weights` [k, n] the weighted mean of the rows, still under the cover."""
        ...


class RowSealer(Protocol):
    @property
    def block(self) -> int:
        """Coordinates that are moved and turned together."""
        ...

    def seal(self, vector: ArrayLike) -> bytes: ...
    def seal_whole(self, row: NDArray[np.signedinteger[Any]]) -> bytes:
        """The same of weights that are whole numbers already: see `integers.rounded`."""
        ...

    def check(self, sealed: bytes, length: int) -> None:
        """Refuses bytes that are no sealed row of this length."""
        ...

    def sums(self, members: ArrayLike, sealed: Sequence[bytes]) -> list[bytes]:
        """For each row of `members` [k, n] the sum of the sealed rows that it names."""
        ...

    def sketch(self, sealed: bytes, plan: Sketch, noise: NDArray[np.float64]) -> bytes:
        """[width]: the sum of a row's turned blocks, with noise [buckets] on what is kept and all else drowned."""
        ...

    def draw_blind(self, length: int) -> Any: ...
    def cover(self, sealed: Sequence[bytes], cover: Cover) -> list[bytes]: ...
    def seal_mean(self, mean: Any, length: int) -> bytes: ...
    def uncover(self, sealed: bytes, cover: Cover, length: int) -> bytes: ...


class RowOpener(Protocol):
    def open(self, sealed: bytes) -> NDArray[np.float64]: ...
    def open_covered(self, sealed: Sequence[bytes]) -> CoveredRows: ...
    def open_sketches(self, sealed: Sequence[bytes], kept: Integers) -> tuple[Integers, int]:
        """(each covered sketch minus the first, at the kept positions, [n, buckets]; numbers in a whole sketch)."""
        ...


def terms_for(scheme: str, rows: int, length: int) -> int:
    """Terms that sums of so many rows, and sketches of rows of that length, need."""
    return max(rows, -(-length // int(_module(scheme).LEAST_BLOCK)))


def secure_bits(scheme: str, bits: int) -> int:
    """The length of a key of 128-bit security, where the scheme leaves it open; else what was asked."""
    return max(bits, int(getattr(_module(scheme), "SECURE_BITS", 0)))


def issue(scheme: str, bits: int, terms: int = 1, fast: bool = False) -> tuple[bytes, bytes]:
    """A fresh key pair (opening, sealing) from the operating system; the clear scheme's are empty names. `fast`: see
    `fast_decryption` in `paillier.py`; other schemes are fast enough.
    """
    opening, sealing = _module(scheme).issue(bits, terms, fast)
    return _named(scheme, opening), _named(scheme, sealing)


@lru_cache(maxsize=8)
def sealer(sealing: bytes) -> RowSealer:
    """Keys are large objects with tables in them: built once per process."""
    party: RowSealer = _module(_name(sealing)).sealer(_rest(sealing))
    return party


@lru_cache(maxsize=8)
def opener(opening: bytes, workers: int = 1) -> RowOpener:
    party: RowOpener = _module(_name(opening)).opener(_rest(opening), workers)
    return party


def draw_cover(sealer: RowSealer, length: int, rearranged: bool, random: np.random.Generator | None) -> Cover:
    """A fresh cover: the blind always from the operating system, the moves from there unless `random` is given."""
    count = -(-length // sealer.block)
    if not rearranged:
        return Cover(sealer.draw_blind(length))
    order, signs = permutation(count, random), 1 - 2 * (_bits(count, random) & 1)
    return Cover(sealer.draw_blind(count * sealer.block), order, signs)


def draw_sketch(sealer: RowSealer, length: int, buckets: int, random: np.random.Generator | None) -> Sketch:
    """A fresh plan, from the operating system unless a generator is given."""
    count, width = -(-length // sealer.block), min(length, sealer.block)
    return Sketch(1 - 2 * (_bits(count, random) & 1), np.sort(permutation(width, random)[:buckets]), width)


def draw_noise(shape: tuple[int, int], deviation: float, random: np.random.Generator | None) -> NDArray[np.float64]:
    """Normal noise, from the operating system by an exact sampler unless a generator is given."""
    if random is not None or deviation == 0:
        return random.normal(0.0, deviation, shape) if random is not None else np.zeros(shape)
    from covey.crypto.noise import discrete
    from covey.crypto.noise.stream import Stream

    drawn = discrete.gaussians(shape[0] * shape[1], Stream()).reshape(shape)
    return np.asarray(drawn * (deviation * 2.0**-discrete.BITS))


def permutation(n: int, random: np.random.Generator | None) -> Integers:
    """A random order, from the operating system unless a generator is given."""
    if random is not None:
        return random.permutation(n).astype(np.int64)
    order = list(range(n))
    secrets.SystemRandom().shuffle(order)
    return np.array(order, np.int64)


def _bits(n: int, random: np.random.Generator | None) -> Integers:
    return np.array([secrets.randbits(1) for _ in range(n)]) if random is None else random.integers(2, size=n)


def differences(rows: CoveredRows) -> NDArray[np.float64]:
    """Each row minus row 0, [n, d]: same distances as the rows themselves."""
    return to_floats(rows.offsets)


def sketch_points(opener: RowOpener, sealed: Sequence[bytes], kept: Integers) -> Points:
    """[n, buckets]: points whose squared distances are in expectation those of the rows behind the sketches."""
    offsets, width = opener.open_sketches(sealed, kept)
    return np.asarray(to_floats(offsets) * (width / len(kept)) ** 0.5)


def points(rows: CoveredRows | Points) -> Points:
    """[n, n]: points with the same distances as the rows, which is all that clustering needs of them."""
    if isinstance(rows, np.ndarray):
        return np.asarray(rows, np.float64)
    values, vectors = np.linalg.eigh(gram(rows.offsets))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)) * 2.0**-PRECISION)


def opening_kind(opening: bytes, receiver: str) -> KeyKind:
    """What the key is with which `receiver` opens rows."""
    scheme = _name(opening)
    if scheme == "none":
        return KeyKind("no encryption (opening)", False, NOTHING_ENCRYPTED)
    return KeyKind(f"{scheme.upper()} decryption key", True, f"what is sealed for {receiver}")


def sealing_kind(sealing: bytes, receiver: str) -> KeyKind:
    """What the key is with which others seal rows for `receiver`."""
    scheme = _name(sealing)
    if scheme == "none":
        return KeyKind(f"no encryption (sealing for {receiver})", False, NOTHING_ENCRYPTED)
    return KeyKind(f"{scheme.upper()} key to seal for {receiver}", False)


def _named(scheme: str, key: bytes) -> bytes:
    return scheme.encode() + b"\n" + key


def _name(key: bytes) -> str:
    return bytes(key).split(b"\n", 1)[0].decode("ascii", "replace")


def _rest(key: bytes) -> bytes:
    return bytes(key).split(b"\n", 1)[1]


def _module(scheme: str) -> Any:
    module: Any = SCHEMES.installed(scheme)
    return module
