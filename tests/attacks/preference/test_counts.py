"""Counts by name: a client that helps to open sums solves for others' clusters; where it does not help, nothing applies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from covey import Experiment, run
from covey.attacks.finding import NOT_MEASURED, Finding
from covey.attacks.preference.counts import SETS, CountsByName, Opened, _newest_explained
from covey.audit.matrix import fill
from covey.audit.questions import Questions, Watch
from covey.leaks import CLIENT, COALITION, EAVESDROPPER, IDENTITY, SERVER

HALF: dict[str, Any] = {
    "dataset": "digits",
    "model": "softmax",
    "clients": 30,
    "clusters": 5,
    "algorithm": {"name": "mingledpie", "quorum": 5, "history": 3},
    "encryption": "threshold",
    "partition": {"name": "label_sets", "public": 5},
    "participation": {"share": 0.5},
    "training": {"rounds": 8, "epochs": 1},
    "evaluation": {"every": 8, "samples": 20},
    "engine": {"workers": 1},
}


def found(**more: Any) -> Finding:
    (finding,) = run(Experiment.of({**HALF, **more}), attacks=[CountsByName()], quiet=True).findings
    return finding


@pytest.fixture(scope="module")
def half() -> Finding:
    return found()


def test_half_of_the_clients_in_a_round_tell_one_of_them_more_than_their_sets_do(half: Finding) -> None:
    assert half.verdict in ("leaks", "broken") and half.low is not None and half.low > half.controls[SETS]
    assert set(half.controls) == set(CountsByName.controls) and half.details["rounds together"] >= 2
    assert half.details["clients"] < 30  # it does not guess at itself


def test_an_audit_finds_it_by_its_declaration_and_its_cell_says_so(half: Finding) -> None:
    questions, watch = Questions(Experiment.of(HALF)), Watch("counts_by_name", CLIENT)
    assert watch in list(questions.watches())
    cells = {(cell.row, cell.column): cell for cell in fill(questions, {watch: (half, "")}, {})}
    own, both = cells[IDENTITY.name, CLIENT], cells[IDENTITY.name, COALITION]
    assert own.verdict == half.verdict and own.tried[0].attack == "counts_by_name" and not own.carried
    assert both.verdict == half.verdict and both.carried == CLIENT
    for outside in (SERVER, EAVESDROPPER):  # they do not open counts
        assert not cells[IDENTITY.name, outside].tried and not cells[IDENTITY.name, outside].carried


def test_counts_that_add_nothing_do_not_hide_what_the_sets_tell(half: Finding) -> None:
    """A client is told the sets as well as the server."""
    nothing = replace(half, value=0.37, low=0.25, high=0.5)
    sets = replace(
        half, attack="a1", vantage="server", value=0.37, low=0.25, high=0.5, controls={"largest cluster": 0.2}
    )
    assert (nothing.verdict, sets.verdict) == ("no leak seen", "leaks")
    done = {Watch("counts_by_name", CLIENT): (nothing, ""), Watch("a1", SERVER): (sets, "")}
    cells = {(cell.row, cell.column): cell for cell in fill(Questions(Experiment.of(HALF)), done, {})}
    assert (cells[IDENTITY.name, CLIENT].verdict, cells[IDENTITY.name, CLIENT].carried) == ("leaks", SERVER)


@pytest.mark.parametrize(
    ("algorithm", "encryption"), [("mingledpie", "ckks"), ("ifca", "none"), ("routing", "threshold")]
)
def test_it_does_not_apply_where_nobody_is_told_members_or_counts(algorithm: str, encryption: str) -> None:
    questions = Questions(Experiment.of({**HALF, "algorithm": algorithm, "encryption": encryption}))
    assert "counts_by_name" not in {watch.attack for watch in questions.watches()}
    what = "message to a client carries the indicator of a cluster"
    if encryption != "threshold":
        what = "further question to a client carries the groups of clients"
    assert questions.unfit("counts_by_name", CLIENT) == f"no {what}, and that is all this attack reads"


def test_made_all_the_same_it_says_that_it_saw_nothing() -> None:
    finding = found(algorithm="mingledpie", encryption="ckks", training={"rounds": 1, "epochs": 1})
    assert finding.verdict == NOT_MEASURED and finding.used.startswith("nothing: no counts came")


def test_rounds_before_a_change_of_cluster_are_left_out() -> None:
    rng = np.random.default_rng(0)
    before = rng.integers(3, size=12)
    after = np.where(np.arange(12) < 4, (before + 1) % 3, before)
    rounds = []
    for true in (*[before] * 5, *[after] * 7):
        shown = (rng.random((3, 12)) < 0.5) | (np.arange(3)[:, None] == true)
        groups = shown & (rng.random(12) < 0.7)
        rounds.append(Opened(groups, groups.astype(float) @ np.eye(3)[true]))
    together, guesses = _newest_explained(rounds)
    assert together == 7 and guesses == dict(enumerate(after.tolist()))
    assert _newest_explained(rounds[:5])[0] == 5
