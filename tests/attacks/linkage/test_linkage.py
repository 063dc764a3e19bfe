"""Linkage: each matching by hand and under what it must survive, then the attacks on real runs with and without a defence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covey.attacks.linkage.matchings import assignment, between, block_profiles, disagreement, profiles, refined
from covey.clustering.spectral import distances
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

ATTACKS = ["naming", "naming_histogram", "linkage", "linkage_profile", "linkage_graph", "linkage_blocks"]


def test_assignment_by_hand() -> None:
    assert assignment(np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]])).tolist() == [1, 0, 2]
    assert assignment(np.array([[1.0, 0.0, 5.0]])).tolist() == [-1, 0, -1]  # one row for three columns


def test_a_common_blind_changes_no_assignment() -> None:
    """‖(a + μ) − (b + ν)‖² = ‖a − b‖² + (a part of a alone) + (a part of b alone) + a constant."""
    random = np.random.default_rng(0)
    before = random.normal(0, 1, (20, 50))
    order = random.permutation(20)
    now = before[order] + random.normal(0, 0.5, (20, 50))
    blinds = random.normal(0, 1e3, (2, 50))
    plain = assignment(((before[:, None] - now) ** 2).sum(2))
    blinded = assignment(((before[:, None] + blinds[0] - now - blinds[1]) ** 2).sum(2))
    assert plain.tolist() == blinded.tolist() == assignment(between(before + blinds[0], now + blinds[1])).tolist()
    assert plain.tolist() == order.tolist()


def test_profiles_survive_a_rotation_and_coordinates_do_not() -> None:
    random = np.random.default_rng(1)
    before = random.normal(0, random.uniform(0.5, 2, (15, 1)), (15, 30))
    rotation = np.linalg.qr(random.normal(size=(30, 30)))[0]
    order = random.permutation(15)
    now = before[order] @ rotation + 3.0
    cost = ((profiles(distances(before))[:, None] - profiles(distances(now))) ** 2).sum(2)
    assert assignment(cost).tolist() == order.tolist()
    assert np.mean(assignment(between(before, now)) == order) < 0.5


def test_refining_repairs_a_matching_that_is_mostly_right() -> None:
    random = np.random.default_rng(2)
    before = random.normal(0, 1, (20, 8))
    order = random.permutation(20)
    now = before[order] + random.normal(0, 0.02, (20, 8))
    start = order.copy()
    start[:6] = start[[1, 2, 3, 4, 5, 0]]  # six of twenty in a wrong circle
    assert refined(distances(before), distances(now), start).tolist() == order.tolist()


def test_block_profiles_survive_moved_and_turned_blocks() -> None:
    random = np.random.default_rng(3)
    rows = random.normal(0, random.uniform(0.1, 3, (10, 6)).repeat(5, axis=1))
    moved = (rows.reshape(10, 6, 5)[:, random.permutation(6)] * random.choice([-1, 1], (6, 1))).reshape(10, 30)
    assert np.allclose(block_profiles(rows, 5), block_profiles(moved + 7.0, 5))
    assert not np.allclose(block_profiles(rows, 5), block_profiles(rows[:, random.permutation(30)], 5))


def watched(algorithm: dict[str, Any] | None = None, **more: Any) -> dict[str, dict[str, Any]]:
    table: dict[str, Any] = {
        "dataset": "digits",
        "model": "fcnn",
        "algorithm": {"name": "fedcaprivacy", "every": 1, **(algorithm or {})},
        "clients": 20,
        "clusters": 4,
        "partition": {"name": "dirichlet", "beta": 0.3},
        "training": {"rounds": 3, "epochs": 5, "batch_size": 50, "lr": 0.05},
        "engine": {"workers": 1},
        "evaluation": {"every": 3, "samples": 50},
        "attacks": ATTACKS,
    }
    return run(Experiment.of(table, **more), quiet=True).attacks


def test_without_the_shuffle_rows_are_named_and_with_it_they_are_not() -> None:
    bare, shuffled = watched({"shuffle": False}), watched()
    assert bare["naming"]["value"] == 1.0 and bare["naming"]["verdict"] == "broken"
    assert shuffled["naming"]["value"] < 0.2 and shuffled["naming"]["verdict"] == "no leak seen"
    assert shuffled["naming"]["chance"] == pytest.approx(1 / 20)


def test_the_shuffle_does_not_stop_linkage_nor_naming_by_label_counts() -> None:
    found = watched()
    for name in ("linkage", "naming_histogram"):
        assert found[name]["value"] >= 0.95 and found[name]["low"] > max(found[name]["controls"].values())
    assert found["linkage"]["controls"]["random matching"] < 0.2 > found["linkage"]["controls"]["another's row"]


def test_moved_blocks_stop_what_reads_coordinates_and_not_what_reads_distances() -> None:
    found = watched({"mitigation": "rearrange"})
    assert found["linkage"]["value"] < 0.3 and found["naming_histogram"]["value"] < 0.3
    assert max(found[name]["value"] for name in ("linkage_profile", "linkage_graph")) > 0.5


def test_sketches_of_few_numbers_leave_little_to_any_of_them_and_those_of_more_leave_more() -> None:
    few, more = (watched({"mitigation": "sketch", "buckets": buckets}) for buckets in (4, 32))
    assert all(few[name]["value"] < 0.3 for name in ATTACKS)
    told = [found["linkage_graph"]["details"]["told of all others"] for found in (few, more)]
    assert told[0] < told[1] and all(t > f["linkage_graph"]["value"] for t, f in zip(told, (few, more)))


def test_whoever_is_told_of_all_others_finds_the_last_by_hand() -> None:
    """Rows at 0, 1, 3 on a line, then at 3, 0, 1: the distances to the two others say which is which."""
    before, now = (distances(np.array(at)[:, None]) for at in ([0.0, 1.0, 3.0], [3.0, 0.0, 1.0]))
    true = np.array([2, 0, 1])
    cost = disagreement(before, now, true)
    assert assignment(cost).tolist() == true.tolist()
    assert cost[2, 0] == cost[0, 1] == cost[1, 2] == 0
    # Row 0 before against row 0 now: without these two, only (1, 2) is left, at distances 1 and 2.
    assert cost[0, 0] == pytest.approx((1 - 2) ** 2)


def test_linking_over_partial_participation_scores_only_who_was_in_both_rounds() -> None:
    found = watched(participation={"share": 0.5})
    assert found["linkage"]["details"]["in both rounds"] < 10 and found["linkage"]["value"] > 0.3


def test_encrypted_rows_are_opened_with_the_csps_key() -> None:
    assert watched(encryption="bfv", training={"rounds": 2})["linkage"]["value"] >= 0.95


def test_one_round_leaves_nothing_to_link() -> None:
    for mitigation in ("sketch", "sums"):
        found = watched({"mitigation": mitigation, "every": 9})
        assert found["linkage"]["value"] == found["linkage"]["chance"] and found["linkage"]["verdict"] == "not measured"


def test_only_the_csp_of_this_algorithm_can_run_them() -> None:
    for algorithm, vantage in (("fedavg", "csp"), ("fedcaprivacy", "bs")):
        table: dict[str, Any] = {"attacks": [{"name": "linkage", "vantage": vantage}], "algorithm": algorithm}
        with pytest.raises(CoveyError, match=r"cloud provider|has no party"):
            run(Experiment.of(table), quiet=True)
