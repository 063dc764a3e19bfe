"""Poison with an aim: what one participant does to the others beside the same run without it, and what bears it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.attacks import ATTACKS
from covey.attacks.declaration import declaration
from covey.attacks.finding import NOT_MEASURED, NOTHING_SEEN, Finding
from covey.attacks.integrity.harm import WITHOUT, fall_interval, share_interval
from covey.attacks.integrity.poisoned_samples import marked
from covey.audit.matrix import LEAKING
from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.results.folder import RunFolder, hash_of
from covey.rounds import unharmed
from covey.rounds.loop import run

TABLE: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "ifca",
    "clients": 12,
    "clusters": 3,
    "partition": {"name": "label_sets", "public": 20},
    "training": {"rounds": 6, "epochs": 3, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
}
MEDIAN = {"name": "ifca", "aggregation": "median"}


def found(name: str, federation: Federation | None = None, **changes: Any) -> Finding:
    experiment = Experiment.of({**TABLE, "attacks": [name]}, **changes)
    finding = Finding.of(name, run(experiment, federation=federation, quiet=True).attacks[name])
    assert finding is not None
    return finding


@cache
def suffered(name: str) -> Finding:
    """What it does in the plain setting; several tests look at it."""
    return found(name)


@pytest.mark.parametrize("name", ["label_flip", "backdoor", "intruder"])
def test_one_client_harms_others_unless_the_server_takes_a_median(name: str) -> None:
    spoilt, borne = suffered(name), found(name, algorithm=MEDIAN)
    assert spoilt.verdict in LEAKING and spoilt.value > 0.3, spoilt
    assert borne.verdict == NOTHING_SEEN and borne.value < 0.1, borne
    assert spoilt.controls[WITHOUT] < 0.2


def test_a_backdoor_leaves_samples_without_the_mark_alone() -> None:
    opened = suffered("backdoor")
    assert opened.details["victims' accuracy"] > opened.details["victims' accuracy without it"] - 0.1


def test_an_intruder_harms_a_cluster_that_is_not_its_own() -> None:
    notes: list[dict[str, int]] = []

    def remember(record: dict[str, Any], state: Any) -> None:
        notes.append({"joined": record["clusters"][0], "like": record["clusters"][1:4]})

    run(Experiment.of({**TABLE, "attacks": ["intruder"]}), callbacks=[remember], quiet=True)
    before, after = notes[2], notes[3]
    assert before["joined"] in before["like"] and after["joined"] != before["joined"]  # type: ignore[operator]


def test_rebuilding_spreads_one_upload_over_all_clusters() -> None:
    spread = found("spread_poison", algorithm="mingledpie")
    assert spread.verdict in LEAKING and spread.note.count("cluster ") == 3
    assert declaration(ATTACKS["spread_poison"]).unreadable(Experiment.of(TABLE).algorithm)  # IFCA shows no sets


def test_the_same_run_without_it_is_read_from_beside_or_made_once(tmp_path: Path) -> None:
    experiment = Experiment.of({**TABLE, "attacks": ["label_flip"]}, seed=3, training={"rounds": 4})
    watched = Experiment.of({**TABLE, "attacks": ["rejoining"]}, seed=3, training={"rounds": 4})
    alone = run(watched, out=tmp_path / "watched", quiet=True)
    unharmed._latest.clear()
    made = unharmed.unharmed_ends(experiment, None, None, run)
    assert unharmed.unharmed_ends(experiment, None, None, _nobody) is made
    unharmed._latest.clear()
    read = unharmed.unharmed_ends(experiment, None, RunFolder(tmp_path / hash_of(experiment)), _nobody)
    assert alone.models is not None
    for i, one in alone.models.predictors().items():
        assert bool((one.models == made[i].models).all()) and bool((one.models == read[i].models).all())


def test_a_run_that_was_attacked_is_not_taken_for_one_without(tmp_path: Path) -> None:
    experiment = Experiment.of({**TABLE, "attacks": ["label_flip"]}, seed=4, training={"rounds": 4})
    run(experiment, out=tmp_path / "attacked", quiet=True)
    unharmed._latest.clear()
    with pytest.raises(AssertionError):
        unharmed.unharmed_ends(experiment, None, RunFolder(tmp_path / hash_of(experiment)), _nobody)


def _nobody(*given: Any, **more: Any) -> Any:
    raise AssertionError("nothing is to be run")


def test_numbers_have_no_classes_to_flip() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).astype(np.float32)
    numbers = Federation.from_arrays(x, (x.sum(1, keepdims=True) + 0.5).astype(np.float32), clients=np.arange(80) % 4)
    plain = {"model": "softmax", "clusters": 3, "partition": "natural"}
    for name, algorithm in (("label_flip", "fedavg"), ("spread_poison", "mingledpie")):
        measured = found(name, numbers, **plain, algorithm={"name": algorithm})
        assert measured.verdict == NOT_MEASURED and "without classes" in measured.used


def test_intervals_by_hand() -> None:
    mean, low, high = share_interval(np.array([0.5, 0.5]), 100)
    assert mean == 0.5 and 0.4 < low < 0.41 and 0.59 < high < 0.6  # Wilson's alone: the victims agree
    wide = share_interval(np.array([0.2, 0.8]), 100)
    assert wide[1] == 0.0 and wide[2] == 1.0  # two victims that differ so much tell little
    fall, low, high = fall_interval(np.array([0.4, 0.4]), np.array([0.8, 0.8]), 10_000)
    assert fall == 0.5 and 0.48 < low < 0.5 < high < 0.52


def test_marks_by_hand() -> None:
    pictures = marked(np.zeros((1, 8, 8), np.uint8), Network("softmax", (8, 8), 2))
    assert pictures.sum() == 4 * 255 and pictures[0, -1, -1] == 255  # type: ignore[operator]
    rows = marked(np.zeros((1, 5), np.float32), Network("softmax", (5,), 2, "real"))
    assert rows.tolist() == [[0, 0, 0, 10, 10]]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(CoveyError, match="one client"):
        ATTACKS["backdoor"](vantage="server")
    with pytest.raises(CoveyError, match="target"):
        ATTACKS["backdoor"](target=-2)
    with pytest.raises(CoveyError, match="class 99"):
        found("backdoor", attacks=[{"name": "backdoor", "target": 99}])
