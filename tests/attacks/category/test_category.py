"""Category inference: every step of the simulation against direct computation, the controls against what they must ignore."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.ifca import ClusterModels
from covey.attacks import ATTACKS
from covey.attacks.category.category import CategoryInference
from covey.attacks.category.multilabel import fit
from covey.attacks.category.rows import Features, Simulated, Subsets, draw_subsets, filed_alone, group, simulate
from covey.attacks.category.scores import (
    by_round_and_cluster,
    coin,
    describe,
    f1_of,
    in_words,
    leak,
    per_pair,
    resamples,
    score,
)
from covey.attacks.contract import Truth
from covey.attacks.observe import Observers
from covey.defences.ldp import LDP
from covey.engines.prepare import prepare
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.machine import Machine
from covey.learn.work import Job, Plan, SampleGradients, Train
from covey.randomness import normals
from covey.rounds.loop import run

STEP = Plan(lr=0.1, epochs=0, steps=1, batch_size=0)
QUICK = {"every": 2, "subsets": 200, "rows": 80}


def setting(**more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "model": "fcnn_leaky",
        "algorithm": "ifca",
        "clients": 4,
        "clusters": 2,
        "partition": {"name": "shards", "s": 2, "public": 80},
        "start": {"common": False, "pretrain_epochs": 0},
        "training": {"rounds": 6, "steps": 1, "epochs": 0, "batch_size": 100, "lr": 0.2},
        "evaluation": {"every": 50, "samples": 50},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


@pytest.fixture(scope="module")
def prepared() -> Any:
    return prepare(setting())


def answered(thinking: Any, machine: Machine) -> Any:
    """Runs an attack's coroutine on a machine; what it returns."""
    rows, answer = torch.arange(len(machine.samples.y)), None
    try:
        while True:
            (answer,) = machine.compute([Job(rows, 0, thinking.send(answer))])
    except StopIteration as stop:
        return stop.value


def features(kind: str, network: Any, size: int = 64) -> Features:
    return Features(kind, network.d, network.classes, network.head_size(network.classes), size, key=9)


@pytest.mark.parametrize("kind", ["output", "update", "bias"])
def test_updates_of_subsets_are_means_of_updates_of_samples(prepared: Any, kind: str) -> None:
    """The identity that makes ten thousand subsets cheap, against one real step on each subset."""
    federation, network, common = prepared
    rows = federation.public[0]
    machine = Machine(network, federation.dataset.x_train[rows], federation.dataset.y_train[rows])
    read, model = features(kind, network), common.start[0]
    simulated = answered(simulate(model, torch.arange(len(rows)), STEP.lr, read, True), machine)
    for subset in ([3], [0, 5, 7, 40], [2, 2, 9]):
        job = Job(torch.arange(len(rows)), 0, Train(model, STEP, on=torch.tensor(subset)))
        direct = read.of(machine.compute([job])[0][None] - model)[0]
        torch.testing.assert_close(simulated.features[subset].mean(0), direct, rtol=1e-3, atol=1e-6)


def test_no_full_set_of_updates_is_held(prepared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little fits the memory, the result is the same."""
    from covey.attacks.category import rows as category_rows

    federation, network, common = prepared
    rows = federation.public[0]
    machine = Machine(network, federation.dataset.x_train[rows], federation.dataset.y_train[rows])
    read, at = features("update", network), torch.arange(len(rows))
    whole = answered(simulate(common.start[1], at, STEP.lr, read, True), machine)
    monkeypatch.setitem(category_rows.AT_ONCE, "cpu", 4.0 * network.d * 7)
    asked = list(iterate(simulate(common.start[1], at, STEP.lr, read, True), machine))
    sizes = [len(request.on) for request in asked if isinstance(request, SampleGradients)]
    assert max(sizes) == 7 and sum(sizes) == len(rows)
    again = answered(simulate(common.start[1], at, STEP.lr, read, True), machine)
    torch.testing.assert_close(whole.features, again.features, rtol=1e-4, atol=1e-6)


def iterate(thinking: Any, machine: Machine) -> Any:
    rows, request = torch.arange(len(machine.samples.y)), thinking.send(None)
    while True:
        yield request
        try:
            request = thinking.send(machine.compute([Job(rows, 0, request)])[0])
        except StopIteration:
            return


def test_features_are_linear_and_know_their_noise(prepared: Any) -> None:
    network = prepared[1]
    noise = normals(range(400), network.d)
    for kind in ("output", "update", "bias"):
        read = features(kind, network)
        assert torch.allclose(
            read.of(noise[:1] + 2 * noise[1:2]), read.of(noise[:1]) + 2 * read.of(noise[1:2]), atol=1e-3
        )
        ratio = read.of(noise).std(0) / read.spread(noise.device)
        assert float(ratio.min()) > 0.8 and float(ratio.max()) < 1.2
    assert torch.equal(features("bias", network).of(noise), noise[:, -10:])
    # A projection keeps lengths in expectation: over many vectors to a few per cent.
    short = features("update", network, 256).of(noise)
    assert float(short.square().sum() / noise.square().sum()) == pytest.approx(1, abs=0.05)


def test_subsets_are_filed_by_their_mean_loss() -> None:
    subsets = Subsets(np.array([[0, 1], [1, 2], [2, 2]]), np.zeros((3, 2), bool))
    losses = np.array([[1.0, 2.0, 9.0], [2.0, 2.0, 3.0]])  # means: (1.5, 2), (5.5, 2.5), (9, 3)
    assert subsets.filed(losses).tolist() == [0, 1, 1]


def test_subsets_carry_the_categories_of_their_samples() -> None:
    y = np.array([0, 0, 2, 1])
    subsets = draw_subsets(y, 3, 200, 2, np.random.default_rng(0))
    assert subsets.members.shape == (200, 2)
    for members, label in zip(subsets.members, subsets.labels):
        assert set(np.flatnonzero(label)) == set(y[members])


def test_single_samples_are_filed_by_category() -> None:
    """Cluster 0 fits all of category 0, cluster 1 all of category 1, category 2 is 1 to 4; nobody knows category 3."""
    y = np.array([0, 0, 1, 2, 2, 2, 2, 2])
    first = np.array([0, 0, 9, 9, 9, 9, 9, 0.0])
    losses = np.stack([first, 5 - first])  # the lower wins
    assert filed_alone(losses, y, 4).tolist() == [[True, False, False, False], [False, True, True, False]]
    first[6] = 0  # two of five: above half of a fair share, which is a quarter
    assert filed_alone(np.stack([first, 5 - first]), y, 4)[0].tolist() == [True, False, True, False]


def test_groups_average_updates_and_or_labels() -> None:
    simulated = Simulated(torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([0]))
    subsets = Subsets(np.array([[0, 0], [0, 1], [2, 2]]), np.array([[True, False], [True, True], [False, False]]))
    means = {0: 1.0, 1: 5.5}
    rows = group(simulated, subsets, np.array([0, 1]), 50, 2, np.random.default_rng(1))
    possible = {((means[a] + means[b]) / 2, (True, a == 1 or b == 1)) for a in (0, 1) for b in (0, 1)}
    got = {(float(x), tuple(bool(v) for v in label)) for x, label in zip(rows.x[:, 0], rows.labels)}
    assert got == possible  # never the subset filed elsewhere


def test_scores_by_hand() -> None:
    present = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
    said = np.array([[1, 0, 0, 0], [1, 1, 1, 1]], bool)
    p, r = per_pair(said, present)
    assert p.tolist() == [1.0, 0.25] and r.tolist() == [0.5, 1.0]
    f1 = 2 * 0.625 * 0.75 / (0.625 + 0.75)  # of the means: the mean of the F1s would be 0.533
    assert float(f1_of(p, r)) == pytest.approx(f1)
    found = score(said, present, np.array([[0, 0], [1, 1]]))  # resamples with F1 2/3 and 0.4
    assert (found.precision, found.recall, found.f1) == pytest.approx((0.625, 0.75, f1))
    assert (found.low, found.high) == pytest.approx((0.4 + 0.025 * (2 / 3 - 0.4), 2 / 3 - 0.025 * (2 / 3 - 0.4)))
    silent = score(np.zeros((2, 4), bool), present, np.array([[0, 1]]))
    assert (silent.precision, silent.recall, silent.f1) == (0.0, 0.0, 0.0)
    assert coin(present) == pytest.approx(2 * 0.375 * 0.5 / 0.875)


def test_every_round_and_cluster_has_its_own_scores() -> None:
    present = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
    said = np.array([[1, 0, 0, 0], [1, 1, 1, 1]], bool)
    first, second = describe([(10, 0), (20, 1)], said, present)
    assert (first["round"], first["cluster"], first["said"], first["present"]) == (10, 0, [0], [0, 1])
    assert (first["precision"], first["recall"], first["f1"]) == pytest.approx((1.0, 0.5, 2 / 3))
    assert (second["precision"], second["recall"], second["f1"]) == pytest.approx((0.25, 1.0, 0.4))
    assert by_round_and_cluster([first])["rows"][0][-2:] == ["0", "0, 1"]


def test_many_rounds_of_two_clusters_are_not_many_observations() -> None:
    """Every round alike: the interval must span the two clusters however many rounds there are."""
    pairs = [(round, j) for round in range(30) for j in (0, 1)]
    draws = resamples(pairs, 400, np.random.default_rng(0))
    assert draws.shape == (400, 60) and draws.min() >= 0 and draws.max() < 60
    present = np.ones((60, 4), bool)
    said = np.array([[1, 1, 1, 1] if j else [1, 0, 0, 0] for _, j in pairs], bool)  # F1 1 and .4
    found = score(said, present, draws)
    assert (found.low, found.high) == pytest.approx((0.4, 1.0))
    uneven = resamples([(1, 0), (2, 0), (3, 0), (3, 1)], 50, np.random.default_rng(1))
    for row in uneven:  # within one resample a cluster is replaced by one cluster as a whole
        assert len({int(i) == 3 for i in row[:3]}) == 1


def test_the_best_control_is_chosen_anew_in_every_resample() -> None:
    """Two controls, each perfect on one pair and wrong on the other; resamples of one pair twice.

    Over both pairs each control has p = r = 1/2, so F1 = 1/2, and the attacker, right on the first only, too: the leak is 0. In
    the first resample the attacker has 1 and its best control 1, in the second 0 and 1: differences 0 and -1. A control that was
    fixed beforehand would have 1 and 0, or 0 and 1: differences 0 and 0, or 1 and -1.
    """
    present = np.array([[True, False], [True, False]])
    right, wrong = [True, False], [False, True]
    controls = {"first": np.array([right, wrong]), "second": np.array([wrong, right])}
    said = np.array([right, wrong])
    draws = np.array([[0, 0], [1, 1]])
    added = leak(said, controls, present, draws)
    assert (added.value, added.reached, added.control) == (0.0, 0.5, "first")
    assert added.low == pytest.approx(-0.975) and added.high == pytest.approx(-0.025)


def test_a_score_that_a_control_reaches_is_no_leak() -> None:
    random = np.random.default_rng(0)
    present = random.random((20, 6)) < 0.5
    draws = random.integers(0, 20, (500, 20))
    everything = np.ones_like(present)
    none = leak(everything, {"all present": everything, "nothing": ~everything}, present, draws)
    assert (none.value, none.low, none.high, none.control) == (0.0, 0.0, 0.0, "all present")
    assert in_words(none, 0.7).startswith("The update adds nothing") and "all present" in in_words(none, 0.7)
    real = leak(present, {"all present": everything}, present, draws)
    assert real.low > 0 and real.value == pytest.approx(1 - real.reached)
    assert in_words(real, 1.0).startswith("The update leaks")
    worse = leak(~present, {"all present": everything}, present, draws)
    assert worse.high < 0 and "worse" in in_words(worse, 0.0) and "published cluster models" in in_words(worse, 0.0)


@pytest.mark.parametrize("hidden", [0, 16])
def test_the_attack_model_learns_labels_and_falls_back_on_their_frequency(hidden: int) -> None:
    x = normals(range(300), 8)
    x[:, 7] = 3.0  # never varies
    labels = torch.stack([x[:, 0] > 0, x[:, 1] + x[:, 2] > 0, torch.ones(300), torch.zeros(300)], 1).float()
    model = fit(x, labels, hidden, key=1)
    assert float(((model.probabilities(x) >= 0.5) == (labels > 0)).float().mean()) > 0.97
    mean = x.mean(0, keepdim=True)
    assert (model.probabilities(mean)[0, 2:] >= 0.5).tolist() == [True, False]
    off = mean.clone()
    off[0, 7] = 1e6  # a feature without information must not decide
    torch.testing.assert_close(model.probabilities(off), model.probabilities(mean))


def observed(after: Any, prepared: Any, defence: Any = None, **more: Any) -> CategoryInference:
    """The attack after one attacked round of made-up models."""
    federation, network, common = prepared
    attack = CategoryInference(rounds=(1,), subsets=400, rows=200, **more)
    observers = Observers([attack], common, network, federation, {}, defence=defence)
    observers.see(1, "server", "client:0", ClusterModels(common.start))
    observers.see(2, "server", "client:0", ClusterModels(after))
    return attack


def test_who_reads_published_models_never_reads_the_update(prepared: Any) -> None:
    start = prepared[2].start
    one = observed(start + 0.01, prepared).memory["inferred"][1]
    other = observed(start + 5 * normals([4, 5], start.shape[1]), prepared).memory["inferred"][1]
    for name in ("label frequency", "null query", "null query, pairs", "single samples"):
        assert np.array_equal(one[name], other[name])
    assert not np.array_equal(one["attack"], other["attack"])


def test_it_sees_a_leak_where_there_is_one(prepared: Any) -> None:
    """Updates that differ by category and nothing else: the instrument must tell them apart, its controls cannot."""
    federation, network, common = prepared
    data = federation.dataset
    machine = Machine(network, data.x_train, data.y_train)
    held, said, null, present = np.concatenate(federation.clients), [], [], []
    for n in range(5):
        categories = [n, n + 5]
        rows = torch.from_numpy(held[np.isin(data.y_train[held], categories)])
        after = torch.stack(machine.compute([Job(rows, 0, Train(model, STEP)) for model in common.start]))
        inferred = observed(after, prepared, subset_size=2, group_size=1).memory["inferred"][1]
        said += list(inferred["attack"])
        null += list(inferred["null query"])
        present += [np.isin(np.arange(10), categories)] * 2
    truth, draws = np.array(present), np.random.default_rng(0).integers(0, 10, (300, 10))
    everything = np.ones_like(truth)
    found = leak(np.array(said), {"null query": np.array(null), "all present": everything}, truth, draws)
    assert found.low > 0.2


def test_noise_is_measured_where_no_signal_is(prepared: Any) -> None:
    federation, network, common = prepared
    rows = federation.public[0]
    machine = Machine(network, federation.dataset.x_train[rows], federation.dataset.y_train[rows])
    simulated = answered(
        simulate(common.start[0], torch.arange(len(rows)), STEP.lr, features("bias", network), True), machine
    )
    job = Job(torch.arange(len(rows)), 0, Train(common.start[0], STEP))
    update = machine.compute([job])[0] - common.start[0]
    for true in (1e-3, 0.1):
        noisy = update + true * normals([3], network.d)[0]
        assert simulated.noise(noisy) == pytest.approx(true, rel=0.1)
    assert simulated.noise(update) < 0.05 * float(update.square().mean().sqrt())


def test_a_noise_aware_attacker_is_not_swayed_by_noise(prepared: Any) -> None:
    """An update of nothing but noise: who knows of it answers as if it had seen nothing; who does not is led astray."""
    start = prepared[2].start
    agree: dict[str, list[float]] = {"attack": [], "noise-aware": []}
    for n in range(3):
        after = start + 0.5 * normals([n, n + 50], start.shape[1])
        inferred = observed(after, prepared, defence=LDP()).memory["inferred"][1]
        agree["attack"].append(float((inferred["attack"] == inferred["null query"]).mean()))
        agree["noise-aware"].append(float((inferred["noise-aware"] == inferred["noise-aware null"]).mean()))
    assert np.mean(agree["noise-aware"]) > 0.9 > np.mean(agree["attack"])


def test_auxiliary_samples_are_in_no_client(prepared: Any) -> None:
    federation, _, common = prepared
    attack = observed(common.start, prepared)
    known = attack._known
    held = {bytes(row) for rows in federation.clients for row in federation.dataset.x_train[rows]}
    used = known.x[attack._aux]
    assert len(used) == 80 and set(attack._aux) == set(known.where["public:0"])
    assert not set(federation.public[0]) & set(np.concatenate(federation.clients))
    assert sum(bytes(row) in held for row in used) <= 2  # but for images that occur twice in the data


def test_truth_is_any_presence_or_a_share(prepared: Any) -> None:
    federation, _, common = prepared
    notes = [{i: {"cluster": int(i >= 2)} for i in range(4)}]
    counts = federation.histogram()
    for least in (0.0, 0.2):
        attack = observed(common.start + 0.01, prepared, least=least)
        pairs, present = attack._pairs(Truth(federation, notes))
        assert pairs == [(1, 0), (1, 1)]
        for j, clients in enumerate(([0, 1], [2, 3])):
            held = counts[clients].sum(0)
            assert present[j].tolist() == [bool(c > least * held.sum()) for c in held]
    empty, _ = attack._pairs(Truth(federation, [{i: {"cluster": 1} for i in range(4)}]))
    assert empty == [(1, 1)]  # a cluster without clients holds nothing to infer


def test_a_run_ends_with_controls_beside_the_score() -> None:
    result = run(setting(attacks=[{"name": "category", **QUICK}]), quiet=True)
    found = result.attacks["category"]
    assert set(found["controls"]) == {"all present"}  # what one knows without taking part
    published = found["details"]["published models"]
    assert set(published) == {"label frequency", "null query", "null query, pairs", "single samples"}
    variants = {one["attack"]: one for one in found["variants"]}
    assert [one["value"] for one in variants.values()] == list(published.values())
    assert all(one["controls"] == found["controls"] for one in variants.values())
    assert "no update" in variants["category_null_query_pairs"]["used"]
    assert {p["round"] for p in found["details"]["pairs"]} == {2, 4}  # the result of round 6 is sent to nobody
    bar = max(*found["controls"].values(), *published.values())
    assert found["details"]["leak"] == pytest.approx(found["value"] - bar)
    assert found["details"]["noise_aware"] == found["value"]  # no defence, no noise
    assert "update" in found["used"] and found["low"] <= found["value"] <= found["high"]
    assert "never reads the update" in found["details"]["in_words"] == found["note"]
    (drawn,) = found["details"]["pictures"]
    assert [row[:2] for row in drawn["rows"]] == [[p["round"], p["cluster"]] for p in found["details"]["pairs"]]


def test_a_defended_run_has_a_noise_aware_attacker() -> None:
    defence = {"name": "ldp", "epsilon": 1.0, "clip": 5.0}
    found = run(setting(attacks=[{"name": "category", **QUICK}], defence=defence), quiet=True).attacks["category"]
    assert 0 <= found["details"]["noise_aware"] <= 1
    assert {"noise_aware_leak", "noise_aware_leak_low", "noise_aware_leak_high"} <= set(found["details"])
    assert f"reaches {found['details']['noise_aware']:.3f}" in found["details"]["in_words"]


def test_an_interrupted_run_ends_with_the_same_finding(tmp_path: Any) -> None:
    experiment = setting(attacks=[{"name": "category", **QUICK}])

    def interrupt(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 4:  # round 4 is observed, and its successor not yet
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path, callbacks=[interrupt], quiet=True)
    resumed = run(experiment, out=tmp_path, resume=True, quiet=True)
    whole = run(experiment, quiet=True)
    assert resumed.attacks["category"] == whole.attacks["category"]


def test_a_fit_in_the_span_of_few_samples_is_the_fit_on_all_features() -> None:
    random = torch.Generator().manual_seed(3)
    samples = torch.randn(6, 40, generator=random)
    samples[:, 7] = 0.0  # of a unit that never fires
    shares = torch.rand(60, 6, generator=random)
    x = shares / shares.sum(1, keepdim=True) @ samples
    labels = (shares[:, :3] > 0.5).float()
    whole, spanned = fit(x, labels, 0, 1), fit(x, labels, 0, 1, averaged=samples)
    assert torch.allclose(spanned.probabilities(x), whole.probabilities(x), atol=2e-3)
    assert torch.allclose(spanned.layers[0][0], whole.layers[0][0], atol=2e-3)


def test_the_attack_is_trained_anew_for_every_attacked_round(prepared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds 1 and 2 are attacked: each simulates from the models of its own broadcast, and fits two models per cluster."""
    from covey.attacks.category import category

    federation, network, common = prepared
    rows: list[torch.Tensor] = []

    def noting(x: torch.Tensor, *rest: Any, **named: Any) -> Any:
        rows.append(x)
        return fit(x, *rest, **named)

    monkeypatch.setattr(category, "fit", noting)
    attack = CategoryInference(rounds=(1, 2), subsets=100, rows=40)
    observers = Observers([attack], common, network, federation, {})
    for round in (1, 2, 3):
        observers.see(round, "server", "client:0", ClusterModels(common.start * round))
    assert list(attack.memory["inferred"]) == [1, 2] and len(rows) == 2 * 2 * 2
    assert all(not torch.allclose(first.std(0), second.std(0)) for first, second in zip(rows[:4], rows[4:]))


def test_a_coalition_sees_a_broadcast_once(prepared: Any) -> None:
    federation, network, common = prepared
    attack = CategoryInference(vantage="client:0+client:1", rounds=(1,), subsets=50, rows=30)
    observers = Observers([attack], common, network, federation, {})
    for round in (1, 2, 3):
        for client in (0, 1, 2):
            observers.see(round, "server", f"client:{client}", ClusterModels(common.start))
    assert list(attack.memory["inferred"]) == [1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"vantage": "server"},
        {"every": 0},
        {"subset_size": -1},
        {"group_size": -1},
        {"least": 1.0},
        {"features": "outputs"},
        {"model": "forest"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CoveyError, match=next(iter(wrong))):
        ATTACKS["category"](**wrong)


def test_without_auxiliary_samples_it_says_what_to_set() -> None:
    with pytest.raises(CoveyError, match=r"partition\.public"):
        run(setting(partition={"public": 0}, attacks=["category"]), quiet=True)


def test_the_time_of_attacks_is_counted_as_theirs() -> None:
    """A run whose attacks thought for four of its five seconds once said that it had taken one."""
    without = run(setting(), quiet=True)
    watched = run(setting(attacks=[{"name": "category", **QUICK}]), quiet=True)
    assert "attack" not in without.seconds
    assert watched.seconds["attack"] > watched.seconds["aggregate"] > 0
    assert all(s > 0 for s in watched.seconds.values())
