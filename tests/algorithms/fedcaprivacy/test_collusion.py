"""BS and CSP together: what they read is what participants got and sent, and attacks on plain uploads work there."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from covey import roles
from covey.attacks import ATTACKS
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.attacks.finding import NOTHING_SEEN
from covey.audit.matrix import GIVEN, LEAKING, Watch, fill
from covey.audit.questions import Questions
from covey.experiment.experiment import Experiment
from covey.leaks import ISOLATION, LABELS, LINKAGE, MEMBERSHIP, SERVER, SERVERS
from covey.rounds.loop import run

TABLE: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "fedcaprivacy", "every": 2, "median": True},
    "clients": 12,
    "clusters": 2,
    "partition": {"name": "dirichlet", "beta": 0.3, "public": 100},
    "training": {"rounds": 4, "epochs": 1, "batch_size": 10, "lr": 0.1},
    "evaluation": {"every": 50, "samples": 50},
    "engine": {"workers": 1},
}


class Readers:
    """Keeps what two colluding servers read, and what participant 3 gets out of its packages with its own key."""

    name: ClassVar[str] = "readers"

    def __init__(self, vantage: str) -> None:
        self.vantage, self.memory = vantage, dict[str, Any]()
        self.kept: dict[tuple[int, str], torch.Tensor] = {}

    def begin(self, knowledge: Knowledge) -> None:
        self.known = knowledge

    def observe(self, view: View) -> None:
        model = roles.first(view.message, roles.Model)
        if model is not None and "client:3" in (view.sender, view.receiver):
            self.kept[view.round, view.sender] = model.clone()

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        return Finding(self.name, self.vantage, "nothing", 0.5, 0.5, 0.4, 0.6)


@pytest.mark.parametrize("mitigation", ["none", "sketch"])
def test_they_read_what_a_participant_began_from_and_what_it_sent(mitigation: str) -> None:
    experiment = Experiment.of(TABLE, algorithm={"mitigation": mitigation})
    seen, begun = Readers("bs+csp"), dict[int, torch.Tensor]()
    algorithm = experiment.algorithm
    own = algorithm.client

    def client(me: Any, message: Any) -> Any:
        turn, answer = own(me, message), None
        while True:
            try:
                request = turn.send(answer)
            except StopIteration as stop:
                return stop.value
            if me.id == 3 and hasattr(request, "start"):
                begun[me.round] = request.start.clone()
            answer = yield request

    object.__setattr__(algorithm, "client", client)  # it is frozen: a test listens where no party could
    run(experiment, attacks=[seen], quiet=True)
    for round in range(1, 5):
        assert float((seen.kept[round, "bs"] - begun[round]).abs().max()) < 1e-5
        assert float((seen.kept[round, "client:3"] - begun[round]).abs().max()) > 1e-3  # it has trained


def test_attacks_on_plain_uploads_work_there_and_nowhere_else() -> None:
    names = ["label_shares", "rejoining"]
    together = Experiment.of({**TABLE, "attacks": [{"name": n, "vantage": "bs+csp"} for n in names]})
    findings = {n: Finding.of(n, entry) for n, entry in run(together, quiet=True).attacks.items()}
    assert all(one is not None and one.verdict in LEAKING for one in findings.values()), findings
    alone = Experiment.of({**TABLE, "attacks": [{"name": "rejoining", "vantage": "bs"}]})
    silent = Finding.of("rejoining", run(alone, quiet=True).attacks["rejoining"])
    assert silent is not None and silent.used.startswith("nothing")


def test_noise_on_the_models_stops_them_as_elsewhere() -> None:
    noisy = {"defence": {"name": "ldp", "epsilon": 0.01}, "attacks": [{"name": "rejoining", "vantage": "bs+csp"}]}
    hidden = Finding.of("rejoining", run(Experiment.of(TABLE, **noisy), quiet=True).attacks["rejoining"])
    assert hidden is not None and hidden.verdict == NOTHING_SEEN


def test_an_audit_asks_both_servers_by_declaration() -> None:
    questions = Questions(Experiment.of(TABLE))
    watched = {watch.attack for watch in questions.watches() if watch.column == SERVERS}
    assert {"label_shares", "lira", "first_layer", "rejoining"} <= watched
    assert Watch("label_shares", SERVER) not in set(questions.watches())
    cells = {(c.row, c.column): c for c in fill(questions, {}, {})}
    assert cells[ISOLATION.name, SERVERS].verdict == GIVEN
    assert cells[LINKAGE.name, SERVERS].carried == SERVER  # it shuffles the rows itself
    for one_server in ("ifca", "mingledpie"):
        other = Questions(Experiment.of(TABLE, algorithm={"name": one_server}))
        assert {cell.verdict for cell in fill(other, {}, {}) if cell.column == SERVERS} == {"nobody here"}
    assert questions.column_of("bs+csp") == SERVERS and questions.column_of("csp") != SERVERS
    assert {row.name for row in (LABELS, MEMBERSHIP)} <= {row.name for row in questions.rows} and "lira" in ATTACKS
