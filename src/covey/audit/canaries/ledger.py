"""The ledger tested from below: for every mechanism that an experiment books, the ε that is claimed and the ε that canaries show.

A test plays the turns of one client, no larger than the experiment's smallest: the whole run's rounds for one run with many
canaries, two rounds in many trials for two worlds. What those turns booked is priced by the ledger itself, so a test is of code,
noise and accountant together. Where whole clients are hidden, the canary is a client (`clients.py`).
"""

from __future__ import annotations

from covey.audit.canaries import clients, records, training
from covey.audit.canaries.verdict import LedgerTest
from covey.data.federation import Federation
from covey.engines.prepare import network_of, public_samples
from covey.engines.settle import cut
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment

SAMPLES = 200  # of a tested client at most, or one batch: only where batches are sampled does its ε depend on them


def audit_ledger(
    experiment: Experiment, *, trials: int = 0, deployed: bool = False, federation: Federation | None = None
) -> list[LedgerTest]:
    """Every test that fits; [] where nothing is booked, as without a defence.

    Args:
        trials: of two worlds; 0: up to 4000, fewer where a trial is expensive.
        deployed: with secret noise, as silos draw it; then no two tests are the same.
        federation: data of your own, in place of the experiment's.
    """
    if trials < 0 or 0 < trials < 40:
        raise CoveyError(
            f"{trials} trials were asked for: expected at least 40 (a third of them chooses the test), or 0 for the usual"
        )
    data = federation if federation is not None and federation.clients else cut(experiment, federation)
    network = network_of(experiment, data.dataset)
    samples = min(*map(len, data.clients), max(SAMPLES, experiment.training.batch_size))
    public = public_samples(network, data)
    tests = records.tests(experiment, network, data, public, samples, trials or training.TRIALS, deployed)
    whole = clients.tests(experiment, trials, deployed)
    if experiment.defence is not None and not whole:  # what hides whole clients changes no training
        subject = training.Subject(experiment, network, data.dataset, public, samples, deployed)
        tests += training.tests(subject, trials)
    return [*tests, *whole]
