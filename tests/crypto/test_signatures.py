"""Signatures: what a verifier accepts once, and everything it must refuse."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.crypto.signatures import Envelope, Signer, Verifier, canonical
from covey.errors import CoveyError


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ann(clock: Clock) -> Signer:
    return Signer.generate("ann", clock)


@pytest.fixture
def bob(clock: Clock) -> Signer:
    return Signer.generate("bob", clock)


@pytest.fixture
def verifier(ann: Signer, bob: Signer, clock: Clock) -> Verifier:
    return Verifier({"ann": ann.public, "bob": bob.public}, clock=clock)


def test_an_honest_message_is_accepted(ann: Signer, bob: Signer, verifier: Verifier) -> None:
    assert verifier.accept(ann.sign(b"model", "upload", 3), "upload", 3) == b"model"
    assert verifier.accept(bob.sign(b"model", "upload", 3), "upload", 3) == b"model"
    assert verifier.accept(ann.sign(b"", "upload", 4), "upload", 4) == b""


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"modem"},
        {"sender": "bob"},
        {"purpose": "download"},
        {"purpose": "\ud800"},  # has no bytes
        {"round": 4},
        {"timestamp": 1_000_000_001},
        {"nonce": bytes(16)},
        {"nonce": b"short"},
        {"signature": bytes(64)},
        {"signature": b""},
        {"round": -1},
        {"timestamp": -5},
    ],
    ids=str,
)
def test_any_altered_field_is_refused(change: dict[str, object], ann: Signer, verifier: Verifier) -> None:
    message = replace(ann.sign(b"model", "upload", 3), **change)  # type: ignore[arg-type]
    with pytest.raises(CoveyError, match="does not fit"):
        verifier.accept(message, message.purpose, message.round)
    assert verifier.state() == {"horizon": 0, "seen": {}}


def test_unknown_senders_are_refused(verifier: Verifier, clock: Clock) -> None:
    with pytest.raises(CoveyError, match="unknown sender 'eve'"):
        verifier.accept(Signer.generate("eve", clock).sign(b"model", "upload", 3), "upload", 3)


def test_somebody_elses_key_is_refused(verifier: Verifier, clock: Clock) -> None:
    with pytest.raises(CoveyError, match="does not fit"):
        verifier.accept(Signer.generate("ann", clock).sign(b"model", "upload", 3), "upload", 3)


def test_another_round_or_purpose_is_refused(ann: Signer, verifier: Verifier) -> None:
    message = ann.sign(b"model", "upload", 3)
    with pytest.raises(CoveyError, match="round 3"):
        verifier.accept(message, "upload", 4)
    with pytest.raises(CoveyError, match="'upload'"):
        verifier.accept(message, "download", 3)


def test_replays_are_refused(ann: Signer, verifier: Verifier, clock: Clock) -> None:
    message = ann.sign(b"model", "upload", 3)
    verifier.accept(message, "upload", 3)
    for later in (0, 1, 299):
        clock.now = 1_000_000.0 + later
        with pytest.raises(CoveyError, match="replay"):
            verifier.accept(message, "upload", 3)
    assert verifier.accept(ann.sign(b"model", "upload", 3), "upload", 3) == b"model"


def test_stale_and_future_messages_are_refused(ann: Signer, verifier: Verifier, clock: Clock) -> None:
    message = ann.sign(b"model", "upload", 3)
    clock.now += 300.5
    with pytest.raises(CoveyError, match="stale"):
        verifier.accept(message, "upload", 3)
    clock.now -= 300.5 + 30.5
    with pytest.raises(CoveyError, match="future"):
        verifier.accept(message, "upload", 3)
    clock.now += 1
    assert verifier.accept(message, "upload", 3) == b"model"


def test_memory_is_bounded_and_a_clock_set_back_reopens_nothing(ann: Signer, verifier: Verifier, clock: Clock) -> None:
    old = ann.sign(b"model", "upload", 3)
    verifier.accept(old, "upload", 3)
    clock.now += 1000
    verifier.accept(ann.sign(b"model", "upload", 4), "upload", 4)
    assert sum(len(nonces) for nonces in verifier.seen.values()) == 1
    clock.now -= 1000
    with pytest.raises(CoveyError, match="stale"):
        verifier.accept(old, "upload", 3)


def test_memory_survives_a_restart(ann: Signer, verifier: Verifier, clock: Clock) -> None:
    message = ann.sign(b"model", "upload", 3)
    verifier.accept(message, "upload", 3)
    reborn = Verifier(verifier.keys, clock=clock)
    reborn.restore(json.loads(json.dumps(verifier.state())))
    with pytest.raises(CoveyError, match="replay"):
        reborn.accept(message, "upload", 3)


def test_secrets_stay_out_of_sight_and_survive_storage(ann: Signer) -> None:
    assert repr(ann.secret) not in repr(ann)
    assert Signer("ann", ann.secret).public == ann.public
    with pytest.raises(CoveyError, match="32 bytes"):
        Signer("ann", b"short")


def test_canonical_bytes_by_hand() -> None:
    got = canonical("a", "bc", 1, 2, b"N" * 16, b"")
    empty = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert got == (
        b"covey signed message 1\n"
        + (b"\0\0\0\x01a" + b"\0\0\0\x02bc")
        + (b"\0\0\0\x08" + bytes(7) + b"\x01" + b"\0\0\0\x08" + bytes(7) + b"\x02")
        + (b"\0\0\0\x10" + b"N" * 16 + b"\0\0\0\x20" + empty)
    )


@given(st.text(max_size=4), st.text(max_size=4), st.text(max_size=4), st.text(max_size=4))
def test_fields_do_not_run_into_each_other(a: str, b: str, c: str, d: str) -> None:
    same = canonical(a, b, 0, 0, bytes(16), b"") == canonical(c, d, 0, 0, bytes(16), b"")
    assert same == ((a, b) == (c, d))


def test_signed_is_plain_data(ann: Signer) -> None:
    message = ann.sign(b"model", "upload", 3)
    assert Envelope(**vars(message)) == message
