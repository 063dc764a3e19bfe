"""The share of a property from plain uploads: the regression by hand, then clients with and without what stops it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.attacks.finding import NOT_MEASURED, NOTHING_SEEN, Finding
from covey.attacks.property.on_uploads import BY_LABELS, Ridge, UploadProperty, draw, fisher_interval, property_marks
from covey.audit.matrix import LEAKING
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.own.encoding import Feature
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import run

CLIENTS, EACH, PUBLIC = 16, 60, 300
TABLE: dict[str, Any] = {
    "algorithm": "fedavg",
    "model": "mlp",
    "clusters": 1,
    "training": {"rounds": 2, "epochs": 2, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
}


def people(shares: np.ndarray[Any, Any], mixed: float = 0.0) -> Federation:
    """Clients whose task is the sign of one input; the property moves others. `mixed`: how much it goes with the label."""
    rng = np.random.default_rng(0)
    held = np.concatenate([rng.random(EACH) < share for share in shares] + [rng.random(PUBLIC) < 0.5])
    y = np.where(rng.random(len(held)) < mixed, held, rng.integers(0, 2, len(held))).astype(np.int64)
    x = rng.normal(size=(len(held), 8)).astype(np.float32)
    x[:, 0] += 2 * y - 1
    x[:, 1:5] += 1.5 * (2 * held[:, None] - 1)
    rows = np.arange(len(held))
    clients = tuple(np.array_split(rows[: CLIENTS * EACH], CLIENTS))
    data = Dataset("people", x, y, x[-50:], y[-50:], ("no", "yes"), "real", {"tall": held.astype(np.uint8)})
    groups, same = np.zeros(50, np.int64), np.ones((CLIENTS, 1))
    return Federation(data, clients, None, groups, same, (rows[CLIENTS * EACH :],))


def found(federation: Federation, **changes: Any) -> Finding:
    attacks = [UploadProperty(shadows=32, **changes.pop("attack", {}))]
    content = run(Experiment.of(TABLE, **changes), attacks=attacks, federation=federation, quiet=True).attacks
    finding = Finding.of("upload_property", content["upload_property"])
    assert finding is not None
    return finding


SHARES = np.linspace(0.1, 0.9, CLIENTS)


@pytest.mark.parametrize("algorithm", ["fedavg", "ifca"])
def test_uploads_tell_the_share_of_a_property_that_labels_do_not(algorithm: str) -> None:
    told = found(people(SHARES), algorithm=algorithm)
    assert told.verdict in LEAKING and told.value > 0.7 and told.controls[BY_LABELS] < 0.6, told
    assert "tall = 1" in told.note


def test_noise_stops_it() -> None:
    assert found(people(SHARES), defence={"name": "ldp", "epsilon": 0.01}).verdict == NOTHING_SEEN


def test_where_the_labels_tell_as_much_nothing_is_added() -> None:
    both = found(people(SHARES, mixed=1.0))
    assert both.controls[BY_LABELS] > 0.9 and both.verdict == NOT_MEASURED  # nothing is left to find


def test_clients_that_are_alike_and_data_without_attributes_are_not_measured() -> None:
    federation = people(SHARES)
    everybody = replace(federation.dataset, attributes={"tall": np.arange(len(federation.dataset.y_train)) % 2})
    assert found(replace(federation, dataset=everybody)).verdict == NOT_MEASURED  # half of each
    plain = Experiment.of(TABLE, dataset="digits", clients=4, attacks=["upload_property"])
    nothing = Finding.of("upload_property", run(plain, quiet=True).attacks["upload_property"])
    assert nothing is not None and nothing.verdict == NOT_MEASURED and "no attribute" in nothing.used
    with pytest.raises(CoveyError, match="no attribute 'tal'"):
        found(federation, attack={"attribute": "tal"})


def test_columns_of_a_table_are_attributes() -> None:
    x = np.array([[0.0, 1.0, 0.0, 7.0], [0.0, 0.0, 1.0, 9.0]], np.float32)
    columns = (Feature("sex", ("f", "m"), missing=True), Feature("age"))
    x = np.stack([x[:, 1], x[:, 2], x[:, 0], x[:, 3]], 1)  # f, m, missing, age
    table = Dataset("t", x, np.zeros(2, np.int64), x[:0], np.zeros(0, np.int64), ("a", "b"), "real", columns=columns)
    marks = {name: property_marks(table, name, 1) for name in ("", "sex = m", "age")}
    told = {name: (m.name, m.values.tolist()) for name, m in marks.items() if m is not None}
    assert told == {
        "": ("sex = f", [True, False]),
        "sex = m": ("sex = m", [False, True]),
        "age": ("age above its median", [False, True]),
    }


def test_the_regression_and_the_draws_by_hand() -> None:
    rng = np.random.default_rng(0)
    shares, along = rng.random(20), rng.normal(size=50)
    updates = [torch.from_numpy(5 * (along + s * np.eye(50)[0] * 20 + 0.01 * rng.normal(size=50))) for s in shares]
    reader = Ridge.fitted(updates, shares)
    assert reader.explained > 0.95 and reader.read(torch.from_numpy(along + 0.5 * np.eye(50)[0] * 20)) == pytest.approx(
        0.5, abs=0.1
    )
    held = np.arange(100) < 40
    rows = draw(held, np.zeros(100, np.int64), 0.25, 20, rng)
    assert len(rows) == len(set(rows.tolist())) == 20 and held[rows].sum() == 5
    assert fisher_interval(0.9, 3) == (0.0, 1.0)
    low, high = fisher_interval(0.5, 28)
    assert low == pytest.approx(0.156, abs=0.01) and high == pytest.approx(0.737, abs=0.01)
