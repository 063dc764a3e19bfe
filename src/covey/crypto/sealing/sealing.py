"""One interface for every way to hide a vector while a server adds it: seal, mix without a key, open.

A client seals `[d + k]` floats (its model and its indicators as one vector) once per round; the server adds each
sealed blob into the accumulators of its identity set; clients open the `k` sums. An algorithm does not know which
scheme it uses. `SCHEMES` names them; each module there offers

    generate_keys(bound, terms) -> bytes        all that a client holds
    sealer(keys) -> Sealer                      the client's side
    mixer(public, clusters, length) -> Mixer    the server's side, from `Sealer.public()`: parameters, no key

Sealed bytes are a 64-byte label and a payload. The label names scheme, parameters, key (a random id, not derived
from the key), length and number of terms; its digest finds truncation and accidents on the way. It is *not* a
signature: additively homomorphic ciphertexts can be altered by whoever carries them, so authenticate the channel.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from covey.crypto import openings
from covey.crypto.key_kinds import NOTHING_ENCRYPTED, KeyKind
from covey.crypto.sealing import SCHEMES
from covey.errors import CoveyError
from covey.messages import Rows


class Sealer(Protocol):
    """Holds what a client holds. Safe to create before a fork and to use in the children."""

    @property
    def name(self) -> str: ...

    def seal(self, vector: ArrayLike) -> bytes: ...

    def open(self, sealed: bytes) -> NDArray[np.float64]: ...

    def public(self) -> bytes: ...


class Mixer(Protocol):
    """Holds `k` accumulators and no key. `add` streams: it may keep a constant number of blobs, never all."""

    def add(self, sealed: bytes, members: Sequence[int]) -> None: ...

    def sums(self) -> list[bytes]: ...


def generate_keys(scheme: str, bound: float = 16.0, terms: int = 1024) -> bytes:
    """Fresh keys for vectors within `±bound` of which at most `terms` are added; fewer and smaller: more precise."""
    keys = bytes(_module(scheme).generate_keys(bound, terms))
    if _module(read_description(keys)["scheme"]) is not _module(scheme):
        raise CoveyError(
            f"Encryption '{scheme}' gives keys of a scheme that is known already: give it a name of its own."
        )
    return keys


def sealer(keys: bytes) -> Sealer:
    """The client's side, from what `generate_keys` gave."""
    client: Sealer = _module(read_description(keys)["scheme"]).sealer(keys)
    return client


def seal_rows(keys: bytes, vectors: Tensor) -> Rows[bytes]:
    """What many clients seal that run as one, [n, d], where the scheme hides nothing: only such a one has rows."""
    rows: Rows[bytes] = _module(read_description(keys)["scheme"]).PlainRows(vectors)
    return rows


def add(mixer: Any, sealed: bytes | Rows[bytes], members: Sequence[Sequence[int]]) -> None:
    """Adds what a client has sealed, or many as one, to the sums of each of them."""
    if isinstance(sealed, Rows):
        mixer.add_rows(sealed, members)
    else:
        mixer.add(sealed, *members)


def sums_of(mixer: Any) -> Any:
    """A mixer's sums, a list of bytes; where the scheme hides nothing rows, which are that list when somebody asks for it."""
    return mixer.sums_in_rows() if hasattr(mixer, "sums_in_rows") else mixer.sums()


def open_rows(keys: bytes, sums: Any) -> Tensor | None:
    """What stands in sums that are rows, [., d] in float32 where they were added; None: these are bytes, to be opened."""
    client = sealer_of(keys)
    return client.open_rows(sums) if isinstance(sums, Rows) and hasattr(client, "open_rows") else None


@lru_cache(maxsize=4)
def sealer_of(keys: bytes) -> Sealer:
    """Building a sealer costs more than sealing with it: once per process."""
    return sealer(keys)


def check_sealed(public: bytes, sealed: bytes, length: int) -> None:
    """Refuses bytes that do not seal one vector of `length` floats: scheme, parameters, key, length, digest, residues."""
    if Label.read(sealed).terms != 1:
        raise CoveyError("claims to be a sum of several vectors")
    mixer(public, 1, length).add(sealed, [0])


def mixer(public: bytes, clusters: int, length: int) -> Mixer:
    """The server's side: `clusters` accumulators for vectors of `length` floats."""
    if clusters < 1 or length < 1:
        raise CoveyError(f"A mixer of {clusters} sums of {length} floats: expected at least 1 of each.")
    description = read_description(public)
    if "secret" in description:
        raise CoveyError("A server must not hold a client's keys: give it the bytes of public().")
    server: Mixer = _module(description["scheme"]).mixer(public, clusters, length)
    return server


def mix(public: bytes, membership: ArrayLike, sealed: Iterable[bytes]) -> list[bytes]:
    """Row `a` of `membership` `[k, n]` says which of the `n` sealed vectors sum `a` takes; gives the `k` sums."""
    member = np.asarray(membership, dtype=bool)
    if member.ndim != 2:
        raise CoveyError(f"A membership matrix has the shape [clusters, clients], found {list(member.shape)}.")
    blobs = iter(sealed)
    server: Mixer | None = None
    for i in range(member.shape[1]):
        blob = next(blobs, None)
        if blob is None:
            raise CoveyError(f"Found {i} sealed vectors, the membership matrix expects {member.shape[1]}.")
        server = server or mixer(public, member.shape[0], Label.read(blob).length)
        server.add(blob, np.flatnonzero(member[:, i]).tolist())
    if server is None or next(blobs, None) is not None:
        raise CoveyError(f"Expected {member.shape[1]} (at least one) sealed vectors, found another number.")
    return server.sums()


def key_kind(keys: bytes, role: str) -> KeyKind:
    """What a party of this role holds: all that a client holds, or public parameters."""
    description = read_description(keys)
    scheme = description["scheme"]
    if scheme == "none":
        return KeyKind("no encryption: sums in the clear", False, NOTHING_ENCRYPTED)
    if "secret" in description:
        return KeyKind(f"{scheme.upper()} key that all silos share", True, "what silos seal, and its sums")
    return KeyKind(f"{scheme.upper()} parameters", False)


def whole_counts(values: ArrayLike, tolerance: float = 0.1) -> NDArray[np.int64]:
    """Decrypted counts as integers; one that is not within `tolerance` of an integer is an error, not rounded."""
    counts = np.asarray(values, dtype=np.float64)
    rounded = np.rint(np.nan_to_num(counts))
    bad = ~(np.abs(counts - rounded) <= tolerance) | (rounded < 0)  # the first half is also true for NaN
    if bad.any():
        raise CoveyError(
            f"A decrypted count is {counts[bad].flat[0]:.6g}, expected a whole number within {tolerance}: the sum is damaged or "
            "was opened with the wrong key or parameters."
        )
    return rounded.astype(np.int64)


# ---------------------------------------------------------------- the label


@dataclass(frozen=True)
class Label:
    """The first 64 bytes of everything sealed."""

    scheme: str
    parameters: bytes  # 8 bytes of the parameters' hash
    key: bytes  # 8 random bytes that name the key
    length: int = 0  # floats in the vector
    terms: int = 1  # how many sealed vectors this is the sum of; 0: of none
    digest: bytes = bytes(16)  # of the payload and of the fields above

    _LAYOUT = struct.Struct("<8s8s8s8sQQ16s")
    _MAGIC = b"covey\0\0\1"

    def write(self) -> bytes:
        return self._LAYOUT.pack(
            self._MAGIC, self.scheme.encode(), self.parameters, self.key, self.length, self.terms, self.digest
        )

    @classmethod
    def read(cls, sealed: bytes) -> "Label":
        view = memoryview(sealed)
        if len(view) < LABEL_BYTES:
            raise CoveyError(f"Sealed bytes start with {LABEL_BYTES} bytes of label, found {len(view)} in all.")
        magic, scheme, *rest = cls._LAYOUT.unpack(view[:LABEL_BYTES])
        if magic != cls._MAGIC:
            raise CoveyError("These bytes are not a sealed vector: they do not start with covey's label.")
        return cls(scheme.rstrip(b"\0").decode("ascii", "replace"), *rest)

    def over(self, payload_digest: bytes) -> "Label":
        """This label with the digest that binds it to a payload of that (16-byte) digest."""
        fields = hashlib.sha256(replace(self, digest=payload_digest).write()).digest()[:16]
        return replace(self, digest=fields)

    def expect(self, own: "Label", length: int | None = None) -> None:
        """Refuses a label that differs from `own` in scheme, parameters, key or length."""
        if self.scheme != own.scheme:
            raise CoveyError(f"Found a vector sealed with '{self.scheme}', expected '{own.scheme}'.")
        if self.parameters != own.parameters:
            raise CoveyError(f"Found a vector sealed with other {own.scheme} parameters: use one parameter set.")
        if self.key != own.key:
            raise CoveyError("Found a vector sealed under another key: all parties must hold keys of one set.")
        if length is not None and self.length != length:
            raise CoveyError(f"Found a sealed vector of {self.length} floats, expected {length}.")


LABEL_BYTES = Label._LAYOUT.size


def describe(parameters: dict[str, Any], key: bytes) -> bytes:
    """Public parameters as JSON: what a server is given."""
    return json.dumps({**parameters, "key": key.hex()}, sort_keys=True).encode()


def read_description(text: bytes) -> dict[str, Any]:
    """The JSON object in public parameters or keys; refuses anything else."""
    try:
        description = json.loads(bytes(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise CoveyError("Keys or public parameters are not readable: expected covey's JSON.") from error
    if not isinstance(description, dict) or not isinstance(description.get("scheme"), str):
        raise CoveyError("Keys or public parameters name no scheme: expected what generate_keys or public() gave.")
    return description


def fingerprint(parameters: dict[str, Any]) -> bytes:
    """8 bytes that name a parameter set."""
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).digest()[:8]


def checked_vector(vector: ArrayLike, bound: float) -> NDArray[np.float64]:
    """The vector as `[d]` float64; refuses NaN, infinity and values that the scheme cannot carry."""
    values = np.asarray(vector, dtype=np.float64)
    check_vector(values, bound)
    return values


def check_vector(values: NDArray[Any], bound: float) -> None:
    """Refuses what is no flat vector of finite values within the bound."""
    if values.ndim != 1 or values.size == 0:
        raise CoveyError(f"Only a non-empty flat vector can be sealed, found the shape {list(values.shape)}.")
    largest = extreme(values)
    if not largest <= bound:
        raise CoveyError(
            f"The vector's largest magnitude is {largest:g}, expected finite values within ±{bound:g}: "
            "clip the vector or raise the scheme's bound."
        )


def extreme(values: NDArray[np.floating[Any]]) -> float:
    """The largest magnitude, NaN if any value is; without a copy of the values."""
    return float(np.maximum(values.max(), -values.min()))


def check_capacity(bound: float, terms: int) -> None:
    if not (0.0 < bound < float("inf") and terms >= 1):
        raise CoveyError(
            f"Sealing {terms} terms within ±{bound}: expected at least one term and a finite bound above 0 (algorithm.bound)."
        )


def checked_members(members: Sequence[int], clusters: int) -> list[int]:
    """The identity set as a list of distinct cluster numbers."""
    identities = [int(j) for j in members]
    if len(set(identities)) != len(identities) or any(not 0 <= j < clusters for j in identities):
        raise CoveyError(f"Identity set {identities}: expected distinct cluster numbers from 0 to {clusters - 1}.")
    return identities


def _module(scheme: str) -> Any:
    family = openings.SCHEMES if scheme in openings.SCHEMES else SCHEMES  # of those opened together: the server's side
    module: Any = family.installed(scheme)
    return module
