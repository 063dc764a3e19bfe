"""What an adversary is handed before the first round: its own parties' keys and data, and nobody else's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.observe import Observers
from covey.engines.prepare import prepare
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment

KEYS: dict[str, dict[str, Any]] = {
    "server": {"mixing": b"server's"},
    "csp": {"opening": b"csp's"},
    "clients": {"sealing": b"all clients'", "own": {i: {"signing": f"client {i}'s".encode()} for i in range(4)}},
}


@dataclass
class Recorder:
    vantage: str
    name: str = "recorder"
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge

    def observe(self, view: View) -> None:
        pass

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        return Finding(self.name, self.vantage, "", 0.0, 0.0, 0.0, 1.0)


@pytest.fixture(scope="module")
def prepared() -> Any:
    return prepare(Experiment.of(clients=4, clusters=2, partition={"name": "label_sets", "public": 10}))


def known(prepared: Any, vantage: str) -> Knowledge:
    federation, network, setting = prepared
    recorder = Recorder(vantage)
    Observers([recorder], setting, network, federation, KEYS)
    return recorder.knowledge


def own(i: int) -> dict[str, bytes]:
    return {"sealing": b"all clients'", "signing": f"client {i}'s".encode()}


@pytest.mark.parametrize(
    ("vantage", "keys"),
    [
        ("server", {"server": {"mixing": b"server's"}}),
        ("csp", {"csp": {"opening": b"csp's"}}),
        ("eavesdropper", {"eavesdropper": {}}),
        ("client:2", {"client:2": own(2)}),
        ("server+client:1", {"server": {"mixing": b"server's"}, "client:1": own(1)}),
        ("client:0+client:3", {"client:0": own(0), "client:3": own(3)}),
    ],
)
def test_a_vantage_has_the_keys_of_its_own_parties_and_no_other(
    prepared: Any, vantage: str, keys: dict[str, Any]
) -> None:
    assert known(prepared, vantage).keys == keys


def test_a_vantage_has_the_data_of_its_own_clients_and_no_other(prepared: Any) -> None:
    federation = prepared[0]
    public = sum(map(len, federation.public))
    assert len(known(prepared, "server").y) == len(known(prepared, "eavesdropper").y) == public
    seen = known(prepared, "client:2")
    assert set(seen.where) == {"public:0", "public:1", "own:2"}
    rows = federation.clients[2]
    np.testing.assert_array_equal(seen.x[seen.where["own:2"]], federation.dataset.x_train[rows])


@pytest.mark.parametrize("vantage", ["client:4", "client:x", "client:"])
def test_a_client_that_is_not_there_is_refused(prepared: Any, vantage: str) -> None:
    with pytest.raises(CoveyError, match="client"):
        known(prepared, vantage)


def test_a_finding_gets_the_meaning_that_its_attack_declares(prepared: Any) -> None:
    class Explained(Recorder):
        means = "nothing"

        def finding(self, truth: Truth) -> Finding:
            plain = super().finding(truth)
            return replace(plain, variants=[plain, replace(plain, means="its own")])

    federation, network, setting = prepared
    (finding,), failed = Observers([Explained("server")], setting, network, federation, KEYS).findings(None)  # type: ignore[arg-type]
    assert not failed and finding.means == "nothing"
    assert [variant.means for variant in finding.variants] == ["nothing", "its own"]
