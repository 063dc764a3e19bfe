"""Fingerprints: the same bytes give the same one, whatever holds them; a difference is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covey import Federation
from covey.data import fingerprint as module
from covey.data.fingerprint import difference, digest, federation_parts, fingerprint, parts

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.arange(40) % 2
CLIENTS = np.repeat(["a", "b"], 20)


def test_pieces_and_maps_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = digest(X)
    np.save(tmp_path / "x.npy", X)
    assert digest(np.load(tmp_path / "x.npy", mmap_mode="r")) == whole
    assert digest(np.asfortranarray(X)) == whole
    monkeypatch.setattr(module, "PIECE", 64)
    cut = digest(X)
    assert cut != whole  # pieces are a part of the definition: 16 MiB
    assert digest(np.load(tmp_path / "x.npy", mmap_mode="r")) == cut
    assert digest(X.reshape(20, 6)) != cut and digest(X.astype(np.float64)) != cut
    assert digest(X[:0]) != digest(X[:0].astype(np.int32))


def test_names_and_notes_do_not_count_and_everything_else_does() -> None:
    federation = Federation.from_arrays(X, Y, clients=CLIENTS)
    before = federation_parts(federation)
    assert fingerprint(before).startswith("sha256:") and len(fingerprint(before)) == 39
    data = federation.dataset
    for same in (replace(data, name="else"), replace(data, note="said")):
        assert federation_parts(replace(federation, dataset=same)) == before
    for changed, words in (
        (replace(federation, dataset=replace(data, x_train=data.x_train + 1)), "the training samples"),
        (replace(federation, dataset=replace(data, y_test=1 - data.y_test)), "the test labels"),
        (replace(federation, dataset=replace(data, classes=("no", "yes"))), "the classes, the kind or the task"),
        (replace(federation, dataset=replace(data, owners=1 - data.owners)), "whose each row is"),
        (replace(federation, clients=federation.clients[::-1]), "which rows each client holds"),
        (replace(federation, distributions=np.full((2, 2), 0.5)), "which rows each client holds"),
    ):
        assert difference(before, federation_parts(changed)) == words
    assert difference(before, before) == ""


def test_arrays_that_can_change_are_hashed_anew() -> None:
    x = X.copy()
    data = Federation.from_arrays(x, Y, test=(X, Y)).dataset
    frozen = Federation.from_arrays(X, Y).dataset
    assert parts(frozen) == parts(frozen) and not frozen.x_train.flags.writeable
    before = parts(data)
    x[0] += 1
    assert difference(before, parts(data)) == "the training samples"
