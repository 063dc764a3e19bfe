"""Who can open a box, and about what."""

import pytest

from covey.crypto.openings.boxes import OVERHEAD, BoxKey
from covey.errors import CoveyError

ANN, BEN, EVE = BoxKey.generate(), BoxKey.generate(), BoxKey.generate()


def test_the_receiver_opens_what_the_sender_sealed():
    box = ANN.seal(BEN.public, b"share", b"round 1")
    assert len(box) == 5 + OVERHEAD and b"share" not in box
    assert BEN.open(ANN.public, box, b"round 1") == b"share"
    assert box != ANN.seal(BEN.public, b"share", b"round 1")
    assert ANN.open(ANN.public, ANN.seal(ANN.public, b"own", b""), b"") == b"own"


def test_nobody_else_about_nothing_else_and_nothing_altered():
    box = ANN.seal(BEN.public, b"share", b"round 1")
    altered = bytes([*box[:-1], box[-1] ^ 1])
    for key, sender, content, about in (
        (EVE, ANN, box, b"round 1"),
        (BEN, EVE, box, b"round 1"),
        (BEN, ANN, box, b"round 2"),
        (BEN, ANN, altered, b"round 1"),
        (BEN, ANN, b"", b"round 1"),
        (ANN, BEN, box, b"round 1"),  # sent back to who made it
    ):
        with pytest.raises(CoveyError, match="does not open"):
            key.open(sender.public, content, about)


def test_keys_that_are_none():
    with pytest.raises(CoveyError, match="32 bytes"):
        BoxKey(b"short")
    with pytest.raises(CoveyError, match="public key is none"):
        ANN.seal(bytes(32), b"to a point of small order", b"")
    assert "secret" not in repr(ANN)
