"""Canaries that are whole clients, for sums in the clear: what is sound is not refuted, what is planted as a mistake is."""

from dataclasses import replace

import pytest
import torch

from covey.algorithms.contract import Server
from covey.audit.canaries import audit_ledger
from covey.audit.canaries.verdict import NOT_REFUTED, NOTHING_CLAIMED, REFUTED
from covey.crypto.noise.source import KeyedNoise
from covey.defences.client_dp import protocol, summation
from covey.defences.client_dp.clipping import clipped
from covey.experiment.experiment import Experiment

SMALL = {
    "clients": 12,
    "clusters": 2,
    "model": "softmax",
    "training": {"rounds": 4, "epochs": 1, "batch_size": 20, "lr": 0.1},
    "start": {"common": False, "pretrain_epochs": 0},
}
SAMPLED = {"share": 0.5, "sampling": "poisson"}
TURNS = {"share": 0.25, "sampling": "turns"}


def two_worlds(algorithm="fedavg", trials=400, deployed=False, participation=None, **defence):
    settings = {"name": "client_dp", "noise_multiplier": 1.0, "delta": 1e-3, **defence}
    named = {"name": "fedavg", "weighting": "clients"} if algorithm == "fedavg" else algorithm
    made = Experiment.of(SMALL, algorithm=named, defence=settings, participation=participation or {})
    return audit_ledger(made, trials=trials, deployed=deployed)[0]


@pytest.mark.parametrize("more", [{}, {"noise": "local"}, {"algorithm": "scaffold"}, {"quantile": 0.5}], ids=str)
def test_what_is_sound_is_not_refuted_and_nearly_reached(more):
    test = two_worlds(**more)
    assert test.verdict == NOT_REFUTED and test.claimed == pytest.approx(4.85, abs=0.01)
    assert 1.5 < test.as_gaussian <= test.claimed


@pytest.mark.parametrize("more", [{"participation": SAMPLED}, {"participation": TURNS, "band": 4}], ids=str)
def test_samples_and_turns_are_sound(more):
    assert two_worlds(**more).verdict == NOT_REFUTED


def test_deployed_noise_is_sound():
    assert two_worlds(trials=300, deployed=True).verdict == NOT_REFUTED


def test_no_noise_claims_nothing():
    assert two_worlds(trials=40, noise_multiplier=0.0, epsilon=float("inf")).verdict == NOTHING_CLAIMED


def twice_as_long(contribution, clip):
    return replace(clipped(contribution, 2 * clip), clip=clip)


def test_a_bound_that_is_off_by_two_is_caught(monkeypatch):
    monkeypatch.setattr(protocol, "clipped", twice_as_long)
    assert two_worlds(trials=600).verdict == REFUTED


def test_noise_that_is_used_again_is_caught(monkeypatch):
    again = property(lambda self: KeyedNoise((self.seed, (self.round - 1) // 2, "server")))  # in both rounds of a trial
    monkeypatch.setattr(Server, "noise", again)
    assert two_worlds().verdict == REFUTED


def test_noise_that_is_missing_on_a_block_is_caught(monkeypatch):
    noised = summation.Central.noised

    def without(self, server, state, sums, sizes, within):
        total = noised(self, server, state, sums, sizes, within)
        return replace(total, changes=torch.cat([sums[:1], total.changes[1:]]))

    monkeypatch.setattr(summation.Central, "noised", without)
    assert two_worlds("ifca").verdict == REFUTED


def test_amplification_that_is_claimed_and_not_done_is_caught(monkeypatch):
    from covey.audit.canaries.clients import Circle

    monkeypatch.setattr(Circle, "_drawn", lambda self, round: True)
    assert two_worlds(participation={"share": 0.1, "sampling": "poisson"}).verdict == REFUTED


def test_a_ledger_that_is_told_of_three_times_the_noise_is_caught(monkeypatch):
    event = summation.ClientRelease
    monkeypatch.setattr(summation, "ClientRelease", lambda noise, **more: event(noise=3 * noise, **more))
    assert two_worlds(trials=1200).verdict == REFUTED
