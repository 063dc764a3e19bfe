"""Datasets, models, encryptions and what PQFed runs, by the path of one's own module: the run is that of covey's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covey import CoveyError, Experiment, run
from covey.algorithms import ALGORITHMS
from covey.crypto.sealing import sealing
from covey.data.sources.load import load, source_of
from covey.experiment.own_code import own_code

MODULE = '''
from dataclasses import replace
from covey.algorithms.fedavg import FedAvg
from covey.crypto.sealing import plain
from covey.data.sources.catalogue import DIGITS, digits
from covey.models.dense import FCNN, SOFTMAX

def half():
    """Half of the digits."""
    whole = digits()
    return replace(whole, x_train=whole.x_train[::2], y_train=whole.y_train[::2])

def nothing():
    return 7

SOURCE = replace(DIGITS, name="my_digits", title="digits again")
Softmax = replace(SOFTMAX, name="my_softmax")
number = 7

class MyFedAvg(FedAvg):
    name = "my_fedavg"

class Scheme:
    """covey's interface with a name of its own, in one object."""
    name, title = "mine", "in the clear"
    def generate_keys(self, bound, terms):
        return plain.generate_keys(bound, terms).replace(b'"none"', b'"mine"')
    def sealer(self, keys):
        return plain.sealer(keys.replace(b'"mine"', b'"none"'))
    def mixer(self, public, clusters, length):
        return plain.mixer(public.replace(b'"mine"', b'"none"'), clusters, length)

scheme = Scheme()
thief = Scheme()
thief.generate_keys = plain.generate_keys
'''
SMALL: dict[str, Any] = {
    "model": "softmax",
    "clients": 4,
    "clusters": 2,
    "training": {"rounds": 1, "epochs": 1},
    "engine": {"workers": 1},
}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_things.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)  # which is enough: the current folder is searched, last
    yield "own_things"
    sys.modules.pop("own_things", None)
    sys.path[:] = [folder for folder in sys.path if folder != str(tmp_path)]


def accuracy(**more: Any) -> dict[str, Any]:
    return dict(run(Experiment.of(SMALL | more), quiet=True).accuracy)


def test_a_dataset_is_a_source_or_a_function(module: str) -> None:
    assert len(load("own_things:half").y_train) == (len(load("digits").y_train) + 1) // 2
    assert source_of("own_things:half")[1].title == "Half of the digits."
    assert accuracy(dataset="own_things:SOURCE") == accuracy(dataset="digits")
    for text, says in {
        "own_things:nothing": "gave a int: expected a Dataset",
        "own_things:number": "is a int: expected a Source",
        "own_things:half:smile": "own_things:half has no label 'smile'",
        "lfw:smil": "lfw has no label 'smil'",
        "lfv:smile": "there is no module 'lfv' here",
    }.items():
        with pytest.raises(CoveyError, match=says):
            load(text)


def test_a_model_is_whatever_can_be_built(module: str) -> None:
    own = Experiment.of(SMALL, model="own_things:Softmax")
    assert own.table()["model"] == "own_things:Softmax" and own_code(own.table()) == [
        "own_things:Softmax (of no installed package)"
    ]
    assert run(own, quiet=True).accuracy == accuracy()
    with pytest.raises(CoveyError, match=r"own_things:number is no model: expected a torch\.nn\.Module class"):
        Experiment.of(SMALL, model="own_things:number")


def test_an_encryption_of_the_family_that_the_algorithm_declares(module: str) -> None:
    mingled = {"name": "mingledpie", "threshold": 1}
    own, plain = (accuracy(algorithm=mingled, encryption=e)["client_mean"] for e in ("own_things:scheme", "none"))
    assert own == pytest.approx(plain)
    with pytest.raises(CoveyError, match="ifca cannot run with encryption = 'own_things:scheme'; it can with: none"):
        Experiment.of(SMALL, encryption="own_things:scheme")
    with pytest.raises(CoveyError, match="has no generate_keys, sealer, mixer"):
        Experiment.of(SMALL, algorithm=mingled, encryption="own_things:number")
    with pytest.raises(CoveyError, match="keys of a scheme that is known already"):
        accuracy(algorithm=mingled, encryption="own_things:thief")


def test_keys_from_elsewhere_name_no_module_to_import(module: str) -> None:
    with pytest.raises(CoveyError, match="unknown encryption"):
        sealing.sealer(b'{"scheme": "this:scheme"}')
    assert "this" not in sys.modules


def test_what_pqfed_runs_may_be_ones_own(module: str) -> None:
    pqfed = {"name": "pqfed", "under": "own_things:MyFedAvg", "components": 4}
    own = Experiment.of(SMALL, algorithm=pqfed)
    assert own.table()["algorithm"]["under"]["name"] == "own_things:MyFedAvg"
    assert Experiment.of(own.table()) == own
    assert own_code(own.table()) == ["own_things:MyFedAvg (of no installed package)"]


def test_an_object_is_written_as_what_can_be_read_back(module: str) -> None:
    kind = ALGORITHMS.resolve("own_things:MyFedAvg")
    own = Experiment.of(SMALL, algorithm=kind())
    assert own.algorithm.name == "my_fedavg" and own.table()["algorithm"]["name"] == "own_things:MyFedAvg"
    assert Experiment.of(own.table()) == own


def test_a_class_of_a_function_runs_and_says_why_it_cannot_be_read_back() -> None:
    from covey.algorithms.fedavg import FedAvg

    class Local(FedAvg):
        name = "of_a_test"

    own = Experiment.of(SMALL, algorithm=Local())
    with pytest.raises(CoveyError, match="defined inside a function, a notebook or a script that cannot be imported"):
        Experiment.of(own.table())
