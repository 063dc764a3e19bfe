"""Letters on the wire: signature first, then a bounded reader."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.crypto.signatures import Signer
from covey.deploy import letters
from covey.deploy.letters import PURPOSE, Hello, Mailbox, pack, unpack
from covey.errors import CoveyError
from covey.messages import HEADER_BYTES, MAGIC, decode, encode

NORTH, SERVER = Signer.generate("client:0"), Signer.generate("server")


def mailbox() -> Mailbox:
    return Mailbox("server", SERVER.secret, {"client:0": NORTH.public}, 300.0, 1 << 22)


def raw(tree: Any) -> bytes:
    header = json.dumps(tree, separators=(",", ":")).encode()
    return MAGIC + struct.pack("<I", len(header)) + header


def letter(body: Any) -> bytes:
    return Mailbox("client:0", NORTH.secret, {}, 300.0, 1 << 22).write("run", "hello", "server", 0, body)[0]


def test_nothing_is_decoded_before_the_signature_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the envelope and whatever else stood in its place were decoded for anybody."""
    decoded: list[bytes] = []
    monkeypatch.setattr(letters, "decode", lambda data, **how: decoded.append(data))
    data = letter(Hello("", "", "", 0))
    signed = unpack(data)
    stranger = Signer.generate("client:0").sign(signed.payload, PURPOSE, 0)
    for forged in (
        data[:-1] + bytes([data[-1] ^ 1]),
        pack(stranger),
        pack(replace(signed, sender="client:1")),
        pack(replace(signed, round=1)),
        encode(signed),
        raw({"d": [[n * (2**61 - 1), 0] for n in range(9)]}),
        data[:50],
        b"",
    ):
        with pytest.raises(CoveyError):
            mailbox().read(forged)
    assert not decoded
    with pytest.raises(CoveyError, match="not a letter"):  # what was decoded is none: the stand-in gives nothing
        mailbox().read(data)
    assert decoded == [signed.payload]


@pytest.mark.parametrize("key", [2**61 - 1, -(2**61 - 1), 0.5, None, {"u": [1, 2]}])
def test_keys_that_could_collide_are_refused(key: Any) -> None:
    with pytest.raises(CoveyError, match="neither text nor an integer"):
        decode(raw({"d": [[key, 0]]}), foreign=True)


def test_a_signed_letter_costs_no_more_than_its_length() -> None:
    """20,000 keys of one hash took 7 s, and empty lists 35 times their bytes."""
    for tree in ({"d": [[n * (2**61 - 1), 0] for n in range(20_000)]}, {"l": [{"l": []}] * 100_000}):
        data = pack(NORTH.sign(raw(tree), PURPOSE, 0))
        box = mailbox()
        tracemalloc.start()
        begin = time.process_time()
        with pytest.raises(CoveyError, match=r"has a header of|neither text nor"):
            box.read(data)
        assert time.process_time() - begin < 0.5 and tracemalloc.get_traced_memory()[1] < 8 * len(data)
        tracemalloc.stop()


def test_headers_are_a_share_of_what_they_describe() -> None:
    numbers = list(range(HEADER_BYTES))
    data = encode(numbers)
    assert decode(data) == numbers  # as in a state of our own
    with pytest.raises(CoveyError, match="too many for what it carries"):
        decode(data, foreign=True)
    assert decode(encode([numbers, bytes(10 * len(data))]), foreign=True)[0] == numbers


@given(st.binary(max_size=300))
def test_whatever_comes_is_refused(data: bytes) -> None:
    for received in (data, b"CVYL" + data, letter(None)[: len(data)]):
        with pytest.raises(CoveyError):
            mailbox().read(received)


@given(st.integers(0, 200), st.integers(1, 255))
def test_one_altered_byte_is_refused(at: int, change: int) -> None:
    data = bytearray(letter(Hello("", "", "", 0)))
    data[at % len(data)] ^= change
    with pytest.raises(CoveyError):
        mailbox().read(bytes(data))
