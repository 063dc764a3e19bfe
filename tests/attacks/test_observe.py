"""What an adversary is handed: its own parties' keys, data and messages, nobody else's; and what it does to them stays with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.ifca import IFCA, ClusterModels, ClusterUpdate
from covey.attacks.contract import Finding, Knowledge, Truth, View, sees
from covey.attacks.observe import Observers
from covey.engines.hosts.host import Host
from covey.engines.prepare import prepare
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.work import Compute
from covey.rounds.loop import run

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


# ---------------------------------------------------------------- attacks that cheat


SMALL: dict[str, Any] = {
    "algorithm": "ifca",
    "clients": 4,
    "clusters": 2,
    "partition": {"name": "label_sets", "public": 10},
    "training": {"rounds": 2, "epochs": 1},
}


class Vandal(Recorder):
    """Writes over everything that it is handed, wherever it can."""

    def begin(self, knowledge: Knowledge) -> None:
        knowledge.setting.start.zero_()
        knowledge.setting.personal.zero_()
        object.__setattr__(knowledge.algorithm, "weighting", "nonsense")
        object.__setattr__(knowledge.network, "classes", 3)

    def observe(self, view: View) -> None:
        message = view.message
        object.__setattr__(view, "message", None)
        if isinstance(message, ClusterModels):
            message.models.numpy()[:] = np.nan  # past the counter that torch keeps of changes in place
        else:
            message.model.data.fill_(1e9)
            object.__setattr__(message, "cluster", 0)


class Imposter(Recorder):
    """Says before the first round that it is a client, and afterwards that it is the server."""

    def begin(self, knowledge: Knowledge) -> None:
        super().begin(knowledge)
        self.vantage, self.senders = "server+eavesdropper", set[str]()

    def observe(self, view: View) -> None:
        self.senders.add(view.sender)


@dataclass
class Actor(Recorder):
    """Runs in clients' places, and spoils there what it can reach."""

    replaces: Any = 1

    def client(self, me: Any, message: Any) -> Any:
        yield Compute("spoil", lambda: message.models.fill_(5.0), shared=True)
        me.setting.start.fill_(5.0)
        reached = [cell.cell_contents for cell in me.data.__closure__ or ()]
        assert not any(isinstance(one, Host) for one in reached)
        samples, _ = me.data()
        assert len(samples) == me.samples
        self.sent = ClusterUpdate(torch.zeros_like(message.models[0]), 0, me.samples)
        return self.sent


def accuracies(attack: Any) -> list[Any]:
    result = run(Experiment.of(SMALL), attacks=[attack] if attack else [], quiet=True)
    return [record["accuracy"] for record in result.records]


def test_what_an_attack_does_to_its_views_reaches_nobody() -> None:
    assert accuracies(Vandal("server")) == accuracies(None)


def test_one_attack_does_not_change_what_another_sees() -> None:
    @dataclass
    class Sums(Recorder):
        def observe(self, view: View) -> None:
            model = view.message.models if isinstance(view.message, ClusterModels) else view.message.model
            self.memory[f"{view.round} {view.sender} {view.receiver}"] = float(model.sum())

    alone, beside = Sums("server"), Sums("server")
    run(Experiment.of(SMALL), attacks=[alone], quiet=True)
    run(Experiment.of(SMALL), attacks=[Vandal("server", name="vandal"), beside], quiet=True)
    assert alone.memory == beside.memory


def test_a_broadcast_is_copied_once_for_all_its_receivers(prepared: Any) -> None:
    class Keeper(Recorder):
        def observe(self, view: View) -> None:
            self.memory.setdefault("messages", []).append(view.message)

    federation, network, setting = prepared
    keeper = Keeper("server")
    observers = Observers([keeper], setting, network, federation, KEYS)
    broadcast = ClusterModels(torch.ones(2, 3))
    for i in range(4):
        assert observers.see(1, "server", f"client:{i}", broadcast) is broadcast
    assert len({id(m) for m in keeper.memory["messages"]}) == 1
    assert keeper.memory["messages"][0] is not broadcast


def test_a_vantage_is_what_it_was_before_the_first_round() -> None:
    imposter = Imposter("client:2")
    with pytest.raises(CoveyError, match=r"looked from 'server\+eavesdropper', but it was shown what 'client:2' sees"):
        run(Experiment.of(SMALL), attacks=[imposter], quiet=True)
    assert imposter.senders == {"server", "client:2"}


def test_a_party_that_the_protocol_has_not_is_refused_before_it_is_handed_keys(prepared: Any) -> None:
    federation, network, setting = prepared
    everyone = Recorder("clients")  # what the keys of all clients are filed under
    with pytest.raises(CoveyError, match="no party 'clients'"):
        Observers([everyone], setting, network, federation, KEYS, algorithm=IFCA())
    assert not hasattr(everyone, "knowledge")
    assert known(prepared, "clients").keys == {}


def test_only_a_whole_name_is_an_eavesdropper() -> None:
    assert not sees("noeavesdropper", View(1, "server", "client:0", None))
    assert sees("client:3+eavesdropper", View(1, "server", "client:0", None))


@pytest.mark.parametrize(("vantage", "replaces", "client"), [("server", 0, 0), ("client:1", (1, 2), 2)])
def test_an_attack_acts_for_its_own_clients_only(vantage: str, replaces: Any, client: int) -> None:
    with pytest.raises(CoveyError, match=f"in the place of client {client}, but looks from '{vantage}'"):
        run(Experiment.of(SMALL), attacks=[Actor(vantage, replaces=replaces)], quiet=True)


def test_two_attacks_do_not_act_for_one_client() -> None:
    two = [Actor("client:1"), Actor("client:1", name="other")]
    with pytest.raises(CoveyError, match="'recorder' and 'other' both run in the place of client 1"):
        run(Experiment.of(SMALL), attacks=two, quiet=True)


def test_an_acting_client_reaches_neither_the_host_nor_the_others() -> None:
    @dataclass
    class Honest(Actor):  # the same reply, and nothing spoilt
        def client(self, me: Any, message: Any) -> Any:
            return ClusterUpdate(torch.zeros_like(message.models[0]), 0, me.samples)
            yield

    assert accuracies(Actor("client:1")) == accuracies(Honest("client:1"))


def test_a_finding_stands_under_the_name_of_the_attack_that_made_it(prepared: Any) -> None:
    class Borrower(Recorder):
        def finding(self, truth: Truth) -> Finding:
            return replace(super().finding(truth), attack="a2")

    federation, network, setting = prepared
    (finding,), _ = Observers([Borrower("server")], setting, network, federation, KEYS).findings(None)  # type: ignore[arg-type]
    assert finding.attack == "recorder"
