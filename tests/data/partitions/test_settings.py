"""Partitions beyond label skew: concept shift, feature shift, quantity skew, drift. Hand-computed where images or labels change."""

from pathlib import Path

import numpy as np
import pytest

from covey import Experiment, run
from covey.data.dataset import Dataset
from covey.data.partitions.drift import Drift
from covey.data.partitions.quantity_skew import QuantitySkew
from covey.data.partitions.shifts import ConceptShift, FeatureShift, blurred, tinted, turned
from covey.data.sources.load import load
from covey.engines.settle import cut
from covey.errors import CoveyError
from covey.experiment.participation import Participation

LABELS = tuple("01234")


@pytest.fixture(scope="module")
def pixels() -> Dataset:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, 4, 4), dtype=np.uint8), np.arange(60) % 5
    return Dataset("pixels", x, y, x[:10] // 2, y[:10], LABELS)


# ---------------------------------------------------------------- images, by hand


def test_a_quarter_turn_is_exact_and_a_full_one_nothing() -> None:
    x = np.arange(2 * 9, dtype=np.uint8).reshape(2, 3, 3)
    assert (turned(x, 90) == np.rot90(x, 1, (1, 2))).all()
    assert (turned(x, 180) == x[:, ::-1, ::-1]).all()
    assert (turned(x, 360) == x).all() and (turned(x, 0) == x).all()
    coloured = np.stack([x, 2 * x, 3 * x], -1)
    assert (turned(coloured, 270) == np.rot90(coloured, 3, (1, 2))).all()


def test_an_eighth_of_a_turn_mixes_neighbours() -> None:
    x = np.zeros((1, 3, 3), np.uint8)
    x[0, 0, 1] = 100  # above the middle: after 45° between the corner and its neighbours
    to = turned(x, 45)[0].astype(int)
    # the corner (0, 0) looks at (1 - √2, 1), of which 1 - (√2 - 1) lies in the image; (0, 1) at (1 - √½, 1 + √½)
    assert to[0, 0] == round(100 * (2 - np.sqrt(2))) and to[0, 1] == round(100 * np.sqrt(0.5) * (1 - np.sqrt(0.5)))
    assert to[2].sum() == 0


def test_tints_and_blurs() -> None:
    x = np.full((1, 1, 1), 200, np.uint8)
    assert tinted(x, 0.0).tolist() == [[[[200, 0, 0]]]] and tinted(x, 1 / 3).tolist() == [[[[0, 200, 0]]]]
    row = np.zeros((1, 1, 7), np.uint8)
    row[0, 0, 3] = 100
    e = np.exp(-0.5 * np.arange(-3, 4) ** 2)
    assert blurred(row, 1.0)[0, 0].tolist() == np.rint(100 * e / e.sum()).astype(int).tolist()
    assert (blurred(row, 0.0) == row).all()
    assert (blurred(np.full((1, 5, 5), 9, np.uint8), 2.0) == 9).all()  # edges are continued


# ---------------------------------------------------------------- who holds what


def test_labels_mean_others_in_every_cluster_but_the_first(pixels: Dataset) -> None:
    cut_up = ConceptShift(public=2).make(pixels, 6, 3, 1)
    meaning = np.array(cut_up.notes["labels_mean"])
    assert (meaning[0] == np.arange(5)).all()
    assert all((np.sort(row) == np.arange(5)).all() and (row != np.arange(5)).all() for row in meaning[1:])
    assert not (meaning[1] == meaning[2]).all()
    assert cut_up.clusters is not None and cut_up.clusters.tolist() == [0, 1, 2, 0, 1, 2]
    held = np.concatenate(cut_up.clients)
    assert len(np.unique(held)) == len(held) == 54 and [len(p) for p in cut_up.public] == [2, 2, 2]
    for client, cluster in zip(cut_up.clients, cut_up.clusters):
        assert (cut_up.dataset.y_train[client] == meaning[cluster][pixels.y_train[client]]).all()
        assert (cut_up.dataset.x_train[client] == pixels.x_train[client]).all()
    assert cut_up.dataset.y_test.tolist() == np.concatenate([m[pixels.y_test] for m in meaning]).tolist()
    assert cut_up.test_groups.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert (pixels.y_train == np.arange(60) % 5).all()  # the dataset itself is untouched


def test_two_labels_swap(pixels: Dataset) -> None:
    meaning = np.array(ConceptShift(moved=2).make(pixels, 4, 4, 0).notes["labels_mean"])
    assert [(row != np.arange(5)).sum() for row in meaning] == [0, 2, 2, 2]
    assert len({tuple(row) for row in meaning}) == 4
    with pytest.raises(CoveyError, match="at most 2 clusters"):  # two labels mean two things
        ConceptShift().make(
            Dataset("coins", pixels.x_train, pixels.y_train % 2, pixels.x_test, pixels.y_test % 2, ("a", "b")), 9, 3, 0
        )
    with pytest.raises(CoveyError, match="swap"):
        ConceptShift(moved=1)


def test_images_look_other_in_every_cluster(pixels: Dataset) -> None:
    cut_up = FeatureShift().make(pixels, 8, 4, 0)
    assert cut_up.clusters is not None
    for client, cluster in zip(cut_up.clients, cut_up.clusters):
        seen = np.rot90(pixels.x_train[client], int(cluster), (1, 2))
        assert (cut_up.dataset.x_train[client] == seen).all()
    assert (cut_up.dataset.y_train == pixels.y_train).all() and cut_up.dataset.x_test.shape == (40, 4, 4)
    tints = FeatureShift(look="colour").make(pixels, 3, 3, 0)
    assert tints.dataset.x_train.shape == (60, 4, 4, 3)
    assert (tints.dataset.x_train[tints.clients[1]][..., [0, 2]] == 0).all()  # green
    with pytest.raises(CoveyError, match="images"):
        FeatureShift().make(load("heart"), 4, 2, 0)
    with pytest.raises(CoveyError, match="rotation"):
        FeatureShift(look="rotated")


def test_sizes_are_skewed_and_clusters_stay(pixels: Dataset) -> None:
    digits = load("digits")
    even = QuantitySkew(beta=1e6).make(digits, 20, 5, 0)
    skewed = QuantitySkew(beta=0.3, minimum=5).make(digits, 20, 5, 0)
    sizes = [len(rows) for rows in skewed.clients]
    assert (
        min(sizes) == 5 and max(sizes) == max(len(rows) for rows in even.clients) and np.median(sizes) < max(sizes) / 3
    )
    assert (skewed.clusters == even.clusters).all() and (skewed.distributions == even.distributions).all()
    assert QuantitySkew(label_sets=False).make(digits, 20, 5, 0).clusters is None
    with pytest.raises(CoveyError, match="minimum"):
        QuantitySkew(minimum=50).make(pixels, 20, 5, 0)


# ---------------------------------------------------------------- clusters that change


def test_movers_pass_their_samples_on_and_nobody_else_changes() -> None:
    digits = load("digits")
    before = Drift(after=3, share=0.5).make(digits, 20, 5, 0)
    after = before.at(4)
    assert before.at(3) is before and after.clusters is not None and before.clusters is not None
    moved = [
        i
        for i in range(20)
        if not (len(before.clients[i]) == len(after.clients[i]) and (before.clients[i] == after.clients[i]).all())
    ]
    assert len(moved) == before.notes["moved"] == 10
    assert all(before.clusters[i] != after.clusters[i] for i in moved)
    assert sorted(np.concatenate(before.clients).tolist()) == sorted(np.concatenate(after.clients).tolist())
    for i in range(20):  # what a client holds, is tested on and is said to be go together
        own = set(digits.y_train[after.clients[i]].tolist())
        assert own == set(np.flatnonzero(after.distributions[i]).tolist())


def test_two_clusters_are_one_until_they_split() -> None:
    digits = load("digits")
    before = Drift(change="split", after=2).make(digits, 10, 5, 0)
    after = before.at(3)
    assert before.clusters is not None and after.clusters is not None
    assert sorted(set(before.clusters.tolist())) == [0, 2, 4] and sorted(set(after.clusters.tolist())) == [
        0,
        1,
        2,
        3,
        4,
    ]
    for i in range(10):
        held = set(digits.y_train[before.clients[i]].tolist())
        assert len(held) == (2 if before.clusters[i] == 4 else 4)
        np.testing.assert_allclose(before.distributions[i].sum(), 1)
        assert held == set(np.flatnonzero(before.distributions[i]).tolist())
    assert len(np.unique(np.concatenate(before.clients))) == sum(map(len, before.clients))


def test_ifca_follows_clients_that_move_and_the_record_shows_the_fall() -> None:
    table = {
        "dataset": "digits",
        "model": "softmax",
        "clients": 10,
        "clusters": 5,
        "partition": {"name": "drift", "after": 4, "share": 1.0},
        "training": {"rounds": 6, "epochs": 5, "batch_size": 10, "lr": 0.1},
        "engine": {"workers": 1},
    }
    result = run(Experiment.of(table), quiet=True)
    right = [record["clustering"]["ari"] for record in result.records]
    assert right[3] == 1.0 and right[4] == 1.0  # before and after, by what clients hold in the round
    assert result.accuracy["client_mean"] > 0.9
    split = run(Experiment.of(table, partition={"change": "split"}), quiet=True)
    worst = split.metrics["accuracy"]["worst"]
    assert split.accuracy["average_cluster"] >= worst > 0  # of the models that clients use, whoever they were begun for
    with pytest.raises(CoveyError, match="one truth"):
        run(Experiment.of(table, attacks=["a1"]), quiet=True)


def test_one_model_fits_no_two_concepts() -> None:
    table = {
        "dataset": "digits",
        "model": "softmax",
        "clients": 8,
        "clusters": 2,
        "partition": {"name": "concept_shift", "public": 20},
        "training": {"rounds": 5, "epochs": 5, "batch_size": 10, "lr": 0.1},
        "engine": {"workers": 1},
        "evaluation": {"every": 5},
    }
    clustered = run(Experiment.of(table), quiet=True)
    one = run(Experiment.of(table, algorithm="fedavg"), quiet=True)
    assert clustered.clustering is not None and clustered.clustering["ari"] == 1.0
    assert clustered.accuracy["client_mean"] > 0.85 > 0.6 > one.accuracy["client_mean"]


def test_own_data_keep_their_fingerprint_under_a_partition_that_changes_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.normal(size=(80, 3)).astype(np.float32), y=np.arange(80) % 4)
    table = {"dataset": str(tmp_path / "own.npz"), "model": "softmax", "clients": 4, "clusters": 2, "seeds": 2}
    table |= {"partition": "concept_shift", "training": {"rounds": 1}, "engine": {"workers": 1}}
    run(Experiment.of(table), out=tmp_path / "runs", quiet=True)  # two seeds mean two permutations of one file
    assert cut(Experiment.of(table)).dataset.y_train.shape == (72,)


# ---------------------------------------------------------------- newcomers


def test_when_clients_arrive() -> None:
    joins = Participation(initial=4, join=2, join_every=3)
    assert [joins.arrival(i) for i in range(8)] == [0, 0, 0, 0, 4, 4, 7, 7]
    for i in range(4, 8):
        assert joins.joined(joins.arrival(i), 8) > i >= joins.joined(joins.arrival(i) - 1, 8)
    assert Participation().arrival(3) == 0


def test_newcomers_are_scored_on_arrival_and_after() -> None:
    table = {
        "dataset": "digits",
        "model": "softmax",
        "clients": 12,
        "clusters": 3,
        "partition": {"name": "label_sets", "in_turn": True, "public": 20},
        "participation": {"initial": 9, "join": 3, "join_every": 4},
        "training": {"rounds": 6, "epochs": 5, "batch_size": 10, "lr": 0.1},
        "engine": {"workers": 1},
    }
    result = run(Experiment.of(table), quiet=True)
    ages = [record.get("newcomers", {}) for record in result.records]
    assert ages[:3] == [{}, {}, {}]
    assert [list(age) for age in ages[3:]] == [["0"], ["1"], ["2"]]
    assert all(age[next(iter(age))]["clients"] == 3 for age in ages[3:])
    assert ages[3]["0"]["accuracy"] > 0.9  # a trained model of their cluster was there, and they found it


def test_copies_give_every_cluster_all_rows_seen_in_its_way() -> None:
    data = load("digits")
    n = len(data.y_train)
    made = FeatureShift(copies=True, samples=50).make(data, 40, 4, 0)
    for c in range(4):
        members = [i for i in range(40) if made.clusters[i] == c]
        rows = np.concatenate([made.clients[i] for i in members])
        assert len(members) == 10 and len(rows) == len(set(rows.tolist())) == 500
        assert (rows // n == c).all()  # of its own copy
        assert (made.dataset.y_train[rows] == data.y_train[rows % n]).all()
        assert (made.dataset.x_train[rows] == turned(data.x_train[rows % n], 90 * c)).all()
    whole = FeatureShift(copies=True).make(data, 6, 2, 0)
    assert [sum(len(whole.clients[i]) for i in range(c, 6, 2)) for c in (0, 1)] == [n, n]
    with pytest.raises(CoveyError, match="do not fit in 1438 rows; at most 143 samples each"):
        FeatureShift(copies=True, samples=200).make(data, 40, 4, 0)
    with pytest.raises(CoveyError, match=r"set partition\.public = 0"):
        FeatureShift(copies=True, public=5)


def test_clients_of_drift_and_of_skewed_quantities_can_be_cut() -> None:
    data = load("digits")
    assert {len(rows) for rows in Drift(samples=30).make(data, 20, 5, 0).clients} == {30}
    assert max(len(rows) for rows in QuantitySkew(samples=40).make(data, 20, 5, 0).clients) == 40
