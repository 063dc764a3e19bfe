"""Secret random words: ChaCha20 under a fresh 256-bit key from the operating system.

A key lives as long as one draw and is never stored, so nothing that is restored, forked or restarted can repeat its words.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
KEY_BYTES = 32
_BLOCK = 64  # bytes of ChaCha20's: what the cipher may want beyond its input


class Stream:
    """Words one after the other. A key is given only to test that known words give known numbers."""

    def __init__(self, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        # The nonce may be 0: no key encrypts twice. Its counter would begin anew after 2^32 blocks, 256 GB of one draw.
        cipher = Cipher(algorithms.ChaCha20(key or os.urandom(KEY_BYTES), bytes(16)), mode=None)
        self._encryptor = cipher.encryptor()

    def words(self, count: int) -> Words:
        """The next `count` words of 64 bits."""
        room = np.empty(8 * count + _BLOCK, np.uint8)
        size = self._encryptor.update_into(_zeros(8 * count), room.data)
        return room[:size].view("<u8")


@lru_cache(maxsize=2)
def _zeros(size: int) -> bytes:
    """What is encrypted. Most calls are of one size."""
    return bytes(size)
