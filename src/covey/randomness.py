"""Keyed randomness for experiments: a stream per (seed, round, client, purpose), the same on every device and engine.

The streams are counter-based (SplitMix64 over torch integers), so a thousand clients draw theirs in one vectorised call,
a GPU draws the same numbers as a CPU, and no generator has a state that could depend on the order of the work. This is
for experiments only: two numbers of a stream give its key away, and normals end at 5.89 (a 24-bit radius), which alone breaks
δ = 1e-5 from ε = 8 or so on. Both stay as they are so that runs can be repeated: keys, nonces and the noise of a real
deployment come from the operating system (`crypto/noise`), and the ledger says of a run's noise which it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_GRAIN = 1 << 15  # words that torch never spreads over threads


def key(*parts: int | str) -> int:
    """The 63-bit key of a stream, e.g. `key(seed, round, client, "train")`."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


Part = int | str
Numbers = Sequence[int] | NDArray[np.int64] | Tensor


def keys(before: tuple[Part, ...], numbers: Numbers, after: tuple[Part, ...]) -> Tensor:
    """`key(*before, n, *after)` of each number, [n]: a round has thousands of clients. At least one part beside the number."""
    head, tail = around(before, after)
    begun = blake2b(head.encode(), digest_size=8)

    def word(n: int) -> bytes:
        hashed = begun.copy()  # in two thirds of the time of a new one
        hashed.update(f"{n}{tail}".encode())
        return hashed.digest()

    words = b"".join([word(n) for n in (numbers if isinstance(numbers, Sequence) else numbers.tolist())])
    return torch.from_numpy((np.frombuffer(words, ">u8") >> 1).astype(np.int64))


def around(before: tuple[Part, ...], after: tuple[Part, ...]) -> tuple[str, str]:
    """What stands before a number among the parts of a key, and what stands behind it."""
    return "(" + "".join(f"{part!r}, " for part in before), "".join(f", {part!r}" for part in after) + ")"


class Draw(Protocol):
    """`keys`, wherever they are drawn."""

    def __call__(self, before: tuple[Part, ...], numbers: Numbers, after: tuple[Part, ...]) -> Tensor: ...


class Streams:
    """The streams of many clients in one round, `key(seed, round, client, 0)`, and the keys that follow from them."""

    def __init__(self, seed: int, round: int, clients: Numbers, draw: Draw = keys) -> None:
        self._own, self._draw = draw((seed, round), clients, (0,)), draw
        self._known: dict[tuple[str, str], Tensor] = {}

    def of(self, purpose: str, use: str) -> Tensor:
        """`key(stream, purpose, use)` of each client, [n], where they are drawn."""
        if (purpose, use) not in self._known:
            self._known[purpose, use] = self._draw((), self._own, (purpose, use))
        return self._known[purpose, use]


def generator(*parts: int | str) -> np.random.Generator:
    """A numpy generator on the stream of these parts, for work that is not vectorised over clients."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))


def bits(
    keys: Sequence[int] | Tensor, count: int, device: torch.device | str = "cpu", under_vmap: bool = False
) -> Tensor:
    """63 random bits for every key and position, int64 [len(keys), count]; keys may be bits drawn before.

    `under_vmap`: without writing to buffers of its own, which keys that vmap has wrapped need.
    """
    start = (keys if isinstance(keys, Tensor) else torch.from_numpy(np.array(keys, np.int64))).to(device)
    alone = start.numel() * count < _GRAIN or torch.get_num_threads() == 1
    if alone and start.device.type == "cpu" and not under_vmap:
        return torch.from_numpy(_bits(start.numpy(), count))
    z = start[:, None] + torch.arange(1, count + 1, dtype=torch.int64, device=device) * _GOLDEN
    if under_vmap:
        z = (z ^ (z >> 30 & (1 << 34) - 1)) * _MIX_1
        z = (z ^ (z >> 27 & (1 << 37) - 1)) * _MIX_2
        return (z ^ (z >> 31 & (1 << 33) - 1)) >> 1 & (1 << 63) - 1
    shifted = torch.empty_like(z)  # one buffer for all shifts: the passes over memory are what this costs
    z.bitwise_xor_(_shift(z, 30, shifted)).mul_(_MIX_1)
    z.bitwise_xor_(_shift(z, 27, shifted)).mul_(_MIX_2)
    z.bitwise_xor_(_shift(z, 31, shifted))
    return _shift(z, 1, z)


def _bits(keys: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The same words by numpy, which has unsigned integers: in half the time of torch's where one thread computes them."""
    z = keys.view(np.uint64)[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN % 2**64)
    shifted = np.empty_like(z)
    for by, factor in ((30, _MIX_1), (27, _MIX_2)):
        z ^= np.right_shift(z, np.uint64(by), out=shifted)
        z *= np.uint64(factor % 2**64)
    z ^= np.right_shift(z, np.uint64(31), out=shifted)
    z >>= np.uint64(1)
    return z.view(np.int64)


def permutations(keys: Sequence[int] | Tensor, sizes: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """For row i a random order of 0 … sizes[i]-1, then the rest of the columns in order; int64 [n, max(sizes)]."""
    uneven = min(sizes) < max(sizes)
    return orders(bits(keys, max(sizes), device), torch.tensor(list(sizes), device=device) if uneven else None)


def orders(words: Tensor, sizes: Tensor | None) -> Tensor:
    """The same from random words [n, widest] and sizes [n] that lie where the words do; None: all are as long as the words."""
    if sizes is not None:
        padding = torch.arange(words.shape[1], device=words.device) >= sizes[:, None]
        words = words.masked_fill(padding, torch.iinfo(torch.int64).max)
    return words.argsort(dim=1, stable=True)


def uniforms(keys: Sequence[int] | Tensor, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Uniform in (0, 1), float32 [len(keys), count]: never 0, so that its logarithm is finite."""
    return ((bits(keys, count, device) >> 39).to(torch.float32) + 0.5) * 2.0**-24


def normals(keys: Sequence[int] | Tensor, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Standard normals by Box and Muller, float32 [len(keys), count]. A word gives both numbers of a pair; none exceeds 5.9."""
    half = (count + 1) // 2
    word = bits(keys, half, device)
    angle = ((word >> 15) & 0xFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-24 * 2.0 * math.pi)
    radius = (word >> 39).to(torch.float32).add_(0.5).mul_(2.0**-24).log_().mul_(-2.0).sqrt_()
    out = torch.empty(len(word), 2 * half, device=device)
    torch.mul(radius, torch.cos(angle), out=out[:, :half])
    torch.mul(radius, angle.sin_(), out=out[:, half:])
    return out[:, :count]


def laplace_noised_by(
    values: NDArray[np.float32], scale: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Values [n, c] with Laplace noise of scale [c] from a generator."""
    return (values + rng.laplace(size=values.shape) * scale).astype(np.float32)


def _shift(z: Tensor, by: int, out: Tensor) -> Tensor:
    """Logical right shift into `out`: torch's >> carries the sign."""
    return torch.bitwise_right_shift(z, by, out=out).bitwise_and_((1 << (64 - by)) - 1)
