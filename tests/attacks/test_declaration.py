"""Every attack says what it looks for, from where, how to read its score and beside what: and its findings keep to it."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from covey.algorithms import ALGORITHMS
from covey.algorithms.ifca import ClusterModels, ClusterUpdate
from covey.attacks import ATTACKS
from covey.attacks.declaration import GOT, Reads, declaration
from covey.attacks.finding import Finding
from covey.experiment.experiment import Experiment
from covey.leaks import LEAKS, PARTIES
from covey.roles import Identity, IdentitySet, Model, Models, Role
from covey.rounds.loop import run

SMALL: dict[str, Any] = {
    "clients": 8,
    "clusters": 2,
    "partition": {"name": "label_sets", "public": 20},
    "training": {"rounds": 3, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "start": {"common": False},
    "engine": {"workers": 1},
}


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_every_attack_says_all_that_an_audit_asks(name: str) -> None:
    said = declaration(ATTACKS[name])
    assert said.row in LEAKS and said.means and said.label and said.title
    assert said.controls and len(set(said.controls)) == len(said.controls)
    assert said.seen_from and set(said.seen_from) <= set(PARTIES)
    assert said.reads and any(not said.unreadable(kind()) for kind in ALGORITHMS.values())  # somebody it is made for
    assert all(issubclass(kind, Role) or kind.__dataclass_fields__ for one in said.reads for kind in one.what)
    assert said.active == hasattr(ATTACKS[name], "replaces")


RUNS: tuple[dict[str, Any], ...] = (
    {
        "algorithm": "ifca",
        "defence": "ldp",
        "attacks": [
            *("a1", "a1_prior", "a1_intersection", "a1_bayes", "coalition", "a2", "loss_membership"),
            {"name": "category", "rounds": [1], "subsets": 100, "rows": 40},
        ],
    },
    {
        "algorithm": "fedcaprivacy",
        "attacks": ["naming", "naming_histogram", "linkage", "linkage_profile", "linkage_graph", "linkage_blocks"],
    },
    {
        "algorithm": {"name": "pqfed", "components": 8, "target": -1, "strategy": "all"},
        "partition": {"name": "label_sets", "public": 60},
        "attacks": ["membership", "membership_l1", "membership_ratio"],
    },
    {
        "algorithm": "sattler",
        "participation": {"initial": 6, "join": 2, "join_every": 1},
        "attacks": [{"name": "acquisition", "first": 6, "colluders": 2}],
    },
)


@functools.cache
def findings(n: int) -> list[Finding]:
    return run(Experiment.of(SMALL, **RUNS[n]), quiet=True).findings


@pytest.mark.parametrize("n", range(len(RUNS)))
def test_findings_keep_to_the_declared_controls_and_meaning(n: int) -> None:
    assert len(findings(n)) == len(RUNS[n]["attacks"])
    for finding in findings(n):
        said = declaration(ATTACKS[finding.attack])
        assert set(finding.controls) <= set(said.controls) and finding.means == said.means
        assert finding.controls or finding.verdict == "not measured"
        for variant in finding.variants:
            assert set(variant.controls) <= set(said.controls) and variant.means == said.means


def test_the_noise_aware_attacker_stands_beside_the_one_who_is_not() -> None:
    plain = findings(0)[-1]
    *_, aware = plain.variants
    assert aware.attack == "category_noise_aware" and aware.value == plain.details["noise_aware"]
    assert aware.bar == plain.bar and aware.low <= aware.value <= aware.high  # type: ignore[operator]


def test_what_is_missing_is_said_in_the_words_of_roles() -> None:
    class Sends:
        sends, replies = (ClusterModels,), (ClusterUpdate,)

    assert Reads((Models,), GOT).missing(Sends) == "" == Reads((Identity, IdentitySet)).missing(Sends)
    assert Reads((ClusterModels,), GOT).missing(Sends) == ""
    why = Reads((Identity, IdentitySet, Model), GOT).missing(Sends)
    assert why == (
        "no message to a client carries a cluster identity, a set of cluster identities or a model, "
        "and that is all this attack reads"
    )
    assert Reads((ClusterModels,)).missing(Sends) == "no reply is a ClusterModels, and that is all this attack reads"
