"""Membership of whole clients: its arithmetic by hand, then runs with and without what stops it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from covey.attacks.finding import NOT_MEASURED, NOTHING_SEEN, Finding
from covey.attacks.membership.clients import STRANGERS, ClientMembership, partial_cosine
from covey.attacks.membership.strangers import dealt, kinds_of
from covey.audit.matrix import LEAKING
from covey.engines.settle import cut
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.ledger.clients import told_apart
from covey.ledger.events import ClientRelease
from covey.ledger.pricing import price
from covey.rounds.loop import run

NAME = "client_membership"
TABLE: dict[str, Any] = {
    "dataset": "digits",
    "model": "softmax",
    "algorithm": {"name": "fedavg", "weighting": "clients"},
    "clients": 20,
    "clusters": 1,
    "partition": {"name": "label_sets", "samples": 30, "public": 0},
    "training": {"rounds": 6, "epochs": 5, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
}
CLUSTERS: dict[str, Any] = {"algorithm": "ifca", "clusters": 2, "start": {"common": False, "pretrain_epochs": 0}}


def found(vantage: str = "client:0", **changes: Any) -> Finding:
    attack = {"name": NAME, "vantage": vantage}
    content = run(Experiment.of(TABLE, **{"attacks": [attack], **changes}), quiet=True).attacks[NAME]
    finding = Finding.of(NAME, content)
    assert finding is not None
    return finding


def private(epsilon: float, **further: Any) -> dict[str, Any]:
    return {"name": "client_dp", "epsilon": epsilon, "delta": 1e-3, "clip": 0.5, **further}


def test_what_known_vectors_explain_is_taken_off_both() -> None:
    """(1, 1, 0) and (1, 1, 1) without the first axis: (1, 0) and (1, 1), so 1/√2; nothing is left of what lies in the span."""
    vectors = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    products, target = vectors @ vectors.T, np.eye(4)[1]
    assert partial_cosine(products, 0, target, []) == pytest.approx(2 / math.sqrt(6))
    assert partial_cosine(products, 0, target, [2]) == pytest.approx(1 / math.sqrt(2))
    assert partial_cosine(products, 0, target, [2, 2]) == pytest.approx(
        1 / math.sqrt(2)
    )  # twice the same explains no more
    assert partial_cosine(products, 0, target, [2, 3]) == 0.0
    both = np.array([0.0, 0.0, 1.0, 1.0])  # a sum of two: (1, 1, 0)
    assert partial_cosine(products, 0, both, []) == pytest.approx(1.0)


def test_no_two_clients_are_dealt_the_same_stranger_and_each_its_own_kinds() -> None:
    federation = cut(Experiment.of(TABLE, **CLUSTERS))
    held = list(federation.clients)
    pool = np.setdiff1d(np.arange(len(federation.dataset.y_train)), np.concatenate(held))
    parts, kinds = dealt(federation, held, pool, np.random.default_rng(0)), kinds_of(federation)
    rows = np.concatenate(parts)
    assert len(rows) == len(set(rows.tolist())) and set(rows.tolist()) <= set(pool.tolist())
    assert all(set(kinds[part]) <= set(kinds[own]) for part, own in zip(parts, held))
    assert max(map(len, parts)) - min(map(len, parts)) < 20


def test_what_a_ledger_allows_is_just_above_what_the_best_guess_reaches() -> None:
    """Four sums of noise 4 are one of noise 2; a replaced client moves it by 2: the best guess is right in Φ(½)."""
    spends = [(round, 0, ClientRelease(4.0, 1e-3)) for round in range(1, 5)]
    bounds = [told_apart(price(spends, delta)) for delta in (None, 0.1, 0.2, 0.3, 0.38)]
    best = min(bound for bound in bounds if bound is not None)
    assert norm.cdf(0.5) <= best <= norm.cdf(0.5) + 0.02


def test_a_ledger_about_something_else_allows_nothing_that_we_know() -> None:
    assert told_apart({}) is None and told_apart({"unpriced": {"events": 3}}) is None
    sums = {"unit": "client", "epsilon": 1.0, "delta": 0.0, "total": {"replaced": 2.0, "sums": 3}}
    answers = {"unit": "client", "epsilon": 1.0, "delta": 0.0, "total": {"answers": 3}}
    together = {"unit": "client", "epsilon": 5.0, "delta": 0.0, "total": {"answers": 3, "sums": 3}}
    assert told_apart({"answers": answers}) is None  # of the cluster alone
    assert told_apart({"records": {**sums, "unit": "record"}}) is None
    assert told_apart({"sums": sums}) == pytest.approx(1 / (1 + math.exp(-2)))
    assert told_apart({"sums": sums, "both": together}) == pytest.approx(1 / (1 + math.exp(-5)))
    assert told_apart({"sums": {**sums, "total": {"replaced": None, "sums": 3}}}) is None


@pytest.mark.parametrize("vantage", ["client:0", "server", "server+client:0+client:1"])
def test_who_sees_plain_averages_of_few_clients_tells_who_is_in_them(vantage: str) -> None:
    finding = found(vantage)
    assert finding.verdict in LEAKING and finding.value > finding.controls[STRANGERS] + 0.2
    assert finding.details["allowed by the ledger"] is None and finding.note == ""
    assert [variant.attack for variant in finding.variants] == [f"{NAME}_published"]


def test_sealed_replies_do_not_hide_what_is_in_the_sum() -> None:
    assert found(**CLUSTERS).verdict in LEAKING
    assert found(encryption="secagg").verdict in LEAKING


def test_noised_sums_hide_clients_as_far_as_the_ledger_says() -> None:
    """Pooled over seeds, with the one-sided end of the interval: what is shown is below what is allowed."""
    findings = [found(defence=private(1.0), seed=seed) for seed in range(4)]
    pairs = sum(finding.details["pairs"] for finding in findings)
    mean = sum(finding.value * finding.details["pairs"] for finding in findings) / pairs
    allowed = findings[0].details["allowed by the ledger"]
    assert 0.62 < allowed < 0.66 and f"{allowed:.3f}" in findings[0].note
    assert mean <= allowed and abs(mean - 0.5) < 3 * 0.5 / math.sqrt(pairs)
    weak = found(defence=private(200.0, clip=5.0))
    assert weak.verdict in LEAKING and weak.details["allowed by the ledger"] > weak.value


def test_server_and_clients_together_see_no_more_in_sealed_noised_sums() -> None:
    sealed = {**CLUSTERS, "clients": 12, "encryption": "threshold", "training": {**TABLE["training"], "rounds": 3}}
    finding = found("server+client:0+client:1", **sealed, defence=private(0.5))
    assert finding.verdict == NOTHING_SEEN and finding.details["pairs"] == 10
    assert finding.low is not None and finding.low < finding.details["allowed by the ledger"] < 0.6


def test_one_round_shows_no_move_and_bad_settings_are_refused() -> None:
    once = found(training={**TABLE["training"], "rounds": 1})
    assert once.verdict == NOT_MEASURED and once.used == "no model was seen to move"
    few = found("server+client:0+client:1", clients=3)
    assert few.verdict == NOT_MEASURED and few.used == "fewer than two other clients took part"
    for wrong in ({"rounds": 0}, {"clients": 1}, {"cases": 1}):
        with pytest.raises(CoveyError, match="needs at least 1 round, 2 clients and 5 cases"):
            ClientMembership(**wrong)
