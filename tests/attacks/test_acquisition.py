"""Colluding joiners against Sattler's tree: their walk by hand, and a real run in which they take every model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from covey.algorithms.contract import Client
from covey.algorithms.sattler import ClusterTree, Node, NodeModel
from covey.attacks import ATTACKS
from covey.attacks.acquisition import Acquisition, agreed
from covey.attacks.contract import Finding, Truth, View
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.work import Plan
from covey.rounds.loop import run

D = 12


def tree(shape: Any) -> ClusterTree:
    """A tree of nested pairs, e.g. ((0, 0), 0) for three leaves, with random models and sides."""
    draw = torch.Generator().manual_seed(5)
    nodes: list[Node] = []

    def grow(branch: Any) -> int:
        number = len(nodes)
        nodes.append(Node(NodeModel(torch.randn(D, generator=draw), number)))
        if isinstance(branch, tuple):
            children = (grow(branch[0]), grow(branch[1]))
            sides = torch.nn.functional.normalize(torch.randn(2, D, generator=draw), dim=1)
            nodes[number] = Node(nodes[number].sent, children, sides)
        return number

    grow(shape)
    return ClusterTree(tuple(nodes), {})


def walk(attack: Acquisition, grown: ClusterTree, colluder: int, update: Tensor, rounds: int = 6) -> list[int]:
    """The nodes that a colluder is sent, whose honest training always changes a model by `update`."""
    memory: dict[str, Any] = {}
    node, visited = 0, []
    for round in range(1, rounds + 1):
        visited.append(node)
        sent = grown.nodes[node].sent
        me = Client(colluder, round, 3, 1, Plan(), None, memory, {}, data=None)  # type: ignore[arg-type]
        turn = attack.client(me, sent)
        turn.send(None)
        with pytest.raises(StopIteration) as stop:
            turn.send(sent.model + update)
        node = grown.onward(node, stop.value.value.change)
    return visited


def reached(attack: Acquisition, grown: ClusterTree, updates: list[Tensor]) -> set[int]:
    leaves = {n for n, node in enumerate(grown.nodes) if node.children is None}
    return {walk(attack, grown, i, update)[-1] for i, update in zip(attack.replaces, updates)} & leaves


def test_four_colluders_take_the_four_leaves_of_an_even_tree() -> None:
    grown = tree(((0, 0), (0, 0)))
    draw = torch.Generator().manual_seed(1)
    own = [torch.randn(D, generator=draw) for _ in range(4)]
    assert len(reached(Acquisition(first=8, colluders=4), grown, own)) == 4
    assert len(reached(Acquisition(first=8, colluders=2), grown, own)) == 2


def test_turning_an_update_round_needs_updates_that_are_alike() -> None:
    # With one common update the antiparallel reaches every leaf; with honest joiners it reaches one.
    grown = tree(((0, 0), (0, 0)))
    same = [torch.randn(D, generator=torch.Generator().manual_seed(2))] * 4
    assert len(reached(Acquisition(colluders=4, probe="update"), grown, same)) == 4
    assert len(reached(Acquisition(colluders=4, probe="honest"), grown, same)) == 1


def test_a_long_tree_needs_more_colluders_than_it_has_leaves() -> None:
    # Leaves at depths 1, 2, 3, 3: code words of three bits hit the deepest ones only with 2^3 colluders.
    grown = tree((0, (0, (0, 0))))
    counts = [len(reached(Acquisition(colluders=n), grown, [torch.ones(D)] * n)) for n in range(1, 9)]
    assert counts == sorted(counts) and counts[-1] == 4


def test_a_colluder_probes_a_node_once_and_then_trains_honestly() -> None:
    attack, sent = Acquisition(first=1, colluders=2), NodeModel(torch.zeros(D), 4)
    memory: dict[str, Any] = {}
    update = torch.arange(D, dtype=torch.float32)
    said = []
    for round in (1, 2):
        turn = attack.client(Client(2, round, 0, 7, Plan(), None, memory, {}, data=None), sent)  # type: ignore[arg-type]
        turn.send(None)
        with pytest.raises(StopIteration) as stop:
            turn.send(update)
        said.append(stop.value.value)
    assert torch.equal(said[0].change, -agreed(0, 4, update))  # number 1: bit 0 is set
    assert float(said[0].change.norm()) == pytest.approx(float(update.norm()), rel=1e-5)
    assert torch.equal(said[1].change, update) and said[1].samples == 7


def test_the_share_counts_models_that_others_had_when_the_colluders_came() -> None:
    # Others stand at nodes 3, 4 and 5, then two of them at 4 and 6. Colluder 7 is sent 0, then 3; colluder 8 is sent 0, then 4.
    attack = Acquisition(first=7, colluders=2)
    attack.memory["received"] = {7: {1: 0, 2: 3}, 8: {1: 0, 2: 4}}
    notes = [
        {0: {"cluster": 3}, 1: {"cluster": 4}, 2: {"cluster": 5}, 7: {"cluster": 0}},
        {0: {"cluster": 4}, 1: {"cluster": 6}, 7: {"cluster": 3}},
    ]
    finding = attack.finding(Truth(None, notes))  # type: ignore[arg-type]
    assert finding.value == pytest.approx(2 / 3) and finding.chance == pytest.approx(1 / 3)
    assert finding.details["share by colluders"] == pytest.approx([1 / 3, 2 / 3])
    assert finding.details["share by round"] == pytest.approx({"1": 0.0, "2": 2 / 3})
    assert finding.details["sent at the end"] == 0.5
    attack.observe(View(3, "server", "client:8", NodeModel(torch.zeros(1), 5)))
    assert attack.finding(Truth(None, [*notes, notes[1]])).value == 1.0  # type: ignore[arg-type]


def joiners(probe: str, colluders: int) -> Finding:
    """Twelve clients of four label sets come apart in the first rounds; colluders, with data of all sets, join in round 7."""
    experiment = Experiment.of(
        dataset="digits",
        model="softmax",
        partition={"name": "label_sets", "samples": 50, "public": 0, "shuffled": True},
        algorithm={"name": "sattler", "eps1": 1.0, "eps2": 1.0, "gamma": 0.3},
        clients=12 + colluders,
        clusters=4,
        training={"rounds": 12, "epochs": 1, "batch_size": 10, "lr": 0.3},
        participation={"initial": 12, "join": colluders, "join_every": 6},
        evaluation={"every": 12},
        engine={"workers": 1},
        attacks=[{"name": "acquisition", "first": 12, "colluders": colluders, "probe": probe}],
    )
    return run(experiment, quiet=True).findings[0]


def test_eight_colluders_take_every_model_of_a_real_run_and_honest_joiners_do_not() -> None:
    finding = joiners("random", 8)
    assert finding.details["cluster models"] >= 3
    assert finding.value == 1.0 > joiners("honest", 8).value
    curve = finding.details["share by colluders"]
    assert curve == sorted(curve) and curve[0] == pytest.approx(1 / finding.details["cluster models"])


def test_it_is_registered_and_refuses_what_cannot_work() -> None:
    assert ATTACKS["acquisition"] is Acquisition
    with pytest.raises(CoveyError, match="colluders"):
        Acquisition(colluders=0)
    with pytest.raises(CoveyError, match="probe"):
        Acquisition(probe="loud")
    with pytest.raises(CoveyError, match="algorithm = 'sattler'"):
        run(Experiment.of(dataset="digits", training={"rounds": 1}, attacks=["acquisition"]), quiet=True)
