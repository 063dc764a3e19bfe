"""Letters: what parties of a deployment send each other, signed, addressed, and good for one answer.

Flower's TLS and node authentication guard the way; a letter guards itself. It is signed (Ed25519) by its writer, says for
whom it is, in which run and round, and which letter it answers. So neither the post office nor another silo can forge,
redirect, replay or swap one, and a party that is asked twice knows it.

Nothing of a letter is decoded before its signature holds: around the content lies an envelope of fixed layout, and the content
is read as a foreign message (`messages.decode`).

    CVP, protocol (one byte), sender (one byte of length, ASCII), round and milliseconds (u64), nonce (16), signature (64), content

A letter of another protocol is not read any further: its receiver's owner is told what to install, and its writer gets three
letters and a byte, by which it can tell its own owner. The first protocol wrote CVYL in that place.
"""

from __future__ import annotations

import secrets
import struct
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from covey.algorithms.contract import Setting
from covey.crypto.signatures import Envelope, Signer, Verifier
from covey.errors import CoveyError, printable
from covey.messages import check_fields, decode, encode, message
from covey.names import fault_of_own_code
from covey.version import PROTOCOL, __version__

PURPOSE = "covey/letter"
ANYONE = "anyone"  # the receiver of a first letter, to a node whose party is not known yet
MAGIC, FIRST = b"CVP", b"CVYL"
_FIXED = struct.Struct("<QQ16s64s")  # round, milliseconds, nonce, signature
BYTES_PER_NUMBER = 24  # of the bulkiest scheme, rounded up
SPARE_BYTES = 16 << 20  # for everything that does not grow with the model


@message
@dataclass(frozen=True)
class Letter:
    run: str
    kind: str  # hello, round, ask, finish
    receiver: str
    number: str  # the letter's own, random
    answers: str  # number of the letter that this one answers; empty: none
    body: Any


@message
@dataclass(frozen=True)
class Hello:
    """A party introduces itself."""

    agreed: str  # digest of what it was given
    version: str
    run: str  # the run that it takes part in already; empty: none
    round: int  # the last that it has answered


@message(also=("Told",))
@dataclass(frozen=True)
class RoundReply:
    """A silo's answer to a round: the algorithm's reply, and its accuracy and metrics where both sides agreed to report them."""

    reply: Any
    accuracy: float | None
    metrics: dict[str, float] | None = None  # what else the experiment measures, on the same terms


@message
@dataclass(frozen=True)
class Refused:
    """A silo's answer where it could not work with what it was sent: one word, which does not say why."""


@message
@dataclass(frozen=True)
class Spent:
    """A silo's answer where its privacy budget does not cover the round: it takes part no more."""


@dataclass(frozen=True)
class VerifiedLetter:
    """A letter whose signature, receiver and freshness were checked."""

    letter: Letter
    sender: str
    round: int


class OtherProtocol(CoveyError):
    """A letter of a covey that speaks another protocol."""

    def __init__(self, theirs: int, ours: int) -> None:
        super().__init__(
            f"it speaks protocol {theirs}, and covey {__version__} here speaks {ours}: install the same covey on both sides "
            "(`covey --version`); keys and state stay as they are"
        )
        self.theirs = theirs


class Mailbox:
    """What one party writes and reads letters with: its signing key, and whom it knows."""

    def __init__(self, role: str, signing: bytes, known: Mapping[str, bytes], max_age: float, max_bytes: int) -> None:
        self.role, self.max_bytes, self.protocol = role, max_bytes, PROTOCOL
        self._strange: set[int] = set()  # other protocols that were met, and said
        self._signer = Signer(role, signing)
        self._verifier = Verifier(dict(known), max_age=max_age, max_ahead=120.0)

    def follow(self, clock: Callable[[], float]) -> None:
        """From now on letters are dated and judged by this clock: the coordinator's, where this machine's is another."""
        self._signer, self._verifier.clock = replace(self._signer, clock=clock), clock

    def learn(self, known: Mapping[str, bytes]) -> None:
        """Senders whose letters are taken from now on, and no others'."""
        self._verifier.keys = dict(known)

    def write(self, run: str, kind: str, receiver: str, round: int, body: Any, answers: str = "") -> tuple[bytes, str]:
        """(the letter's bytes, its number)."""
        number = secrets.token_hex(8)
        payload = encode(Letter(run, kind, receiver, number, answers, body))
        return pack(self._signer.sign(payload, PURPOSE, round), self.protocol), number

    def answer(self, data: bytes, answer: Callable[[VerifiedLetter], bytes], say: Callable[[str], None]) -> bytes:
        """What `answer` writes to a letter; to one of another protocol, which protocol is spoken here, and nothing else."""
        try:
            verified = self.read(data)
        except OtherProtocol as e:
            if e.theirs not in self._strange:  # it comes again and again
                self._strange.add(e.theirs)
                say(f"a letter of the coordinator cannot be read: {e}")
            return MAGIC + bytes([self.protocol])
        return answer(verified)

    def read(self, data: bytes) -> VerifiedLetter:
        """A letter to this party by somebody it knows, seen for the first time; else a CoveyError that says what is wrong."""
        if len(data) > self.max_bytes:
            raise CoveyError(
                f"a letter of {len(data) / 1e6:.1f} MB came, {self.max_bytes / 1e6:.1f} MB are allowed; "
                "raise deployment.max_megabytes if it was meant"
            )
        envelope = unpack(data, self.protocol)
        letter = decode(self._verifier.accept(envelope, PURPOSE, envelope.round), foreign=True)
        if not isinstance(letter, Letter):
            raise CoveyError(f"'{envelope.sender}' signed something that is not a letter")
        check_fields(letter)
        if letter.receiver not in (self.role, ANYONE):
            receiver = printable(letter.receiver, 40)
            raise CoveyError(f"a letter of '{envelope.sender}' for '{receiver}' came to '{self.role}'")
        return VerifiedLetter(letter, envelope.sender, envelope.round)


def pack(envelope: Envelope, protocol: int = PROTOCOL) -> bytes:
    """A signed letter as it travels; see the module's docstring."""
    sender = envelope.sender.encode("ascii")
    fixed = _FIXED.pack(envelope.round, envelope.timestamp, envelope.nonce, envelope.signature)
    return b"".join((MAGIC, bytes([protocol, len(sender)]), sender, fixed, envelope.payload))


def unpack(data: bytes, protocol: int = PROTOCOL) -> Envelope:
    """What `pack` was given, of which nothing is checked or decoded yet."""
    begin = len(MAGIC) + 2
    if data[: len(MAGIC)] == MAGIC and data[begin - 2 : begin - 1] not in (b"", bytes([protocol])):
        raise OtherProtocol(data[begin - 2], protocol)
    if data.startswith(FIRST):
        raise OtherProtocol(1, protocol)
    end = begin + (data[begin - 1] if len(data) >= begin else 0)
    if data[: len(MAGIC)] != MAGIC or len(data) < end + _FIXED.size:
        raise CoveyError("what came is not a letter: it does not begin as one, or is cut off")
    round, timestamp, nonce, signature = _FIXED.unpack_from(data, end)
    sender = data[begin:end].decode("ascii", "backslashreplace")
    return Envelope(sender, PURPOSE, round, timestamp, nonce, data[end + _FIXED.size :], signature)


@contextmanager
def report_refusals(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """A letter that is refused, or that we fail on, is told to this party's owner; its writer learns only that there is no
    answer. After a mistake of ours the party stays, and `failures.log` can be sent to us.
    """
    try:
        yield
    except CoveyError as e:
        say(f"refused: {e}")
        raise
    except Exception as e:
        say(describe_failure(folder, e))
        raise CoveyError("an error in covey") from e


def describe_failure(folder: Path, error: Exception) -> str:
    """An error in a sentence for this party's owner; one of ours is written down with where it happened."""
    if isinstance(error, CoveyError):
        return str(error)
    with suppress(OSError), (folder / "failures.log").open("a", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    sentence = fault_of_own_code(error)
    return f"{sentence or f'failed: {type(error).__name__}'}; see {folder / 'failures.log'}"


def largest_message(setting: Setting, max_megabytes: float, rounds_sent: int = 1) -> int:
    """Bytes beyond which a letter is refused unread: what the model can need, unless the experiment says."""
    if max_megabytes:
        return int(max_megabytes * 1e6)
    k, d = setting.start.shape
    return BYTES_PER_NUMBER * (k + 1) * (d + k) * rounds_sent + SPARE_BYTES
