"""The Paillier cryptosystem on lists of integers: keys, encryption, decryption and what can be done without
the key.

Paillier, "Public-key cryptosystems based on composite degree residuosity classes", EUROCRYPT 1999, in the
variant of Damgård, Jurik and Nielsen (2010): `c = (1 + m·n)·h^a mod n²` with the public base `h = (-x²)^n mod
n²` and a fresh exponent `a`, so that one table of powers of `h` serves every encryption.

What it rests on:
- decisional composite residuosity: ciphertexts under one key look alike;
- *short exponents*: `a` has 256 bits, and `h^a` is assumed indistinguishable from a random power of `h` (a
  discrete logarithm with 256-bit exponents in a group of unknown order costs about 2^128 with Pollard's
  kangaroo). Whoever does not want that assumption takes `exponent_bits = bits // 2`: indistinguishable if
  factoring is hard (Goldreich, Rosen), at about four times the work for 2048 bits;
- *hidden subgroup*, for keys made with `fast_decryption=True` only: `h` has a secret order of two 320-bit primes, one
  for each factor of n, and decryption raises to these instead of to p - 1 and q - 1: about 3 times faster at 2048 bits,
  5 at 3072. It rests on the assumption that such an `h` cannot be told from another (Paillier 1999, section 6; finding
  the order by collisions costs 2^160);
- the maker of a key is trusted: it knows the factors.

What it is not: ciphertexts are malleable by design (sign them), and decryption does not run in constant time.
A modulus of 2048 bits gives about 112 bits of security, 3072 about 128.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from typing import Any

import gmpy2
from gmpy2 import mpz

from covey.errors import CoveyError

SECURE_BITS = 2048
DEPLOYMENT_BITS = 3072
EXPONENT_BITS = 256
_SUBGROUP_BITS = 320
_PUBLIC, _PRIVATE = b"covey paillier public 1\n", b"covey paillier private 1\n"

Integer = Any  # an int or a gmpy2.mpz: gmpy2 ships no types that a strict checker could use


@dataclass(frozen=True)
class PublicKey:
    """Encrypts and combines, never decrypts: what participants and servers hold."""

    n: Integer
    h: Integer
    exponent_bits: int = EXPONENT_BITS
    insecure_for_tests: bool = False

    def __post_init__(self) -> None:
        if self.bits < SECURE_BITS and not self.insecure_for_tests:
            raise CoveyError(
                f"a Paillier modulus of {self.bits} bits can be factored; take {SECURE_BITS} bits for "
                f"experiments and {DEPLOYMENT_BITS} for deployment (tests may pass insecure_for_tests=True)"
            )
        if self.exponent_bits < EXPONENT_BITS or self.exponent_bits % 8:
            raise CoveyError(f"exponent_bits is {self.exponent_bits}; take a multiple of 8, at least {EXPONENT_BITS}")
        if self.n % 2 == 0 or not 1 < self.h < self.n_squared or gmpy2.gcd(self.h, self.n) != 1:
            raise CoveyError("this is no Paillier public key: n must be odd and h a unit modulo n²; ask for it again")

    @property
    def bits(self) -> int:
        return int(self.n.bit_length())

    @cached_property
    def n_squared(self) -> Integer:
        return mpz(self.n) ** 2

    @property
    def ciphertext_bytes(self) -> int:
        return (2 * self.bits + 7) // 8

    @cached_property
    def key_id(self) -> bytes:
        """8 bytes that name the key in every message sealed under it."""
        return hashlib.sha256(self.to_bytes()).digest()[:8]

    def to_bytes(self) -> bytes:
        width = (self.bits + 7) // 8
        numbers = int(self.n).to_bytes(width, "big") + int(self.h).to_bytes(2 * width, "big")
        return _PUBLIC + self.exponent_bits.to_bytes(2, "big") + width.to_bytes(2, "big") + numbers

    @classmethod
    def from_bytes(cls, data: bytes, *, insecure_for_tests: bool = False) -> PublicKey:
        exponent_bits, n, h = _read_numbers(data, _PUBLIC, (1, 2))
        return cls(n, h, int(exponent_bits), insecure_for_tests)

    @cached_property
    def _powers(self) -> list[list[Integer]]:
        """Row i holds h^(b·256^i) for every byte b, so that h^a is one product over the bytes of a."""
        table, base = [], mpz(self.h)
        for _ in range(self.exponent_bits // 8):
            row = [mpz(1)]
            for _ in range(255):
                row.append(row[-1] * base % self.n_squared)
            table.append(row)
            base = row[-1] * base % self.n_squared
        return table

    def encrypt(self, plaintexts: Sequence[Integer], workers: int = 1) -> list[Integer]:
        """One ciphertext per integer, each reduced modulo n.

        With `workers > 1` in as many fresh processes, since a multiplication holds Python's lock: worth it from tens of
        thousands of integers on, and the calling script needs its `if __name__ == "__main__"` guard.
        """
        if workers <= 1 or len(plaintexts) < 2:
            return _encrypt(self, plaintexts)
        parts = _parts(plaintexts, workers)
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            return [c for part in pool.map(_encrypt, [self] * len(parts), parts) for c in part]

    def __getstate__(self) -> dict[str, Any]:
        # A worker process builds the table itself: that is quicker than sending megabytes of it.
        return {
            "n": self.n,
            "h": self.h,
            "exponent_bits": self.exponent_bits,
            "insecure_for_tests": self.insecure_for_tests,
        }

    def add(self, a: Sequence[Integer], b: Sequence[Integer]) -> list[Integer]:
        return [x * y % self.n_squared for x, y in zip(a, b, strict=True)]

    def add_known(self, a: Sequence[Integer], plaintexts: Sequence[Integer]) -> list[Integer]:
        """Adds integers that the caller knows; the sum keeps the randomness of `a`."""
        n, n_squared = self.n, self.n_squared
        return [x * (1 + m % n * n) % n_squared for x, m in zip(a, plaintexts, strict=True)]

    def negate(self, a: Sequence[Integer]) -> list[Integer]:
        return [gmpy2.invert(x, self.n_squared) for x in a]

    def multiply(self, a: Sequence[Integer], factor: int) -> list[Integer]:
        """Times a known integer. Factor 0 gives the ciphertext 1, which anybody can recognise."""
        powers: list[Integer] = gmpy2.powmod_base_list(list(a), mpz(abs(factor)), self.n_squared)
        return self.negate(powers) if factor < 0 else powers

    def check(self, ciphertexts: Sequence[Integer]) -> None:
        """Refuses what no encryption can give: out of 0 < c < n², or sharing a factor with n."""
        if not all(0 < c < self.n_squared for c in ciphertexts):
            raise CoveyError("a ciphertext is outside 0 < c < n²: the message was altered or is no Paillier ciphertext")
        product = mpz(1)  # one gcd for all: a factor shared by any of them is shared by their product
        for c in ciphertexts:
            product = product * c % self.n
        if gmpy2.gcd(product, self.n) != 1:
            raise CoveyError("a ciphertext is no unit modulo n²: the message was made to reveal or break the key")


@dataclass(frozen=True)
class PrivateKey:
    """The factors of n. Kept by the one party that may decrypt."""

    public: PublicKey
    p: Integer = field(repr=False)
    q: Integer = field(repr=False)
    order_p: Integer = field(repr=False)  # a multiple of the order of h modulo p: p - 1, or a prime factor of it
    order_q: Integer = field(repr=False)

    def __post_init__(self) -> None:
        if self.p * self.q != self.public.n:
            raise CoveyError("the factors do not belong to this Paillier public key; load both halves of one key")
        if any(gmpy2.powmod(self.public.h, o, f) != 1 for f, o in ((self.p, self.order_p), (self.q, self.order_q))):
            raise CoveyError("the orders do not belong to this Paillier public key; restore the key from a copy")

    def decrypt(self, ciphertexts: Sequence[Integer], workers: int = 1) -> list[Integer]:
        """Integers between -n/2 and n/2, by Chinese remaindering; `workers` threads share the powers, which
        release Python's lock.
        """
        parts = _parts(ciphertexts, max(workers, 1))
        factors = ((self.p, self.q, self.order_p), (self.q, self.p, self.order_q))
        jobs = [(part, *factor) for part in parts for factor in factors]
        if workers <= 1:
            residues = [_residues(*job) for job in jobs]
        else:
            with ThreadPoolExecutor(workers) as pool:
                residues = list(pool.map(lambda job: _residues(*job), jobs))
        inverse, n = gmpy2.invert(self.q, self.p), self.public.n
        plaintexts = (
            mq + (mp - mq) * inverse % self.p * self.q
            for by_p, by_q in zip(residues[::2], residues[1::2], strict=True)
            for mp, mq in zip(by_p, by_q, strict=True)
        )
        return [m - n if 2 * m > n else m for m in plaintexts]

    def to_bytes(self) -> bytes:
        """The factors in the clear: write it only where nobody else reads."""
        public, width = self.public, (self.public.bits + 7) // 8
        numbers = b"".join(int(x).to_bytes(width, "big") for x in (self.p, self.q, self.order_p, self.order_q))
        numbers += int(public.h).to_bytes(2 * width, "big")
        return _PRIVATE + public.exponent_bits.to_bytes(2, "big") + width.to_bytes(2, "big") + numbers

    @classmethod
    def from_bytes(cls, data: bytes, *, insecure_for_tests: bool = False) -> PrivateKey:
        exponent_bits, p, q, order_p, order_q, h = _read_numbers(data, _PRIVATE, (1, 1, 1, 1, 2))
        if not (gmpy2.is_prime(p) and gmpy2.is_prime(q)):
            raise CoveyError("this Paillier private key is damaged: its factors are not prime; restore it from a copy")
        return cls(PublicKey(p * q, h, int(exponent_bits), insecure_for_tests), p, q, order_p, order_q)


def generate(
    bits: int = DEPLOYMENT_BITS,
    *,
    exponent_bits: int = EXPONENT_BITS,
    fast_decryption: bool = False,
    insecure_for_tests: bool = False,
) -> PrivateKey:
    """A fresh key from the operating system's randomness. `fast_decryption` takes one more assumption: see above."""
    if bits < SECURE_BITS and not insecure_for_tests:
        raise CoveyError(f"a Paillier modulus of {bits} bits can be factored; take at least {SECURE_BITS}")
    least = 2 * _SUBGROUP_BITS + 128 if fast_decryption else 256
    if bits % 16 or bits < least:
        raise CoveyError(f"the size of a Paillier modulus is {bits}; take a multiple of 16, at least {least}")
    while True:
        (p, order_p), (q, order_q) = (_prime(bits // 2, fast_decryption) for _ in range(2))
        # Close factors fall to Fermat's method; gcd 2 is what makes -x² generate almost all squares (DJN, section 4).
        if abs(p - q) >> (bits // 2 - 100) and gmpy2.gcd(p - 1, q - 1) == 2:
            break
    n = p * q
    base = mpz(1)
    while base == 1 or gmpy2.gcd(base, n) != 1:
        x = mpz(secrets.randbelow(int(n)))
        base = -x * x % n
        if fast_decryption:
            base = gmpy2.powmod(x, (p - 1) // order_p * ((q - 1) // order_q), n)
    h = gmpy2.powmod(base, n, n * n)
    return PrivateKey(PublicKey(n, h, exponent_bits, insecure_for_tests), p, q, order_p, order_q)


def _prime(bits: int, subgroup: bool) -> tuple[Integer, Integer]:
    """A prime p = 3 mod 4 with its two top bits set (the product of two such has exactly 2·bits bits), and p - 1 or, for
    a subgroup, a prime factor of it.
    """
    factor = mpz(1)
    while subgroup and not gmpy2.is_prime(factor, 40):
        factor = mpz(secrets.randbits(_SUBGROUP_BITS) | 1 << (_SUBGROUP_BITS - 1) | 1)
    while True:
        candidate = mpz(secrets.randbits(bits) | 3 << (bits - 2))
        candidate -= (candidate - 1 - 2 * factor) % (4 * factor)  # now 1 + 2·factor·(an odd number)
        if candidate.bit_length() == bits and candidate.bit_test(bits - 2) and gmpy2.is_prime(candidate, 40):
            return candidate, factor if subgroup else candidate - 1


def _encrypt(key: PublicKey, plaintexts: Sequence[Integer]) -> list[Integer]:
    n, n_squared, powers = key.n, key.n_squared, key._powers
    ciphertexts = []
    for m in plaintexts:
        c = 1 + m % n * n
        for row, byte in zip(powers, secrets.token_bytes(len(powers)), strict=True):
            c = c * row[byte] % n_squared
        ciphertexts.append(c)
    return ciphertexts


def _residues(ciphertexts: Sequence[Integer], prime: Integer, other: Integer, order: Integer) -> list[Integer]:
    """The plaintexts modulo one factor: h vanishes, and c^order = (1 + n)^(m·order) = 1 + m·order·n mod p², n = p·q."""
    square = prime * prime
    scale = gmpy2.invert(other * order, prime)
    powers = gmpy2.powmod_base_list([c % square for c in ciphertexts], order, square)
    if any(power % prime != 1 for power in powers):
        raise CoveyError("a ciphertext was not made with this key's public base; only covey's own can be opened here")
    return [(power - 1) // prime * scale % prime for power in powers]


def _parts(items: Sequence[Integer], count: int) -> list[Sequence[Integer]]:
    size = max(math.ceil(len(items) / count), 1)
    return [items[i : i + size] for i in range(0, len(items), size)]


def _read_numbers(data: bytes, magic: bytes, widths: tuple[int, ...]) -> list[Integer]:
    """[exponent bits, number, ...]: each number is so many times the width that the header gives."""
    start = len(magic) + 4
    width = int.from_bytes(data[start - 2 : start], "big")
    if not data.startswith(magic) or len(data) != start + width * sum(widths) or width == 0:
        raise CoveyError(
            f"expected a file that begins with {magic.decode().strip()!r}, complete; check which key this is"
        )
    numbers: list[Integer] = [int.from_bytes(data[start - 4 : start - 2], "big")]
    for count in widths:
        numbers.append(mpz(int.from_bytes(data[start : start + count * width], "big")))
        start += count * width
    return numbers
