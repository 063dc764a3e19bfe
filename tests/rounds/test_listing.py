"""Of very many clients a sample is evaluated and listed: the same training, and for those clients the same figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.data.federation import Federation
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.measures import LEADS
from covey.report.terminal import closing_lines
from covey.results.folder import RunFolder
from covey.rounds.loop import run
from covey.rounds.result import Result

CLIENTS, LISTED = 60, 12


def experiment(listed: int, **more: Any) -> Experiment:
    return Experiment.of(
        {
            "dataset": "digits",
            "model": "softmax",
            "clients": CLIENTS,
            "clusters": 2,
            "training": {"rounds": 2, "epochs": 1, "lr": 0.1},
            "evaluation": {"clients": listed},
            "engine": {"workers": 1},
        },
        **more,
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result]:
    folder = tmp_path_factory.mktemp("listing")
    return (
        run(experiment(LISTED), out=folder / "some", quiet=True),
        run(experiment(0), out=folder / "all", quiet=True),
    )


def test_listed_clients_have_the_figures_that_they_have_among_all(both: tuple[Result, Result]) -> None:
    some, every = both
    of = some.records[-1]["listed"]
    assert len(of) == LISTED
    assert some.records[-1]["evaluated"] == {"clients": LISTED, "of": CLIENTS}
    for metric, figures in some.records[-1]["metrics"].items():
        assert figures["clients"] == [every.records[-1]["metrics"][metric]["clients"][i] for i in of], metric
    for one, other in zip(some.records, every.records, strict=True):
        assert one["clusters"] == [other["clusters"][i] for i in of]
        assert one["clustering"] == other["clustering"]  # everybody took part: of the same choices
    assert (some.state.models == every.state.models).all()


def test_the_terminal_says_of_whom_its_figures_are(both: tuple[Result, Result]) -> None:
    some, every = ("\n".join(closing_lines(result)) for result in both)
    assert f"of {LISTED} of {CLIENTS} clients, drawn by the seed" in some
    assert "drawn by the seed" not in every


def test_the_terminal_says_a_mean_over_clusters_where_it_is_another_number(both: tuple[Result, Result]) -> None:
    for over_clusters, said in ((0.5, True), (0.73301, False)):
        accuracy = {LEADS: "client_mean", "client_mean": 0.733, "average_cluster": over_clusters, "global": 0.7}
        words = "\n".join(closing_lines(replace(both[1], accuracy=accuracy)))
        assert words.startswith("accuracy    73.3")
        assert ("nobody knows to be true" in words) is said


def test_files_name_the_clients_that_they_list(both: tuple[Result, Result]) -> None:
    some = both[0]
    read = RunFolder(some.folder or Path()).read()
    of = some.records[-1]["listed"]
    assert read.federation["listed"] == of
    assert read.clients == CLIENTS
    assert read.client(3) == of[3]
    assert len(read.federation["histogram"]) == len(read.federation["sizes"]) == LISTED
    assert f"{LISTED} of {CLIENTS} clients" in RunFolder(some.folder or Path()).report.read_text()
    frame = some.frame()
    assert set(frame[frame.scope == "client"].id) == set(of)


def test_a_client_outside_the_sample_has_no_choice_kept(both: tuple[Result, Result]) -> None:
    some = both[0]
    of = set(some.records[-1]["listed"])
    x = np.zeros((1, 8, 8), np.uint8)
    other = next(i for i in range(CLIENTS) if i not in of)
    assert some.predict(x, client=min(of))
    with pytest.raises(CoveyError, match=f"client {other} is none of the {LISTED} of {CLIENTS} clients whose choice"):
        some.predict(x, client=other)
    with pytest.raises(CoveyError, match=f"client {CLIENTS} has no model"):
        some.predict(x, client=CLIENTS)


def test_one_model_is_everybodys() -> None:
    result = run(experiment(LISTED, algorithm="fedavg", clusters=1), quiet=True)
    other = next(i for i in range(CLIENTS) if i not in result.records[-1]["listed"])
    assert len(result.predict(np.zeros((2, 8, 8), np.uint8), client=other)) == 2


def test_attacks_are_scored_on_all_clients(tmp_path: Path) -> None:
    result = run(experiment(LISTED, attacks=["a1"]), out=tmp_path, quiet=True)
    assert "listed" not in result.records[-1]
    assert RunFolder(tmp_path).experiment().evaluation.clients == 0


def test_natural_clients_are_tested_on_their_own_rows_alone() -> None:
    rng = np.random.default_rng(3)
    x, owners = rng.normal(size=(400, 4)).astype(np.float32), np.repeat(np.arange(40), 10)
    federation = Federation.from_arrays(x, (x[:, 0] > 0).astype(int), clients=owners, test=0.3)
    table: dict[str, Any] = {"algorithm": "local", "model": "softmax", "training": {"rounds": 1, "epochs": 1}}
    every = run(Experiment.of(table, clusters=1), federation=federation, quiet=True).records[-1]
    some = run(Experiment.of(table, clusters=1, evaluation={"clients": 7}), federation=federation, quiet=True).records[
        -1
    ]
    for metric in every["metrics"]:
        chosen = [every["metrics"][metric]["clients"][i] for i in some["listed"]]
        assert some["metrics"][metric]["clients"] == chosen


def test_a_sample_without_anybody_who_is_there_is_refused() -> None:
    joining = {"initial": 1, "join": 1, "join_every": 1}
    with pytest.raises(CoveyError, match="draws none of the 1 clients of the first round"):
        run(experiment(2, clusters=1, participation=joining), quiet=True)


def test_a_run_that_lists_a_sample_resumes_to_the_same_records(tmp_path: Path) -> None:
    def stop(record: dict[str, Any], state: Any) -> None:
        raise KeyboardInterrupt

    whole = run(experiment(LISTED), quiet=True)
    with pytest.raises(KeyboardInterrupt):
        run(experiment(LISTED), out=tmp_path, quiet=True, callbacks=[stop])
    resumed = run(experiment(LISTED), out=tmp_path, resume=True, quiet=True)
    for one, other in zip(whole.records, resumed.records, strict=True):
        left_out = ("seconds",)
        assert json.dumps({k: v for k, v in one.items() if k not in left_out}) == json.dumps(
            {k: v for k, v in other.items() if k not in left_out}
        )
