"""What CKKS and BFV share here: an add-only ring, its security, its keys, and ciphertexts as raw residues.

Parties and trust. All clients hold the *same* secret key; the server holds parameters only and adds residues
(`residues.py`). So a client that hands its key to the server opens everything. Where that matters take sums that
clients open together (`crypto/openings`): no key is shared there.

Secret-key or public-key encryption. Who holds the secret key seals with it: its noise is some 70 times smaller, and it
gives nothing away that the same party could not open anyway. It is a product and an addition, done here (`fresh.py`) in
a third of the library's time, on the library's keys and as the library's ciphertexts. A party that must seal but never
open gets `Keys.sealing_only()`, and the library seals for it. A secret-key ciphertext could be sent as `c0` and the seed
of `c1`, half the bytes; the server would have to expand every seed before it could add, so `c0 | c1` is sent in full.

Randomness of keys and ciphertexts: SEAL seeds a new generator from the operating system for every encryption and we do
for every few rows, hence forked processes never share it (tested).

Format. The library writes a ciphertext as a header, equal for all ciphertexts of one parameter set, and the
residues `c0 | c1` as 64-bit words. We send the residues alone, under one label (`sealing.py`), which keeps them
aligned; the header is checked when it is cut off and put back before the library loads and validates the result.
"""

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import seal
from numpy.typing import NDArray

from covey.crypto.sealing.mixing import read_words, write_words
from covey.crypto.sealing.ring import Ring
from covey.crypto.sealing.sealing import Label, describe, fingerprint, read_description
from covey.errors import CoveyError

if TYPE_CHECKING:
    from covey.crypto.sealing.fresh import (
        SecretKey,
    )  # brings numba, 55 MB that whoever only opens a key file does not need


BLOCK = 8  # rows that are encoded and sealed at a time


@dataclass(frozen=True)
class Keys:
    """What a client holds; without `secret` it can seal but not open."""

    ring: Ring
    name: bytes  # 8 random bytes that tell keys apart; says nothing about them
    secret: bytes | None = field(repr=False)
    encryption: bytes = field(repr=False)

    @classmethod
    def generate(cls, ring: Ring) -> "Keys":
        generator = seal.KeyGenerator(ring.context)
        return cls(
            ring,
            secrets.token_bytes(8),
            generator.secret_key().to_string(),
            generator.create_public_key().to_string(),
        )

    def sealing_only(self) -> "Keys":
        return replace(self, secret=None)

    def public(self) -> bytes:
        return describe(asdict(self.ring), self.name)

    def label(self) -> Label:
        return label_of(self.ring, self.name)

    def to_bytes(self) -> bytes:
        held = {"encryption": self.encryption, "secret": self.secret}
        encoded = {k: base64.b64encode(v).decode() for k, v in held.items() if v is not None}
        return json.dumps(json.loads(self.public()) | encoded).encode()

    @classmethod
    def from_bytes(cls, text: bytes, scheme: str) -> "Keys":
        description = read_description(text)
        ring, name = read_public(text, scheme)
        try:
            encryption = base64.b64decode(description["encryption"], validate=True)
            secret = base64.b64decode(description["secret"], validate=True) if "secret" in description else None
        except (KeyError, TypeError, binascii.Error) as error:
            raise CoveyError("These are not a client's keys: expected what generate_keys gave.") from error
        return cls(ring, name, secret, encryption)


def read_public(public: bytes, scheme: str) -> tuple[Ring, bytes]:
    """Ring and key name from public parameters (or from keys); checks them like freshly chosen ones."""
    description = read_description(public)
    if description["scheme"] != scheme:
        raise CoveyError(f"Found parameters of '{description['scheme']}', expected '{scheme}'.")
    try:
        ring = Ring(**{name: description[name] for name in Ring.__dataclass_fields__})
        return ring, bytes.fromhex(description["key"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CoveyError(f"Public parameters of {scheme} are incomplete: expected what public() gave.") from error


def label_of(ring: Ring, key: bytes) -> Label:
    return Label(ring.scheme, fingerprint(asdict(ring)), key)


class LatticeBox:
    """Seals rows of plaintexts and opens them again; CKKS and BFV add their encoders."""

    def __init__(self, keys: Keys) -> None:
        self.keys, self.ring, self._label = keys, keys.ring, keys.label()
        context = self.ring.context
        try:
            public_key = context.from_public_str(keys.encryption)
            secret = None if keys.secret is None else context.from_secret_str(keys.secret)
        except Exception as error:  # the library raises RuntimeError, ValueError or its own
            raise CoveyError("The library cannot load these keys: they are damaged or of other parameters.") from error
        self._encrypt: Callable[[Any], Any] = seal.Encryptor(context, public_key).encrypt
        self._decrypt = None if secret is None else seal.Decryptor(context, secret).decrypt
        self._header: bytes | None = None

    @cached_property
    def secret(self) -> "SecretKey":
        """To seal with, of a holder of the secret key. The library keeps it as the image of a polynomial, behind a header."""
        from covey.crypto.sealing.fresh import SecretKey
        from covey.crypto.transform import transform

        assert self.keys.secret is not None
        ring = transform(self.ring.degree, self.ring.modulus)
        image = np.frombuffer(self.keys.secret[-8 * self.ring.degree :], dtype="<u8")
        check_secret(ring.inverse(image)[0], self.ring)
        return SecretKey(ring, ring.factors(image))

    @property
    def opens(self) -> bool:
        return self._decrypt is not None

    def seal_rows(self, rows: NDArray[Any], fresh: Callable[[NDArray[Any]], NDArray[np.uint64]], length: int) -> bytes:
        """With the secret key: `fresh` makes ciphertexts `[r, 2, N]` of some rows, so many that they stay in the cache."""
        words = np.empty((len(rows), 2, self.ring.degree), dtype="<u8")
        for start in range(0, len(rows), BLOCK):
            words[start : start + BLOCK] = fresh(rows[start : start + BLOCK])
        return write_words(words.reshape(-1), self._label, length, terms=1)

    def seal_plaintexts(self, plaintexts: Sequence[Any], length: int) -> bytes:
        """By the library, with the public key."""
        size = self.ring.ciphertext_bytes
        words = np.empty(len(plaintexts) * size // 8, dtype="<u8")
        for row, plaintext in zip(words.reshape(len(plaintexts), -1), plaintexts, strict=True):
            saved = self._encrypt(plaintext).to_string()
            self._check_header(saved[:-size])
            row[:] = np.frombuffer(saved, dtype="<u8", offset=len(saved) - size)
        return write_words(words, self._label, length, terms=1)

    def open_plaintexts(self, sealed: bytes, blank: Any) -> tuple[Label, list[Any]]:
        """Label and decrypted plaintexts; `blank` is any encoded plaintext, for the library's header."""
        if self._decrypt is None:
            raise CoveyError("These keys seal but do not open: only holders of the secret key can open sums.")
        claimed, words = read_words(sealed, self._label, self.ring)
        if claimed.terms == 0:  # nobody joined: all residues are 0, and there is nothing to decrypt
            return claimed, []
        if self._header is None:
            self._check_header(self._encrypt(blank).to_string()[: -self.ring.ciphertext_bytes])
        assert self._header is not None
        data, size = words.data.cast("B"), self.ring.ciphertext_bytes
        plaintexts = []
        for start in range(0, len(data), size):
            try:
                ciphertext = self.ring.context.from_cipher_str(self._header + data[start : start + size])
                plaintexts.append(self._decrypt(ciphertext))
            except Exception as error:
                raise CoveyError(f"The library refuses a ciphertext of the sum: {error}.") from error
        return claimed, plaintexts

    def _check_header(self, header: bytes) -> None:
        """All ciphertexts of one ring carry the same header: else raw residues would not be the whole truth."""
        if self._header is None:
            self._header = header
        elif header != self._header:
            raise CoveyError("The library wrote another ciphertext layout: use seal-python 4.4.0.")


def check_secret(coefficients: NDArray[np.uint64], ring: Ring) -> None:
    """Refuses what SEAL never makes: it draws each coefficient from −1, 0, 1. Under a secret of zeros messages would be in the
    clear, and with one altered word what is sealed opens for nobody else.
    """
    shifted = (coefficients + np.uint64(1)) % np.uint64(ring.modulus)  # 0, 1, 2
    nonzero = np.count_nonzero(shifted != 1) / ring.degree  # two thirds, off by 0.01 at degree 4096
    if int(shifted.max()) > 2 or not 0.5 < nonzero < 0.85:
        raise CoveyError("The secret of these keys is damaged: it is none that the library makes; take the keys anew.")


def check_pair(opened: Callable[[], NDArray[np.float64]], sealed: NDArray[np.float64]) -> None:
    """Refuses a secret that does not open what its own public key seals: its holder would be the only one to open anything."""
    try:
        fits = np.allclose(opened(), sealed, rtol=0, atol=1e-2)
    except CoveyError:
        fits = False
    if not fits:
        raise CoveyError("The secret of these keys does not open what their public key seals: take both of one set.")


def check_library(opened: NDArray[np.float64], sealed: NDArray[np.float64]) -> None:
    """Refuses a library that reads our ciphertexts otherwise than we wrote them, before anything is sealed for others."""
    if not np.allclose(opened, sealed, rtol=0, atol=1e-3):
        raise CoveyError(
            "The library opens a fresh ciphertext to other numbers than were sealed: use seal-python 4.4.0."
        )


def checked_opening(values: NDArray[np.float64], label: Label, ring: Ring) -> NDArray[np.float64]:
    """A wrong key or an overflow gives values all over the ring: refuse what no honest sum can hold."""
    limit = 1.001 * ring.bound * label.terms
    if not float(np.abs(values).max(initial=0.0)) <= limit:
        raise CoveyError(
            f"An opened sum of {label.terms} vectors exceeds ±{limit:g}: it is damaged or was sealed under another key."
        )
    return values
