"""Averages that bear liars: every rule worked out by hand, where it holds and where it does not, and who cannot have it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from covey import Experiment, run
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.feddyn import FedDyn
from covey.algorithms.fedem import FedEM
from covey.algorithms.fedprox import FedProx
from covey.algorithms.ifca import IFCA
from covey.algorithms.robust.averages import averages
from covey.algorithms.robust.rules import Rule, aggregate, count_of, krum_scores, trimmed_mean
from covey.algorithms.sattler import Sattler
from covey.algorithms.scaffold import Scaffold
from covey.errors import CoveyError
from support.liars import Liars
from support.quadratic_clients import Bench, on_a_line, steps

FIVE = torch.tensor([[0.0, 10.0], [1.0, 9.0], [2.0, 8.0], [3.0, 7.0], [100.0, -90.0]])  # the last one lies


def by(rule: str, models: torch.Tensor, sent: list[float] | None = None) -> list[float]:
    return aggregate(Rule.of(rule), models, torch.tensor(sent or [0.0] * models.shape[1])).tolist()


def test_the_median_is_taken_of_every_coordinate() -> None:
    assert by("median", FIVE) == [2, 8]
    assert by("median", FIVE[:4]) == [1.5, 8.5]  # of four the two in the middle
    assert by("median", FIVE[:1]) == [0, 10]


def test_the_trimmed_mean_leaves_out_both_ends_of_every_coordinate() -> None:
    # A fifth of five is one: 0 and 100 go, (1 + 2 + 3) / 3; −90 and 10 go, (7 + 8 + 9) / 3.
    assert by("trimmed:0.2", FIVE) == [2, 8]
    assert by("trimmed:0.1", FIVE) == [2, 8]  # rounded up
    # Of three a share of .4 would be two at each end: one is left, the median.
    assert by("trimmed:0.4", FIVE[:3]) == [1, 9]


def test_columns_are_sorted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    models = torch.randn(7, 10, generator=torch.Generator().manual_seed(1))
    whole = trimmed_mean(models, 2)
    monkeypatch.setattr("covey.algorithms.robust.rules.COLUMNS", 3)
    assert torch.equal(trimmed_mean(models, 2), whole)


def test_krum_is_the_model_closest_to_its_neighbours() -> None:
    # On a line at 0, 1, 3, 4, 20, with f = 1: two neighbours each. Scores 1 + 9, 1 + 4, 1 + 4, 1 + 9, 16² + 17².
    line = torch.tensor([[0.0], [1.0], [3.0], [4.0], [20.0]])
    assert krum_scores(line, 1).tolist() == pytest.approx([10, 5, 5, 10, 545])
    assert by("krum:0.2", line) == [1]  # of two that score the same the first
    assert by("multikrum:0.2", line) == [2]  # the four others' mean
    assert by("krum:0.2", line[:1]) == [0] and by("multikrum:0.4", line[:2]) == [0]


def test_changes_are_clipped_to_a_bound_or_to_their_median() -> None:
    # From (1, 1) changes of (3, 4), norm 5, and (0, 1), norm 1. To 2.5: (1.5, 2) and (0, 1), mean (.75, 1.5).
    models = torch.tensor([[4.0, 5.0], [1.0, 2.0]])
    assert by("clipped:2.5", models, [1.0, 1.0]) == [1.75, 2.5]
    # Norms 1, 2 and 600: to 2, so −1, 2 and 2 from 10.
    assert by("clipped", torch.tensor([[9.0], [12.0], [610.0]]), [10.0]) == [11]
    assert by("clipped:5", torch.tensor([[10.0]]), [10.0]) == [10]  # no change at all


@pytest.mark.parametrize("rule", ["median", "trimmed:0.2", "krum:0.2", "multikrum:0.2", "clipped"])
def test_no_rule_follows_a_lie_however_large(rule: str) -> None:
    honest = torch.randn(8, 50, generator=torch.Generator().manual_seed(2))
    for size in (1e2, 1e6, 1e12):
        result = torch.tensor(by(rule, torch.cat([honest, torch.full((2, 50), size)])))
        assert bool(result.abs().max() < honest.abs().max() * 2), size


def test_a_share_is_rounded_up_and_not_by_floats() -> None:
    assert [count_of(0.1, n) for n in (1, 10, 11, 20, 30)] == [1, 1, 2, 2, 3]  # .1 · 30 is 3.0000000000000004


# ---------------------------------------------------------------- in the algorithms


def test_the_mean_is_what_it_was() -> None:
    models = [torch.tensor([1.0]), torch.tensor([5.0])]
    average = averages("mean", torch.zeros(1, 1))
    for model, weight in zip(models, (3.0, 1.0)):
        average.add(0, model, weight)
    assert average.means(torch.zeros(1, 1)).tolist() == [[2.0]]


CLIENTS = [on_a_line(0.0), on_a_line(4.0), on_a_line(100.0)]  # from 2, one step of ½: to 1, 3 and 51


@pytest.mark.parametrize("algorithm", [FedAvg, FedProx])
def test_one_model_by_the_median(algorithm: Any) -> None:
    bench = Bench(algorithm(weighting="clients", aggregation="median"), CLIENTS, [[2.0]], steps(1))
    assert bench.round().model.tolist() == [3.0]


def test_feddyn_by_the_median() -> None:
    # As with the mean, the median 3 in its place: h = 0 − 1 · (3/3) · (3 − 2) = −1, θ = 3 + 1.
    bench = Bench(FedDyn(alpha=1.0, aggregation="median"), CLIENTS, [[2.0]], steps(1))
    assert bench.round().sent.model.tolist() == [4.0]


def test_sattler_by_the_median() -> None:
    bench = Bench(Sattler(aggregation="median", eps1=1e-9, eps2=1e9), CLIENTS, [[2.0]], steps(1))
    assert bench.round().nodes[0].sent.model.tolist() == [3.0]


def test_scaffold_by_the_median() -> None:
    # Δy is −1, 1 and 49; Δc = −Δy / (1 · ½), so 2, −2 and −98: medians 1 and −2.
    after = Bench(Scaffold(aggregation="median"), CLIENTS, [[2.0]], steps(1)).round()
    assert after.model.tolist() == [3.0] and after.variate.tolist() == [-2.0]


def test_fedem_by_the_median() -> None:
    # One component has all the weight of every sample: as FedAvg.
    after = Bench(FedEM(weighting="clients", aggregation="median"), CLIENTS, [[2.0]], steps(1)).round()
    assert after.models.tolist() == [[3.0]]


def test_fedsoft_cannot_have_a_rule_and_says_why() -> None:
    with pytest.raises(CoveyError, match="states itself how much its model counts"):
        Experiment.of(algorithm={"name": "fedsoft", "aggregation": "median"})


def test_ifca_per_cluster() -> None:
    # Around 0: samples 1, 2 and −60 step to ½, 1, −30; around 100: samples 98 and 90 step to 99 and 95.
    clients = [on_a_line(1.0), on_a_line(98.0), on_a_line(2.0), on_a_line(90.0), on_a_line(-60.0)]
    bench = Bench(IFCA(aggregation="median"), clients, [[0.0], [100.0]], steps(1))
    assert bench.round().models.flatten().tolist() == [0.5, 97.0]
    nobody = Bench(IFCA(aggregation="krum"), clients[:1], [[0.0], [100.0]], steps(1))
    assert nobody.round().models.flatten().tolist() == [0.5, 100.0]  # whom nobody chose keeps its model


def test_shared_layers_by_the_rule_over_all_clusters() -> None:
    average = averages("median", torch.zeros(2, 1))
    for j, number in ((0, 1.0), (1, 2.0), (1, 900.0)):
        average.add(j, torch.tensor([number]))
    assert average.overall(torch.zeros(1)).tolist() == [2.0]
    assert averages("median", torch.zeros(2, 1)).overall(torch.tensor([7.0])).tolist() == [7.0]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("medain", "median"),
        ("median:2", "takes no number"),
        ("trimmed:0.5", "below 0"),
        ("krum:x", "share of liars"),
        ("clipped:-1", "norm above 0"),
        ("clipped:nan", "norm above 0"),
    ],
)
@pytest.mark.parametrize("algorithm", [FedAvg, FedProx, FedDyn, FedEM, IFCA, Sattler, Scaffold])
def test_what_is_no_rule_is_refused(algorithm: Any, text: str, words: str) -> None:
    with pytest.raises(CoveyError, match=rf"algorithm\.aggregation is .*{words}"):
        algorithm(aggregation=text)


@pytest.mark.parametrize("algorithm", [FedAvg, FedEM, FedProx, IFCA, Sattler])
def test_a_liar_does_not_choose_its_weight(algorithm: Any) -> None:
    with pytest.raises(CoveyError, match=r"set algorithm\.weighting = 'clients'"):
        algorithm(weighting="samples", aggregation="median")


@pytest.mark.parametrize("name", ["mingledpie", "routing", "fedcaprivacy"])
def test_a_server_of_ciphertexts_cannot_bound_anything(name: str) -> None:
    with pytest.raises(CoveyError, match=r"algorithm\.aggregation' cannot be set here: the server gets ciphertexts"):
        Experiment.of(algorithm={"name": name, "aggregation": "median"})


# ---------------------------------------------------------------- a run with liars


@pytest.fixture(scope="module")
def accuracy() -> Any:
    """Of ten rounds of FedAvg with so many liars among ten clients, who send ten times the opposite of what they learnt."""

    def of(aggregation: str, liars: int) -> float:
        experiment = Experiment.of(
            dataset="digits",
            clients=10,
            clusters=1,
            partition="iid",
            algorithm={"name": "fedavg", "weighting": "clients", "aggregation": aggregation},
            training={"rounds": 10, "epochs": 2, "lr": 0.1},
            evaluation={"every": 10},
            engine={"workers": 1},
        )
        result = run(experiment, attacks=[Liars(liars, 10.0)] if liars else [], quiet=True)
        return float(result.records[-1]["accuracy"]["client_mean"])

    return of


@pytest.mark.parametrize("rule", ["median", "trimmed:0.2", "krum:0.2", "multikrum:0.2", "clipped"])
def test_two_liars_of_ten_bring_the_mean_down_and_no_robust_rule(accuracy: Any, rule: str) -> None:
    assert accuracy("mean", 2) < 0.2
    assert accuracy(rule, 2) > 0.7


def test_more_liars_than_a_rule_trims_bring_it_down(accuracy: Any) -> None:
    assert accuracy("trimmed:0.2", 4) < 0.2
