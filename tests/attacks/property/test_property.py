"""Property inference: its parts by hand, its traps, and runs on images with a planted property against their controls."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.contract import Client
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.ifca import IFCA, ClusterModels
from covey.attacks.contract import Finding, Truth, View
from covey.attacks.observe import Observers
from covey.attacks.property import pictures
from covey.attacks.property.active import ActivePropertyInference
from covey.attacks.property.groups import Groups
from covey.attacks.property.passive import PropertyInference
from covey.attacks.property.score import (
    OTHER,
    PLACEBO,
    PROPERTY,
    Evidence,
    Labels,
    auc,
    forest,
    interval,
    judge,
    labels_of,
    shuffled,
)
from covey.attacks.property.update_features import PIECE, features_by_piece, update_features
from covey.attacks.thinking import answered
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.partitions.property_split import PropertySplit
from covey.engines.prepare import prepare
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.learn.machine import Machine
from covey.learn.work import Job, Losses, Train
from covey.messages import decode, encode
from covey.randomness import generator, key
from covey.results.folder import MODELS, REPORT
from covey.rounds.loop import run


def planted(rows: int = 1200) -> Dataset:
    """Noisy 6 × 6 images: the label brightens the upper half or the lower, the property (a fifth of the rows) a corner.

    Pixel (5, 5) and pixel (5, 4) hold the row's number, so that a test can tell which rows somebody has.
    """
    random = np.random.default_rng(7)
    y = random.integers(0, 2, rows)
    mark = (random.random(rows) < 0.2).astype(np.uint8)
    x = random.normal(100, 40, (rows, 6, 6))
    x[y == 0, :3] += 30
    x[y == 1, 3:] += 30
    x[mark == 1, :2, :2] += 120
    x = x.clip(0, 255).astype(np.uint8)
    x[:, 5, 5], x[:, 5, 4] = np.arange(rows) // 256, np.arange(rows) % 256
    kept = rows * 5 // 6
    return Dataset("planted", x[:kept], y[:kept], x[kept:], y[kept:], ("up", "down"), attributes={"mark": mark[:kept]})


def numbers(x: Any) -> set[int]:
    return {int(a) * 256 + int(b) for a, b in zip(x[:, 5, 5], x[:, 5, 4])}


DATA = planted()
SPLIT = PropertySplit(attribute="mark", beta=10.0)


def experiment(algorithm: str = "fedavg", **more: Any) -> Experiment:
    table = {
        "dataset": "digits",  # not read: the federation is given
        "model": "fcnn",
        "algorithm": {"name": algorithm, "weighting": "clients"},
        "clients": 4,
        "clusters": 1 if algorithm == "fedavg" else 2,
        "training": {"rounds": 100, "steps": 1, "batch_size": 32, "lr": 0.1},
        "start": {"common": False},
        "exposure": {"every": 5, "choose_on": "batch"},
        "evaluation": {"every": 1000},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


def federation(seed: int = 0, placebo: bool = False, clients: int = 4) -> Federation:
    return replace(SPLIT, placebo=placebo).make(DATA, clients, 1, seed)


def found(chosen: Experiment, attack: PropertyInference | None = None, placebo: bool = False) -> tuple[Finding, float]:
    result = run(
        chosen,
        attacks=[attack or PropertyInference(rows=500, trees=20, remove_own=True)],
        federation=federation(chosen.seed, placebo),
        quiet=True,
    )
    return result.findings[0], result.accuracy["global"]


def begun(attack: PropertyInference, algorithm: Any, defence: Any = None) -> tuple[Observers, Federation]:
    cut = federation()
    _, network, setting = prepare(experiment(algorithm.name), cut)
    return Observers([attack], setting, network, cut, {}, algorithm=algorithm, defence=defence), cut


# What a client's round is drawn from


def client(cut: Federation, i: int, round: int) -> Client:
    _, _, setting = prepare(experiment(), cut)
    return Client(i, round, 0, len(cut.clients[i]), setting.plan, setting, {}, {}, data=None)  # type: ignore[arg-type]


def test_the_victim_trains_on_property_rows_in_every_fifth_round_and_only_there() -> None:
    from covey.experiment.exposure import Exposure, expose

    cut = federation()
    marked = set(np.flatnonzero(DATA.attributes["mark"]))
    for round, shown in ((4, 0), (5, 1), (6, 0), (10, 1)):
        me = client(cut, 0, round)
        (work,) = [next(expose(Exposure(every=5), cut, me, FedAvg().client(me, GlobalModel(torch.zeros(3)))))]
        rows = set(cut.clients[0][work.on.numpy()])  # type: ignore[union-attr]
        assert (rows <= marked) if shown else not (rows & marked)
        assert me.notes == {"property": shown}
    me = client(cut, 2, 5)
    work = next(expose(Exposure(every=5), cut, me, FedAvg().client(me, GlobalModel(torch.zeros(3)))))
    assert work.on is None and me.notes == {}  # type: ignore[union-attr]


@pytest.mark.parametrize("round", [4, 5])
def test_models_are_compared_on_the_very_batch_that_is_then_trained_on(round: int) -> None:
    from covey.experiment.exposure import Exposure, expose

    cut = federation()
    me = client(cut, 0, round)
    network = Network.of("fcnn", DATA)
    machine = Machine(network, DATA.x_train, DATA.y_train)
    models = torch.randn(2, network.d, generator=torch.Generator().manual_seed(0)) / 20
    turn = expose(Exposure(every=5, choose_on="batch"), cut, me, IFCA().client(me, ClusterModels(models)))
    asked = next(turn)
    assert isinstance(asked, Losses) and asked.on is not None and len(asked.on) == 32
    train = turn.send(torch.tensor([1.0, 2.0]))
    assert isinstance(train, Train)
    from covey.randomness import key

    rows = torch.from_numpy(cut.clients[0])
    job = key(me.seed, me.round, me.id, 0)  # as a host has it
    by_batch = replace(train, on=asked.on, plan=replace(train.plan, batch_size=0))
    drawn, again = machine.compute([Job(rows, job, train)])[0], machine.compute([Job(rows, job, by_batch)])[0]
    assert torch.allclose(drawn, again, atol=1e-6) and not torch.equal(drawn, train.start)


def test_a_schedule_without_a_victim_is_refused() -> None:
    chosen = Experiment.of(dataset="digits", exposure={"every": 5}, training={"rounds": 1}, engine={"workers": 1})
    with pytest.raises(CoveyError, match="partition with a victim"):
        run(chosen, quiet=True)
    with pytest.raises(CoveyError, match="choose_on"):
        Experiment.of(exposure={"choose_on": "mood"})


# Features


def test_features_are_pooled_magnitudes_of_unit_length_without_biases() -> None:
    # softmax on 2 × 2 images with 2 classes: weight [2, 4], bias [2]. Blocks of two inputs at 4 features.
    network = Network("softmax", (2, 2), 2)
    update = torch.tensor([[1.0, -3.0, 2.0, 0.0, 0.0, 0.0, -4.0, 1.0, 9.0, 9.0]])
    pooled = torch.tensor([[3.0, 2.0, 0.0, 4.0]]) / 29**0.5
    assert torch.allclose(update_features(network, update, limit=4), pooled)
    assert torch.allclose(update_features(network, -5 * update, limit=4), pooled)
    assert update_features(network, update, limit=100).shape == (1, 8)


def test_convolutions_keep_one_feature_for_each_pair_of_channels() -> None:
    network = Network("lfw_cnn", (16, 16, 3), 2)
    update = torch.zeros(1, network.d)
    network.unflatten(update)["body.0.weight"][0, 5, 1] = torch.tensor([[0.0, 1.0, 0.0], [0.0, -2.0, 0.0], [0.0] * 3])
    rows = update_features(network, update, limit=96)
    assert int((rows != 0).sum()) == 1 and rows[0, 5 * 3 + 1] == 1.0


@pytest.mark.parametrize("piece", [1, 500, 10**9])
def test_features_of_pieces_are_those_of_the_whole(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's magnitudes are pooled by all of its outputs, however few of them are in hand."""
    network = Network("lfw_cnn", (16, 16, 3), 2)
    updates = torch.randn(3, network.d, generator=torch.Generator().manual_seed(1))
    asked: list[tuple[int, int]] = []

    def some(low: int, high: int) -> torch.Tensor:
        asked.append((low, high))
        return updates[:, low:high]

    monkeypatch.setitem(PIECE, "cpu", piece)
    rows = features_by_piece(network, some, 3, updates.device)
    assert torch.equal(rows, _features_at_once(network, updates))
    assert asked == sorted(asked) and all(end <= low for (_, end), (low, _) in itertools.pairwise(asked))
    weights = [shape for shape in network.shapes.values() if len(shape) > 1]
    if piece == 1:  # an output at a time
        assert [high - low for low, high in asked] == [n for s in weights for n in [s[1:].numel()] * s[0]]
    elif piece == 500:
        assert max(high - low for low, high in asked) <= max(piece // 3, *(s[1:].numel() for s in weights))
    else:  # all layers at once, with the biases between them
        assert asked == [(0, network.d - 2)]


@pytest.mark.parametrize("limit", [96, 7 * 64])
def test_inputs_that_make_no_even_blocks_are_pooled_as_torch_does(limit: int) -> None:
    """64 outputs of 32 inputs in 7 blocks, for example: they overlap."""
    network = Network("lfw_cnn", (16, 16, 3), 2)
    updates = torch.randn(2, network.d, generator=torch.Generator().manual_seed(2))
    assert torch.equal(update_features(network, updates, limit), _features_at_once(network, updates, limit))


def _features_at_once(network: Network, updates: torch.Tensor, limit: int = 1024) -> torch.Tensor:
    parts = []
    for part in network.unflatten(updates).values():
        if part.dim() > 2:
            size = part.abs().flatten(3).amax(3) if part.dim() > 3 else part.abs()
            blocks = max(1, limit // size.shape[1])
            pooled = torch.nn.functional.adaptive_max_pool1d(size, blocks) if blocks < size.shape[2] else size
            parts.append(pooled.flatten(1))
    rows = torch.cat(parts, 1)
    return rows / rows.norm(dim=1, keepdim=True)


def test_groups_hold_one_update_of_the_kind_and_others() -> None:
    # Others are 10, 20, 30 and the marked ones 1000, 2000: groups of 2 are (1000 + other) / 2, or two others' mean.
    updates = np.array([[10.0], [20.0], [30.0], [1000.0], [2000.0]])
    columns = {OTHER: slice(0, 3), PROPERTY: slice(3, 5)}
    with_it = Groups.drawn(PROPERTY, 2, 50, 3, 2, generator(1)).weights(columns) @ updates
    without = Groups.drawn(OTHER, 2, 50, 3, 3, generator(1)).weights(columns) @ updates
    assert set(with_it.flatten().tolist()) == {505.0, 510.0, 515.0, 1005.0, 1010.0, 1015.0}
    assert {round(v) for v in without.flatten().tolist()} == {15, 20, 25}


# Scores


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40))
def test_auc_is_that_of_scikit_learn(pairs: list[tuple[int, bool]]) -> None:
    from sklearn.metrics import roc_auc_score

    score = np.array([p[0] for p in pairs], float)
    truth = np.array([p[1] for p in pairs], np.int64)
    if truth.min() == truth.max():
        assert np.isnan(auc(score, truth))
    else:
        assert auc(score, truth) == pytest.approx(roc_auc_score(truth, score))


def test_a_row_is_true_only_where_the_victim_was_with_its_property_batch() -> None:
    notes = [{0: {"cluster": 0, "property": 1}}, {0: {"cluster": 1, "property": 1}}, {0: {"cluster": 1, "property": 0}}]
    round, cluster = np.repeat([1, 2, 3], 2), np.tile([0, 1], 3)
    labels = labels_of(Truth(federation(), notes), round, cluster)  # type: ignore[arg-type]
    assert labels.property.tolist() == [1, 0, 0, 1, 0, 0]
    assert labels.victim.tolist() == [True, False, False, True, False, True]
    # Without clusters (FedAvg) there is one; a round in which the victim was away is no row of its.
    labels = labels_of(Truth(federation(), [{0: {"property": 1}}, {}]), np.array([1, 2]), np.array([0, 0]))
    assert (labels.property.tolist(), labels.victim.tolist()) == ([1, 0], [True, False])


def evidence(seed: int = 0) -> tuple[Evidence, Labels]:
    """Simulated rows whose first feature tells the property, observed ones likewise."""
    random = np.random.default_rng(seed)
    kind = np.arange(300) % 3
    simulated = random.normal(size=(300, 5))
    simulated[kind == PROPERTY, 0] += 3
    truth = (np.arange(100) % 5 == 0).astype(np.int64)
    observed = random.normal(size=(100, 5))
    observed[truth == 1, 0] += 3
    rows = Evidence(
        simulated,
        kind,
        np.full(300, 2),
        observed,
        np.arange(100),
        np.zeros(100, np.int64),
        observed[:0],
        np.full(100, np.nan),
    )
    return rows, Labels(truth, np.ones(100, bool))


def test_the_forest_is_fitted_on_simulated_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = evidence()
    fitted: list[Any] = []
    from sklearn.ensemble import RandomForestClassifier

    fit = RandomForestClassifier.fit

    def watch(self: Any, x: Any, y: Any) -> Any:
        fitted.append((x, y))
        return fit(self, x, y)

    monkeypatch.setattr(RandomForestClassifier, "fit", watch)
    scores = judge(rows, labels, seed=1)
    assert scores.auc > 0.9 and scores.low > 0.8
    assert abs(scores.controls["placebo property"] - 0.5) < 0.25 and abs(scores.controls["shuffled truth"] - 0.5) < 0.05
    known = {round(float(v), 6) for v in rows.simulated[:, 1]}
    for x, y in fitted:  # one forest for the property, one for the placebo: each saw 200 of the 300 simulated rows
        chosen = rows.simulated[(rows.kind == OTHER) | (rows.kind == (PROPERTY if x is fitted[0][0] else 2))]
        back = x[:, 1] * (chosen[:, 1].std() + 1e-8) + chosen[:, 1].mean()
        assert len(x) == len(y) == 200
        assert all(min(abs(v - k) for k in known) < 1e-4 for v in back)


@pytest.mark.parametrize("ties", [2, 1000])
def test_intervals_are_those_of_areas_one_by_one(ties: int) -> None:
    random = np.random.default_rng(ties)
    truth = (random.random(80) < 0.3).astype(np.int64)
    score = random.integers(0, ties, 80) / ties + 0.5 * truth  # the kinds tie, too
    groups, drawing = [score[truth == 1], score[truth == 0]], generator(5, "bootstrap")
    again = np.repeat([1, 0], [len(g) for g in groups])
    drawn = [auc(np.concatenate([g[drawing.integers(0, len(g), len(g))] for g in groups]), again) for _ in range(500)]
    assert interval(score, truth, 5) == tuple(np.quantile(drawn, [0.025, 0.975]))
    mixing = generator(5, "shuffle")
    assert shuffled(score, truth, 5) == np.mean([auc(score, mixing.permutation(truth)) for _ in range(50)])
    one_kind = np.ones(80, np.int64)
    assert interval(score, one_kind, 5) == (0.0, 1.0) and np.isnan(shuffled(score, one_kind, 5))


def test_observed_rows_do_not_change_what_the_forest_learnt() -> None:
    rows, _ = evidence()
    more = replace(rows, observed=np.concatenate([rows.observed, 50 + rows.observed]))
    assert np.array_equal(forest(rows, PROPERTY, 20, 0)(rows.observed), forest(more, PROPERTY, 20, 0)(rows.observed))


# What the attack has and does


def test_auxiliary_rows_are_the_attackers_own_and_none_of_the_victims() -> None:
    attack = PropertyInference()
    observers, cut = begun(attack, FedAvg())
    known = attack.knowledge
    assert numbers(known.x) == set(cut.clients[1].tolist())
    assert not numbers(known.x) & set(cut.clients[0].tolist())
    assert numbers(known.x[attack.pools[PROPERTY]]) == set(np.asarray(cut.notes["attacker_property"]).tolist())
    marks = known.attributes["mark"]
    assert marks[attack.pools[PROPERTY]].all() and not marks[attack.pools[OTHER]].any()
    assert set(attack.pools[2]) <= set(attack.pools[OTHER])
    assert len(observers.machines[0].samples.y) == len(cut.clients[1])


def test_every_cluster_is_simulated_from_its_own_model() -> None:
    attack = PropertyInference(simulated=2, rows=10**6, warm_up=1)
    begun(attack, IFCA())
    models = torch.randn(2, attack.knowledge.network.d)
    assert attack.observe(View(1, "server", "client:1", ClusterModels(models))) is None  # warm-up
    thinking = attack.observe(View(2, "server", "client:1", ClusterModels(models)))
    works = next(thinking)  # type: ignore[arg-type]
    assert isinstance(works, list) and len(works) == 2 * 3 * 2  # clusters × kinds × updates (a group is 2 as well)
    for j, half in enumerate((works[:6], works[6:])):
        assert all(isinstance(w, Train) and torch.equal(w.start, models[j]) for w in half)
    pools = [set(pool.tolist()) for pool in attack.pools.values()]
    assert all(set(w.on.tolist()) in pools for w in works)  # type: ignore[union-attr]


def test_rows_of_its_own_are_the_same_tensors_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a machine finds them on its device; and what is trained is what a choice among all its rows gives."""
    attack = PropertyInference(simulated=2, rows=10**6, warm_up=1)
    observers, _ = begun(attack, IFCA())
    machine, asked, trained = observers.machines[0], [], []

    def compute(jobs: list[Job]) -> list[torch.Tensor]:
        asked.append(jobs)
        trained.append(Machine.compute(machine, jobs))
        return trained[-1]

    monkeypatch.setattr(machine, "compute", compute)
    models = torch.randn(2, attack.knowledge.network.d, generator=torch.Generator().manual_seed(1)) / 20
    for round in (2, 3):
        answered(attack._simulate(round, models), machine, lambda step, i: key(step, i))
    assert [id(job.rows) for job in asked[0]] == [id(job.rows) for job in asked[1]]
    every, works = torch.arange(len(machine.samples.y)), next(attack._simulate(2, models))
    chosen = [Job(every, key(0, i), work) for i, work in enumerate(works)]  # type: ignore[arg-type]
    for got, want, start in zip(trained[0], Machine.compute(machine, chosen), models.repeat_interleave(6, 0)):
        assert torch.equal(got, want) and not torch.equal(got, start)


def test_choices_with_something_for_every_row_stay_choices() -> None:
    attack = PropertyInference()
    observers, _ = begun(attack, FedAvg())
    machine, network = observers.machines[0], attack.knowledge.network
    start, on = torch.zeros(network.d), torch.arange(0, 20, 2)
    weights = torch.arange(len(machine.samples.y)) % 4 / 2

    def thinking() -> Any:
        return (yield Train(start, attack.knowledge.setting.plan, on=on, weights=weights))

    got = answered(thinking(), machine, lambda step, i: key(step, i))
    work = Train(start, attack.knowledge.setting.plan, weights=weights[on])
    assert torch.equal(got, machine.compute([Job(on, key(0, 0), work)])[0]) and not torch.equal(got, start)


@pytest.mark.parametrize(("remove_own", "unused"), [(False, 2), (True, 3)])
def test_simulated_rows_are_features_of_groups_and_of_the_placebo_only_those_that_are_scored(
    remove_own: bool, unused: int
) -> None:
    attack = PropertyInference(simulated=2, aggregates=3, group=3, rows=10**6, warm_up=1, remove_own=remove_own)
    begun(attack, IFCA())
    network, seed = attack.knowledge.network, attack.knowledge.setting.seed
    models, *moves = torch.randn(8, 2, network.d, generator=torch.Generator().manual_seed(5))
    updates = torch.stack(moves, 1)  # [k, 3 others + 2 with the property + 2 placebos, d]
    thinking: Any = attack._simulate(2, models)
    assert len(next(thinking)) == 2 * 7
    with pytest.raises(StopIteration):
        thinking.send(list((models[:, None] + updates).flatten(0, 1)))
    # All groups are drawn, also those that nobody learns from: what is drawn behind them stays what it was.
    random, expected = generator(seed, 2, "groups", "property"), {}
    parts = dict(zip((OTHER, PROPERTY, PLACEBO), torch.split(updates, [3, 2, 2], dim=1)))
    for kind, own in parts.items():
        for size in (3, 2):
            groups = Groups.drawn(kind, size, 3, 3, own.shape[1], random)
            means = torch.from_numpy(groups.shares) @ parts[OTHER]  # [k, groups, d]
            means = means if groups.chosen is None else means + own[:, groups.chosen] / size
            expected[kind, size] = update_features(network, means.flatten(0, 1))
    del expected[PLACEBO, unused]
    assert np.allclose(attack.memory["simulated"][0], torch.cat(list(expected.values())), atol=1e-3)
    kept = zip(attack.memory["kind"][0].tolist(), attack.memory["size"][0].tolist())
    assert list(kept) == [pair for pair in expected for _ in range(6)]


def test_an_observed_row_is_the_update_of_the_round_before() -> None:
    attack = PropertyInference(rows=1, warm_up=1)
    begun(attack, FedAvg())
    d = attack.knowledge.network.d
    first, second = torch.randn(2, d, generator=torch.Generator().manual_seed(3))
    for round, model in ((2, first), (3, second), (5, first)):
        attack._compare(round, model[None])
        attack.memory["before"] = (round, model[None])
    assert [r.tolist() for r in attack.memory["round"]] == [[2]]  # round 4 was missed: no row for 3 or 4
    expected = update_features(attack.knowledge.network, (second - first)[None])
    assert np.allclose(attack.memory["observed"][0], expected, atol=1e-3)


def test_less_its_own_share_an_update_is_that_of_the_others() -> None:
    attack = PropertyInference(rows=1, warm_up=1)
    begun(attack, FedAvg())
    network = attack.knowledge.network
    start, *moves = torch.randn(5, network.d, generator=torch.Generator().manual_seed(4))  # of four clients, ours first
    attack.observe(View(2, "server", "client:1", GlobalModel(start)))
    attack.observe(View(2, "client:1", "server", LocalModel(start + moves[0], 10)))
    attack.observe(View(3, "server", "client:1", GlobalModel(start + sum(moves) / 4)))  # type: ignore[operator]
    with_own = update_features(network, sum(moves)[None])  # type: ignore[index]
    without = update_features(network, sum(moves[1:])[None])  # type: ignore[index]
    assert np.allclose(attack.memory["observed"][0], with_own, atol=1e-3)
    assert np.allclose(attack.memory["without_own"][0], without, atol=1e-3)


def test_each_way_of_scoring_has_the_forest_of_its_group_size() -> None:
    rows, labels = evidence()
    # Groups of 2 tell by the first feature, groups of 1 by the second; so do observed rows with and without its own upload.
    swapped = rows.simulated[:, [1, 0, 2, 3, 4]]
    both = replace(
        rows,
        simulated=np.concatenate([rows.simulated, swapped]),
        kind=np.tile(rows.kind, 2),
        size=np.repeat([2, 1], len(rows.kind)),
        without_own=rows.observed[:, [1, 0, 2, 3, 4]],
    )
    plain, removed = judge(both, labels, seed=1), judge(both, labels, seed=1, remove_own=True)
    assert min(plain.auc, removed.auc) > 0.9
    assert plain.details["own contribution removed"] == removed.auc
    assert removed.details["own contribution kept"] == plain.auc
    assert plain.details["rows the forest learnt from"] == removed.details["rows the forest learnt from"] == 200
    wrong = forest(both, PROPERTY, 40, 1, size=2)(both.without_own)
    assert auc(wrong, labels.property) < 0.7


def test_what_it_keeps_is_features_and_one_past_round() -> None:
    attack = PropertyInference(rows=600, trees=10)
    run(experiment(), attacks=[attack], federation=federation(), quiet=True)
    d = attack.knowledge.network.d
    whole = [a for a in _arrays(attack.memory) if a.shape[-1] == d]
    assert sum(a.size if isinstance(a, np.ndarray) else a.numel() for a in whole) <= 3 * d
    assert len(whole) <= 3  # the last models, the last update, its own last upload
    assert len(np.concatenate(attack.memory["kind"])) < 2 * 900  # of both group sizes
    again = PropertyInference(rows=600, trees=10, memory=decode(encode(attack.memory)))
    assert np.array_equal(again.evidence().observed, attack.evidence().observed)


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [a for v in value.values() for a in _arrays(v)]
    if isinstance(value, list | tuple):
        return [a for v in value for a in _arrays(v)]
    return [value] if isinstance(value, np.ndarray | torch.Tensor) else []


def test_the_defence_is_simulated_too() -> None:
    from covey.defences.dp_sgd import DPSGD

    attack = PropertyInference(rows=10**6, warm_up=1)
    begun(attack, FedAvg(), DPSGD(clip=0.5, noise=0.2))
    thinking = attack.observe(View(2, "server", "client:1", GlobalModel(torch.zeros(attack.knowledge.network.d))))
    works = next(thinking)  # type: ignore[arg-type]
    assert {(w.plan.clip, w.plan.noise) for w in works} == {(0.5, 0.2)}  # type: ignore[union-attr]


# The active attack


def turn_of(attack: ActivePropertyInference, model: torch.Tensor, memory: dict[str, Any]) -> tuple[Train, Any]:
    """One turn of the attacker, in which training adds 1 to every parameter and 2 to the head."""
    setting = attack.knowledge.setting
    me = Client(1, 5, 0, len(attack.marks), setting.plan, setting, memory, {}, data=None)  # type: ignore[arg-type]
    turn = attack.client(me, GlobalModel(model))
    (work,) = next(turn)  # type: ignore[misc]
    assert isinstance(work, Train)
    change = torch.ones_like(work.start)
    change[len(model) :] = 2
    with pytest.raises(StopIteration) as stop:
        turn.send([work.start + change])
    return work, stop.value.value


def test_the_active_attacker_scales_up_and_keeps_its_head() -> None:
    attack = ActivePropertyInference(gamma=5.0, alpha=0.9)
    _, cut = begun(attack, FedAvg())
    d, size = attack.knowledge.network.d, attack.knowledge.network.head_size(2)
    model, memory = torch.arange(d, dtype=torch.float32), dict[str, Any]()
    work, reply = turn_of(attack, model, memory)
    assert len(work.start) == d + size and work.head is not None and work.head.share == 0.9
    marks = np.isin(cut.clients[1], np.asarray(cut.notes["attacker_property"]))
    assert work.head.labels.tolist() == marks.astype(int).tolist()
    assert torch.equal(reply.model, model + 5)  # w + γ (w_local − w), without the head
    assert memory["head"].tolist() == [2.0] * size
    work, _ = turn_of(attack, model, memory)
    assert work.start[d:].tolist() == [2.0] * size
    assert attack.replaces == 1


def test_without_its_head_and_scale_the_active_attacker_is_an_honest_client() -> None:
    short = experiment("ifca", training={"rounds": 6})
    honest = run(short, federation=federation(), quiet=True).state.models
    attack = ActivePropertyInference(alpha=1.0, gamma=1.0, rows=500, trees=5, warm_up=1)
    active = run(short, attacks=[attack], federation=federation(), quiet=True).state.models
    bent = run(short, attacks=[replace(attack, gamma=5.0, memory={})], federation=federation(), quiet=True).state.models
    assert torch.allclose(honest, active, atol=1e-5)
    assert not torch.allclose(honest, bent, atol=1e-3)


# Runs


@pytest.fixture
def few_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    """For who does not look at the map, which takes longer to draw than all the rest."""
    monkeypatch.setattr(pictures, "DOTS", 20)


@pytest.mark.usefixtures("few_dots")
def test_a_planted_property_leaks_and_its_controls_do_not() -> None:
    runs = [found(experiment(seed=seed)) for seed in range(2)]
    kept = [f.details["own contribution kept"] for f, _ in runs]
    assert np.mean([f.value for f, _ in runs]) > 0.8 and np.mean(kept) > 0.7
    assert np.mean([f.value for f, _ in runs]) > np.mean(kept)
    assert abs(np.mean([f.controls["placebo property"] for f, _ in runs]) - 0.5) < 0.15
    assert np.mean([accuracy for _, accuracy in runs]) > 0.75  # the main task is learnt
    placebos = [found(experiment(seed=seed), placebo=True)[0].value for seed in range(2)]
    assert abs(np.mean(placebos) - 0.5) < 0.15


@pytest.mark.usefixtures("few_dots")
def test_noise_on_clients_hides_it() -> None:
    defence = {"name": "dp_sgd", "clip": 0.5, "noise": 0.5}
    values = [found(experiment(seed=seed, defence=defence, training={"rounds": 60}))[0].value for seed in range(2)]
    assert abs(np.mean(values) - 0.5) < 0.15


def test_it_works_on_clusters_and_says_what_it_assumed() -> None:
    finding, _ = found(experiment("ifca"), ActivePropertyInference(rows=900, trees=20, gamma=5.0))
    assert finding.value > 0.6 and finding.chance == 0.5 and finding.metric == "AUC"
    assert finding.details["simulated group"] == 2 and finding.details["first round scored"] == 11
    assert finding.details["of them with the property"] <= 18
    kinds = [p["kind"] for p in finding.details["pictures"]]
    assert kinds == ["scatter", "histogram"]
    dots = finding.details["pictures"][0]
    assert len(dots["x"]) == len(dots["y"]) == len(dots["label"]) == min(250, finding.details["rows scored"])
    encode(finding)


def test_a_run_for_its_figures_alone_finds_the_same_and_draws_nothing(tmp_path: Path) -> None:
    chosen, ended = experiment(training={"rounds": 30}), []
    for figures_only in (False, True):
        attack, out = PropertyInference(rows=100, trees=5), tmp_path / str(figures_only)
        ended.append(
            run(
                chosen,
                attacks=[attack],
                federation=federation(),
                quiet=True,
                out=out,
                figures_only=figures_only,
            )
        )
        assert (out / "result.json").is_file()
        assert [(out / name).exists() for name in (REPORT, MODELS)] == [not figures_only] * 2
    (seen,), (unseen,) = (result.findings for result in ended)
    assert "pictures" not in unseen.details
    assert {**unseen.details, "pictures": seen.details["pictures"]} == seen.details
    assert replace(unseen, details={}) == replace(seen, details={})


def test_misuse_is_refused() -> None:
    with pytest.raises(CoveyError, match="at least 1"):
        PropertyInference(aggregates=0)
    with pytest.raises(CoveyError, match="one client"):
        PropertyInference(vantage="server")
    with pytest.raises(CoveyError, match="gamma"):
        ActivePropertyInference(gamma=0.0)
    with pytest.raises(CoveyError, match="partition = 'property'"):
        run(Experiment.of(dataset="digits", training={"rounds": 1}, attacks=["property"]), quiet=True)
    with pytest.raises(CoveyError, match="too few rounds"):
        run(experiment(training={"rounds": 1}), attacks=[PropertyInference()], federation=federation(), quiet=True)


@pytest.mark.slow
def test_race_leaks_from_a_gender_classifier_on_real_faces() -> None:
    """A small network and few rounds, for a CPU: minutes. The paper's network is in `covey reproduce property_inference`."""
    if not os.environ.get("COVEY_DATA"):
        pytest.skip("COVEY_DATA is not set: UTKFace is read from there")
    findings = []
    for seed in range(2):
        faces = experiment(
            dataset="utkface:gender",
            model="cnn",
            clients=5,
            seed=seed,
            partition={"name": "property", "attribute": "black", "beta": 10.0},
            training={"rounds": 400, "lr": 0.05},
        )
        result = run(faces, attacks=[PropertyInference(rows=1500, remove_own=True)], quiet=True)
        findings.append(result.findings[0])
        assert result.accuracy["global"] > 0.6
    assert np.mean([f.value for f in findings]) > 0.6
    assert abs(np.mean([f.controls["placebo property"] for f in findings]) - 0.5) < 0.15
