"""A whole client as the canary in sealed sums: what is claimed of them holds, and mistakes in them are seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from covey.audit.canaries import clients
from covey.audit.canaries.verdict import NOT_REFUTED, REFUTED, LedgerTest
from covey.crypto.noise.shares import Shares
from covey.crypto.noise.source import KeyedNoise
from covey.crypto.noise.stream import Stream
from covey.crypto.openings.circle import read_circle
from covey.defences.client_dp.carriers import Lattices
from covey.defences.client_dp.sealed import Sealed
from covey.experiment.experiment import Experiment

TRIALS = 1000


def sealed(**defence: Any) -> Experiment:
    return Experiment.of(
        algorithm="ifca",
        encryption="threshold",
        clients=8,
        clusters=2,
        model="softmax",
        training={"rounds": 2},
        defence={"name": "client_dp", "epsilon": 6.0, "delta": 1e-3, **defence},
    )


def test_a_sealed_sum_holds_what_the_ledger_claims_of_it() -> None:
    """Sealed and opened in every trial, with noise as silos draw it; two of four clients add none. Few trials show little: those
    of the mechanism without its lattices are below.
    """
    part, cluster = clients.tests(sealed(), 40, deployed=True)
    assert part.claimed == pytest.approx(6.0, abs=1e-2) and part.claimed <= 6.0 and part.rounds == 2
    assert cluster.claimed is not None and cluster.claimed > part.claimed
    assert {part.verdict, cluster.verdict} == {NOT_REFUTED} and part.deployed


class InTheClear(Sealed):
    """The same without lattices, so that many trials take a moment; that they add up exactly is tested elsewhere."""

    def total(self, server: Any, state: Any, replies: Iterator[tuple[int, Any]]) -> Any:
        numbers = np.sum([reply for _, reply in replies], axis=0)
        return self._total(numbers, server.keys["sealing"], state.clip)


@pytest.fixture
def in_the_clear(monkeypatch: pytest.MonkeyPatch) -> clients.Circle:
    monkeypatch.setattr(Lattices, "seal", lambda self, me, numbers: numbers)
    circle = clients.circle_of(sealed(), False)
    fields = vars(circle.protected.summation)
    return replace(circle, protected=replace(circle.protected, summation=InTheClear(**fields)))


def judged(circle: clients.Circle) -> LedgerTest:
    return clients._two_worlds(circle, clients.TAKING_PART, (0, None), TRIALS, 0)


def test_as_it_is_no_claim_is_refuted_and_the_guesser_comes_close(in_the_clear: clients.Circle) -> None:
    test = judged(in_the_clear)
    assert test.verdict == NOT_REFUTED
    assert test.as_gaussian is not None and 3.0 < test.as_gaussian < 6.0


def test_a_client_whose_noise_is_missing_is_seen(in_the_clear: clients.Circle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two honest clients one adds none: the others' are the corrupted ones, who never do."""
    monkeypatch.setattr(Sealed, "false_clients", property(lambda self: range(1, 4)))
    assert judged(in_the_clear).verdict == REFUTED


def test_noise_that_is_drawn_twice_is_seen(in_the_clear: clients.Circle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both rounds of a trial have the same: their difference has none."""

    def stream(self: KeyedNoise, purpose: str) -> Stream:
        seed, round, client = self.parts
        again = (seed, (int(round) - 1) // clients.ROUNDS, client, purpose)
        return Stream(hashlib.sha256(repr(again).encode()).digest())

    monkeypatch.setattr(KeyedNoise, "stream", stream)
    assert judged(in_the_clear).verdict == REFUTED


def test_a_bound_that_is_off_by_two_is_seen(in_the_clear: clients.Circle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shares, "steps", lambda self, vector: np.trunc(2 * vector / self.step).astype(np.int64))
    assert judged(in_the_clear).verdict == REFUTED


def test_the_circle_is_the_schemes() -> None:
    circle = clients.circle_of(sealed(), False)
    assert read_circle(circle.keys["server"]["sealing"]).quorum == 3
    assert len(circle.protected.summation.false_clients) == 2
