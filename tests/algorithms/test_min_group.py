"""No client gets an average of fewer clients than agreed: by hand for averages, in runs where sums are sealed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from covey import Experiment, run
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.feddyn import FedDyn
from covey.algorithms.fedem import FedEM
from covey.algorithms.fedprox import FedProx
from covey.algorithms.fedsoft import FedSoft
from covey.algorithms.ifca import IFCA
from covey.algorithms.mingledpie.mingledpie import MingledPie, MingledSums
from covey.algorithms.pqfed.pqfed import PQFed
from covey.algorithms.routing import RoutedSums, Routing, _open_means, _seal_blocks
from covey.algorithms.sattler import Sattler
from covey.algorithms.scaffold import Scaffold
from covey.algorithms.sums.openings import Seals
from covey.attacks.contract import Finding, View
from covey.clustering.isolation import isolating, smallest
from covey.crypto.sealing import sealing
from covey.engines.prepare import prepare
from covey.errors import CoveyError
from support.quadratic_clients import Bench, on_a_line, steps

TWO = [on_a_line(0.0), on_a_line(4.0)]


@pytest.mark.parametrize("aggregation", ["mean", "median"])
@pytest.mark.parametrize("algorithm", [FedAvg, FedProx])
def test_one_model_stays_when_too_few_answer(algorithm: Any, aggregation: str) -> None:
    three = algorithm(weighting="clients", aggregation=aggregation, min_group=3)
    assert Bench(three, TWO, [[1.0]], steps(1)).round().model.tolist() == [1.0]
    assert Bench(three, [*TWO, on_a_line(8.0)], [[1.0]], steps(1)).round().model.tolist() == [2.5]


def test_feddyn_and_sattler_stay_too() -> None:
    assert Bench(FedDyn(min_group=3), TWO, [[1.0]], steps(1)).round().sent.model.tolist() == [1.0]
    assert Bench(Sattler(min_group=3), TWO, [[1.0]], steps(1)).round().nodes[0].sent.model.tolist() == [1.0]


def test_scaffold_stays_too() -> None:
    for least, model in ((1, 1.5), (3, 1.0)):  # from 1, one step of ½ towards 0 and 4: to ½ and 2½
        after = Bench(Scaffold(min_group=least), TWO, [[1.0]], steps(1)).round()
        assert after.model.tolist() == [model] and bool(after.variate.any()) == (least == 1)


def test_fedem_stays_too() -> None:
    for least in (1, 3):
        after = Bench(FedEM(min_group=least), TWO, [[1.0], [2.0]], steps(1)).round()
        assert (after.models.flatten().tolist() == [1.0, 2.0]) == (least == 3)


@pytest.mark.parametrize("selection", [0, 40])
def test_a_soft_centre_of_too_few_stays(selection: int) -> None:
    """Samples at 0 choose the first centre, those at 9 the second, whose model is nearly one client's alone."""
    clients = [on_a_line(0.0), on_a_line(0.2), on_a_line(0.1), on_a_line(9.0)]
    for least, moved in ((1, [True, True]), (2, [True, False]), (3, [True, False]), (4, [False, False])):
        soft = FedSoft(min_group=least, smoother=1e-9, selection=selection)
        models = Bench(soft, clients, [[1.0], [8.0]], steps(1)).round().models.flatten().tolist()
        assert [model != start for model, start in zip(models, (1.0, 8.0))] == moved


def test_what_runs_under_pqfed_has_its_groups() -> None:
    assert PQFed(under={"name": "fedavg", "min_group": 3}).under.min_group == 3
    with pytest.raises(CoveyError, match=r"'algorithm\.min_group' cannot be set here.*algorithm\.under\.min_group"):
        Experiment.of(algorithm={"name": "pqfed", "min_group": 3})
    with pytest.raises(CoveyError, match="trains two clients at a time"):
        PQFed(under={"name": "fedavg", "min_group": 3}, strategy="incremental")


def test_sattler_splits_off_nobody_alone() -> None:
    clients = [on_a_line(-1.0), on_a_line(3.0), on_a_line(3.0), on_a_line(3.0)]
    for least, nodes in ((1, 3), (2, 1)):  # changes −1, 1, 1, 1: the mean is ½, at rest, and the longest 1, which pulls
        bench = Bench(Sattler(eps1=0.9, eps2=0.95, gamma=0.0, min_group=least), clients, [[1.0]], steps(1))
        assert len(bench.round().nodes) == nodes


@pytest.mark.parametrize("aggregation", ["mean", "median"])
def test_ifca_keeps_the_model_of_a_cluster_that_too_few_chose(aggregation: str) -> None:
    clients = [on_a_line(1.0), on_a_line(98.0), on_a_line(2.0), on_a_line(3.0)]
    bench = Bench(IFCA(aggregation=aggregation, min_group=2), clients, [[0.0], [100.0]], steps(1))
    assert bench.round().models.flatten().tolist() == [1.0, 100.0]  # ½, 1 and 1½; and one client alone


SILOS: dict[str, Any] = {
    "dataset": "digits",
    "clients": 4,
    "clusters": 2,
    "encryption": "none",
    "partition": {"name": "label_sets", "public": 10},
    "training": {"rounds": 6, "epochs": 1},
    "engine": {"workers": 1},
}


class Reader:
    """An eavesdropper that writes down who showed what, and what was sent."""

    name, vantage = "reader", "eavesdropper"

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}
        self.sets: dict[int, dict[str, list[int]]] = {}
        self.sent: dict[int, list[int]] = {}

    def begin(self, knowledge: Any) -> None: ...

    def observe(self, view: View) -> None:
        if view.sender == "server":
            self.sent[view.round] = view.message.sizes if view.message.sums else []
        else:
            self.sets.setdefault(view.round, {})[view.sender] = view.message.identities

    def end_round(self, round: int) -> None: ...

    def finding(self, truth: Any) -> Finding:
        return Finding(self.name, self.vantage, "", 0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("least", [1, 3])
def test_mingled_sums_that_give_somebody_away_are_not_sent(least: int) -> None:
    reader = Reader()
    algorithm = {"name": "mingledpie", "threshold": 1, "min_group": least, "remember": "never"}
    result = run(Experiment.of(SILOS, algorithm=algorithm), attacks=[reader], quiet=True)
    shown = {r: np.array([[j in s for s in sets.values()] for j in range(2)]) for r, sets in reader.sets.items()}
    sent = [r for r in range(1, 6) if reader.sent[r + 1] == shown[r].sum(1).tolist()]
    given_away = [r for r in sent if isolating(shown[r]) or smallest(shown[r]) < least]
    assert bool(given_away) == (least == 1)
    withheld = [record["extra"].get("withheld") for record in result.records]
    assert any(withheld) if least == 3 else withheld == [None] * 6


def test_a_client_of_mingledpie_opens_no_small_sum() -> None:
    with pytest.raises(CoveyError, match=r"the sum of 2 clients' models, algorithm\.min_group is 3"):
        MingledPie(min_group=3)._refuse_small(MingledSums([b"", b""], [2, 5]))
    with pytest.raises(CoveyError, match="the sum of 1 clients'"):
        MingledPie(min_group=3)._refuse_small(MingledSums([b""], [4], [MingledSums([b""], [1])]))
    MingledPie(min_group=3)._refuse_small(MingledSums([b"", b""], [0, 5]))


def test_routed_means_of_too_few_are_not_used() -> None:
    _, _, setting = prepare(Experiment.of(SILOS, algorithm="routing"))
    keys = sealing.generate_keys("none", 16.0, 4)
    model, d = torch.ones(setting.start.shape[1]), setting.start.shape[1]
    mixer = sealing.mixer(sealing.sealer(keys).public(), 2, d + 1)
    for choice in (0, 0, 0, 1):
        for b, block in enumerate(_seal_blocks(Seals(keys), model, choice, 2)[0]):
            mixer.add(block, [b])
    sums = RoutedSums(mixer.sums())
    assert [_open_means(Seals(keys), sums, setting, least).known for least in (1, 2, 4)] == [
        [True, True],
        [True, False],
        [False, False],
    ]


@pytest.mark.parametrize(
    "algorithm", [FedAvg, FedProx, FedDyn, FedEM, FedSoft, IFCA, Sattler, Scaffold, MingledPie, Routing]
)
def test_a_group_has_somebody(algorithm: Any) -> None:
    with pytest.raises(CoveyError, match=r"algorithm\.min_group is 0"):
        algorithm(min_group=0)


def test_krum_would_hand_out_one_clients_model() -> None:
    with pytest.raises(CoveyError, match="multikrum"):
        IFCA(min_group=2, aggregation="krum")
    assert torch.is_tensor(Bench(IFCA(aggregation="krum"), TWO, [[1.0]], steps(1)).round().models)
