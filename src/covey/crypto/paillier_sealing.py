"""Paillier in the sealing interface: exact fixed-point sums, about 10 bytes a value, much slower than the lattices.

As with CKKS and BFV there, all clients hold the private key and the server none: it must not collude with a client.
Where the private key belongs to one party and rows are blinded (FedCAPrivacy), use `covey.crypto.paillier_vectors`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.crypto.packing import Packing
from covey.crypto.paillier import DEPLOYMENT_BITS, PrivateKey, PublicKey, generate
from covey.crypto.paillier_vectors import SealedVector, VectorOpener, VectorSealer
from covey.crypto.sealing import checked_members, checked_vector, read_description
from covey.errors import CoveyError


def generate_keys(bound: float, terms: int, bits: int = DEPLOYMENT_BITS) -> bytes:
    packing, key = Packing(bits, bound=bound, additions=terms), generate(bits)
    return _describe(packing, public=key.public.to_bytes().hex(), secret=key.to_bytes().hex())


def sealer(keys: bytes) -> PaillierSealer:
    found = read_description(keys)
    return PaillierSealer(VectorOpener(PrivateKey.from_bytes(_field(found, "secret")), _packing(found)))


def mixer(public: bytes, clusters: int, length: int) -> PaillierMixer:
    found = read_description(public)
    return PaillierMixer(VectorSealer(PublicKey.from_bytes(_field(found, "public")), _packing(found)), clusters, length)


@dataclass(frozen=True)
class PaillierSealer:
    opener: VectorOpener
    name: str = "paillier"

    def seal(self, vector: ArrayLike) -> bytes:
        return self.opener.sealer.seal(checked_vector(vector, self.opener.packing.bound))

    def open(self, sealed: bytes) -> NDArray[np.float64]:
        return self.opener.open(sealed)

    def public(self) -> bytes:
        return _describe(self.opener.packing, public=self.opener.key.public.to_bytes().hex())


class PaillierMixer:
    """Sums as ciphertexts; a cluster that nobody chose is an encryption of zeros."""

    def __init__(self, sealer: VectorSealer, clusters: int, length: int) -> None:
        self._sealer, self._length = sealer, length
        self._sums: list[SealedVector | None] = [None] * clusters

    def add(self, sealed: bytes, members: Sequence[int]) -> None:
        chosen = checked_members(members, len(self._sums))
        vector = self._sealer.read(sealed)
        if vector.dimension != self._length or vector.blinds:
            raise CoveyError(
                f"Found a sealed vector of {vector.dimension} floats, expected {self._length} without a blind."
            )
        new = {j: vector if (old := self._sums[j]) is None else self._sealer.combine(old, vector) for j in chosen}
        for j, total in new.items():  # only now: a refused sum leaves nothing half done
            self._sums[j] = total

    def sums(self) -> list[bytes]:
        return [self._sealer.write(total or self._sealer.zeros(self._length)) for total in self._sums]


def _describe(packing: Packing, **keys: str) -> bytes:
    fields = {"scheme": "paillier", "bits": packing.modulus_bits, "bound": packing.bound, "terms": packing.additions}
    return json.dumps({**fields, **keys}, sort_keys=True).encode()


def _packing(found: dict[str, Any]) -> Packing:
    try:
        return Packing(int(found["bits"]), bound=float(found["bound"]), additions=int(found["terms"]))
    except (KeyError, TypeError, ValueError):
        raise CoveyError(
            "Paillier keys or parameters lack bits, bound or terms: use what generate_keys gave."
        ) from None


def _field(found: dict[str, Any], name: str) -> bytes:
    try:
        return bytes.fromhex(found[name])
    except (KeyError, TypeError, ValueError):
        raise CoveyError(
            f"Paillier keys or parameters hold no readable '{name}': use what generate_keys gave."
        ) from None
