"""What a run declares about itself: an own algorithm is shown by its own words, from result.json alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from covey.algorithms.fedavg import FedAvg
from covey.experiment.experiment import Experiment
from covey.measures import HIDDEN, MATRIX, NOISE, Measure
from covey.report.labels import label
from covey.report.page import write_report
from covey.report.terminal import closing_lines
from covey.results.contents import Run
from covey.results.declared import declared, read
from covey.results.folder import RunFolder
from covey.rounds.loop import run

TINY: dict[str, Any] = {"dataset": "digits", "clients": 4, "clusters": 3, "model": "softmax", "engine": {"workers": 1}}


@dataclass(frozen=True)
class OneModel(FedAvg):
    """An own method with a single model that notes what covey has never heard of."""

    name: ClassVar[str] = "one_model"
    label: ClassVar[str] = "OneModel"
    measures: ClassVar[Mapping[str, Measure]] = {
        "warmth": Measure("Warmth of the server", "K", "How warm it got.", alarm=300, warning="it got {} K warm"),
        "secret_order": Measure("Order", shown=HIDDEN),
        "meetings": Measure("Who met whom", words="Rows met columns.", shown=MATRIX, axes=("who", "whom")),
    }

    def aggregate(self, server: Any, state: Any, replies: Any) -> Any:
        server.note("warmth", 290.0 + 10 * server.round)
        server.note("secret_order", [3, 1, 2])
        server.note("meetings", [[1, 2], [3, 4]])
        server.note("undeclared_note", float(server.round))
        return super().aggregate(server, state, replies)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder(tmp_path_factory.mktemp("own") / "run")
    result = run(Experiment.of(TINY, algorithm=OneModel(), training={"rounds": 2}), out=folder.path, quiet=True)
    assert "warning     it got 310 K warm" in closing_lines(result)
    return folder


def test_an_own_method_with_one_model_says_one_model(own: RunFolder) -> None:
    page = write_report(own.path).read_text()
    assert "OneModel trained one model for 4 clients on digits" in page
    assert "trained 3 models" not in page


def test_what_it_declares_is_shown_as_it_declares(own: RunFolder) -> None:
    page = write_report(own.path).read_text()
    assert "Inside OneModel" in page
    for words in ("Warmth of the server", "How warm it got.", "Who met whom", "Rows met columns.", "Undeclared note"):
        assert words in page
    assert "Secret order" not in page and ">Order<" not in page


def test_the_folder_alone_says_it_all(own: RunFolder) -> None:
    """Nothing of the algorithm is imported to show the run."""
    content = json.loads(own.result.read_text())
    assert content["declared"]["trains"] == "one" and content["declared"]["models"] == 1
    again = declared(Run("r", content, (), {}, {}, ""))
    assert again.measures["warmth"] == OneModel.measures["warmth"]
    assert again.measures["meetings"] == OneModel.measures["meetings"]


@pytest.mark.parametrize(
    ("algorithm", "config", "trains", "models"),
    [
        ("fedprox", {"clusters": 5}, "one", 1),
        ("ifca", {"clusters": 5}, "clusters", 5),
        ("ifca", {}, "clusters", None),
        ("local", {"clusters": 5, "clients": 7}, "own", 7),
        ("pqfed", {"clusters": 5, "clients": 7}, "clusters", None),  # it counts them in its final state
        ("their_method", {"clusters": 5}, "", None),
    ],
)
def test_an_old_folder_is_asked_by_name(
    algorithm: str, config: dict[str, Any], trains: str, models: int | None
) -> None:
    told = declared(Run("r", {"algorithm": algorithm}, (), {}, config, ""))
    assert (told.trains, told.models) == (trains, models)


def test_a_path_in_a_folder_is_never_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.names.import_path", lambda *a: pytest.fail("it was imported"))
    told = declared(Run("r", {}, (), {}, {"algorithm": {"name": "evil.package:Method"}}, ""))
    assert told.label == "Method" and told.models is None


def test_measures_of_the_defence_stand_with_the_ledger() -> None:
    told = declared(Run("r", {"algorithm": "ifca", "defence": "afc"}, (), {}, {}, ""))
    assert set(told.shown(NOISE)) == {"clip", "noise"}


@pytest.mark.parametrize(
    "odd",
    [
        {"measures": 3},
        {"measures": {"a": None, "b": {"shown": "hologram"}, "c": {"axes": [1]}}},
        {"models": "many", "label": None, "trains": 4},
    ],
)
def test_what_cannot_be_read_is_left_out(odd: dict[str, Any]) -> None:
    told = read(odd)
    assert told.models is None and "b" not in told.measures


def test_labels_come_from_the_registries() -> None:
    assert [label("algorithm", n) for n in ("routing", "mingledpie", "their_method")] == [
        "Oblivious routing",
        "MingledPie",
        "their_method",
    ]
    assert [label("defence", n) for n in ("l2", "dropout", "afc")] == ["L2", "Dropout", "AFC-CFL"]
    assert [label("dataset", n) for n in ("location30", "utkface:gender")] == ["Location-30", "UTKFace:gender"]
    assert [label("encryption", n) for n in ("paillier", "bfv", "ckks")] == ["Paillier", "BFV", "CKKS"]


def test_models_are_counted_where_their_number_is_not_fixed(tmp_path: Path) -> None:
    table = {**TINY, "algorithm": {"name": "pqfed", "components": 4, "target": -1, "strategy": "all"}}
    table |= {"training": {"rounds": 2}, "partition": {"name": "label_sets", "public": 40}}
    assert run(Experiment.of(table), quiet=True).declared["models"] == 4
