"""Cluster identity sets by fuzzy message detection (MingledPie, Algorithm 1), on ristretto255.

Keys: for each cluster `j` an address `x_j^l` and a public key `h_j^l = g^(x_j^l)`, `l = 1..n`. The server makes
them and publishes *both*; nothing here is secret but the client's `r`. A client of true cluster `ĵ` draws `r`,
`u = g^r`, and shows cluster `j` iff `H((h_ĵ^l)^r) == H(u^(x_j^l))` for all `l`. (The paper prints `h_j` on the
left, which always matches.) So `ĵ` always matches and any other cluster with the false positive rate `p`.

Arbitrary rates. `p = 2^-n` uses the paper's `n` one-bit tests. Any other `p` uses one key and 64-bit hashes
`W: G -> Z_2^64`: `j` matches iff `W(u^(x_j)) - W((h_ĵ)^r) mod 2^64 < p 2^64`. The difference is 0 for `ĵ` and
uniform for the others, so the rate is `p` to within 2^-65, at the price of one exponentiation per cluster.

Memory. The paper draws a new set at *every* change of identity, so that a client flipping A, B, A shows two sets
for A, and their intersection narrows A down. We remember one set per identity: stronger, and our choice.
The memory is a list of `k` lists of cluster numbers (empty: not drawn yet), so that any codec can store it.

Trust. The server sees the set, never `r` or `u`: what protects a client is that the false members are independent
coin tosses. That is the whole guarantee: cluster sizes (priors) and several sets of one client say more than
`1/|CI|` does, see `attacks/`. A server that publishes inconsistent keys is caught by `check_keys`.
"""

import hashlib
import math
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from covey.crypto.identity_math import Reading, acceptance, least_false
from covey.errors import CoveyError

Memory = list[list[int]]  # memory[ĵ]: the set shown for ĵ, [] while none was drawn
Draw = Callable[[int], bytes]  # n -> n random bytes

MOST_DRAWS = 10_000  # expected redraws above which a threshold is refused: some 6 s at k = 10
_WORD = 1 << 64


@dataclass(frozen=True)
class ClusterKeys:
    """What the server publishes: `addresses[j][l]` and `publics[j][l]`, 32 bytes each, and the rate `p`."""

    rate: float
    addresses: tuple[tuple[bytes, ...], ...]
    publics: tuple[tuple[bytes, ...], ...]

    @property
    def clusters(self) -> int:
        return len(self.addresses)


def generate_keys(clusters: int, rate: float, draw: Draw = secrets.token_bytes) -> ClusterKeys:
    """Fresh addresses and keys. `draw` may be a keyed generator in a simulation: these values are published."""
    if clusters < 1:
        raise CoveyError(f"Found {clusters} clusters, expected at least 1.")
    bits = key_length(rate)
    addresses = tuple(tuple(_scalar(draw) for _ in range(bits)) for _ in range(clusters))
    publics = tuple(tuple(_group().crypto_scalarmult_ristretto255_base(x) for x in row) for row in addresses)
    return ClusterKeys(rate, addresses, publics)


def key_length(rate: float) -> int:
    """`n` keys for `p = 2^-n` (the paper's test), one key for any other rate (the interval test)."""
    if not 0.0 < rate < 1.0:
        raise CoveyError(f"False positive rate p = {rate}: expected a number between 0 and 1, such as 0.5.")
    mantissa, exponent = math.frexp(rate)
    return 1 - exponent if mantissa == 0.5 else 1


def check_keys(keys: ClusterKeys) -> None:
    """Refuses published keys that are malformed or do not satisfy `h = g^x`."""
    bits = key_length(keys.rate)
    rows = list(zip(keys.addresses, keys.publics, strict=False))
    if not rows or len(keys.publics) != keys.clusters or any(len(a) != bits or len(h) != bits for a, h in rows):
        raise CoveyError(f"Cluster keys for p = {keys.rate} need {bits} address(es) and key(s) per cluster.")
    for j, (row, publics) in enumerate(rows):
        for x, h in zip(row, publics, strict=True):
            if not _is_scalar(x) or _group().crypto_scalarmult_ristretto255_base(x) != h:
                raise CoveyError(
                    f"The public key of cluster {j} does not belong to its address: ask the server for new keys."
                )


def matches(keys: ClusterKeys, true: int, r: bytes) -> list[int]:
    """The clusters that one draw `r` of a client of cluster `true` matches; `true` is always among them.

    `u^x` is computed as `g^(r x)`: powers of the base take half the time of others.
    """
    power, times = _group().crypto_scalarmult_ristretto255_base, _group().crypto_core_ristretto255_scalar_mul
    seen = [_digest(_group().crypto_scalarmult_ristretto255(r, h)) for h in keys.publics[true]]
    exact = math.frexp(keys.rate)[0] == 0.5
    window = max(1, round(keys.rate * _WORD))

    def agree(own: int, other: int) -> bool:
        return (own ^ other) & 1 == 0 if exact else (other - own) % _WORD < window

    return [
        j
        for j, row in enumerate(keys.addresses)
        if all(agree(own, _digest(power(times(r, x)))) for own, x in zip(seen, row, strict=True))
    ]


def draw_set(
    keys: ClusterKeys,
    true: int,
    threshold: int,
    reading: Reading = "members",
    draw: Draw = secrets.token_bytes,
) -> list[int]:
    """A fresh identity set for true cluster `true` (Algorithm 1, lines 4-13), in ascending order."""
    check_threshold(keys, threshold, reading)
    _check_cluster(keys, true)
    least = 1 + least_false(keys.clusters, threshold, reading)
    while len(found := matches(keys, true, _scalar(draw))) < least:
        pass
    return found


def no_memory(clusters: int) -> Memory:
    """The memory of a client that has shown nothing yet."""
    return [[] for _ in range(clusters)]


def shown_set(
    keys: ClusterKeys,
    true: int,
    threshold: int,
    memory: Sequence[Sequence[int]],
    reading: Reading = "members",
    draw: Draw = secrets.token_bytes,
) -> tuple[list[int], Memory]:
    """The set to show for `true`, and the memory to keep: the remembered set if there is one, else a fresh one.

    The caller stores the memory, also across restarts. To see why: pass `no_memory(k)` every round (sets redrawn
    each time) or at each change of identity (the paper's rule) and run the intersection attack.
    """
    if len(memory) != keys.clusters:
        raise CoveyError(
            f"Identity memory for {len(memory)} clusters, expected {keys.clusters}: "
            f"start from no_memory({keys.clusters})."
        )
    _check_cluster(keys, true)
    kept = [list(row) for row in memory]
    if not kept[true]:
        kept[true] = draw_set(keys, true, threshold, reading, draw)
    elif true not in kept[true] or len(kept[true]) <= least_false(keys.clusters, threshold, reading):
        raise CoveyError(
            f"The remembered set {kept[true]} of cluster {true} is too small for T = {threshold} ('{reading}') "
            "or lacks the cluster itself: it belongs to other settings; start with an empty memory."
        )
    return list(kept[true]), kept


def check_threshold(keys: ClusterKeys, threshold: int, reading: Reading = "members") -> None:
    """Refuses a threshold that cannot be met, or only after an unreasonable number of draws."""
    chance = acceptance(keys.clusters, keys.rate, threshold, reading)
    if chance * MOST_DRAWS < 1.0:
        raise CoveyError(
            f"T = {threshold} ('{reading}') with {keys.clusters} clusters at p = {keys.rate} is met by one draw in "
            f"{1 / chance if chance else math.inf:.3g}: raise p or lower T."
        )


def _check_cluster(keys: ClusterKeys, true: int) -> None:
    if not 0 <= true < keys.clusters:
        raise CoveyError(f"True cluster {true}: expected 0 to {keys.clusters - 1}.")


def _scalar(draw: Draw) -> bytes:
    # 64 bytes reduced mod q: the bias is below 2^-250
    return bytes(_group().crypto_core_ristretto255_scalar_reduce(draw(64)))


def _is_scalar(x: bytes) -> bool:
    """Whether these bytes are a number below q, of which powers and products mean the same."""
    return len(x) == 32 and bytes(_group().crypto_core_ristretto255_scalar_reduce(x + bytes(32))) == x


def _digest(element: bytes) -> int:
    """64 bits of SHA-256 of the encoded element; the one-bit `H` of the paper is the lowest of them."""
    return int.from_bytes(hashlib.sha256(element).digest()[:8], "little")


@cache
def _group() -> Any:
    """libsodium's ristretto255; imported when first needed, so that other algorithms run where it is not installed."""
    try:
        import rbcl
    except (
        ImportError,
        OSError,
    ) as e:  # it also needs barriers, and to write its library to the folder for temporary files
        raise CoveyError(
            f"fuzzy message detection needs the package rbcl (ristretto255): pip install rbcl ({e})"
        ) from e
    _remove_copy()
    return rbcl


def _remove_copy() -> None:
    """Every process that imports rbcl writes libsodium to a new temporary file, 2.8 MB, and leaves it there. Once it is loaded
    nobody needs its name, except on Windows, where it cannot be removed before the process ends. A library that lies elsewhere is
    no copy.
    """
    path = Path(getattr(sys.modules.get("rbcl._sodium"), "lib_path", ""))
    if os.name == "posix" and path.parent == Path(tempfile.gettempdir()):
        path.unlink(missing_ok=True)
