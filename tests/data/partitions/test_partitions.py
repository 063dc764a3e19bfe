"""Partitions: hand-computed cuts, and what must hold for any data, any parameters and any seed."""

import functools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.clustering.features import k_means, nearest_centre, principal_components
from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.partitions import PARTITIONS
from covey.data.partitions.dealing import apportion
from covey.data.partitions.dirichlet import Dirichlet, log_dirichlet, top_up
from covey.data.partitions.feature_clusters import FeatureClusters
from covey.data.partitions.label_sets import LabelSets, composition
from covey.data.partitions.partitions import Iid, Shards
from covey.data.partitions.property_split import PropertySplit
from covey.errors import CoveyError


def labelled(counts, test=10, features=4, **more):
    """A dataset with `counts[y]` training rows and `test` test rows of each label, in a shuffled order."""
    rng = np.random.default_rng(7)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int64)
    y_test = np.repeat(np.arange(len(counts)), test).astype(np.int64)
    return Dataset(
        name="made",
        x_train=rng.integers(0, 255, (len(y), features), np.uint8),
        y_train=y,
        x_test=rng.integers(0, 255, (len(y_test), features), np.uint8),
        y_test=y_test,
        classes=tuple(str(c) for c in range(len(counts))),
        **more,
    )


def assert_sound(fed: Federation, clients: int, disjoint: bool = True):
    """What every federation promises."""
    assert len(fed.clients) == clients
    held = np.concatenate(fed.clients)
    public = np.concatenate(fed.public) if fed.public else np.array([], int)
    assert held.min() >= 0 and held.max() < len(fed.dataset.y_train)
    times = np.bincount(held, minlength=len(fed.dataset.y_train))
    assert all(len(rows) > 0 for rows in fed.clients)
    if disjoint:
        assert times.max() == 1  # and so within every client
    else:
        assert all(len(np.unique(rows)) == len(rows) for rows in fed.clients)
    assert len(np.unique(public)) == len(public)
    assert not times[public].any()
    assert fed.distributions.shape[0] == clients
    assert fed.distributions.min() >= 0
    np.testing.assert_allclose(fed.distributions.sum(1), 1.0)
    assert fed.test_groups.shape == fed.dataset.y_test.shape
    assert fed.test_groups.max() < fed.distributions.shape[1]


def same(a: Federation, b: Federation) -> bool:
    return len(a.clients) == len(b.clients) and all(
        np.array_equal(p, q) for p, q in zip((*a.clients, *a.public), (*b.clients, *b.public))
    )


# ------------------------------------------------------------------ sharing


def test_apportion_by_hand():
    assert apportion(10, np.array([1.0, 1.0, 1.0])).tolist() == [4, 3, 3]
    assert apportion(12, np.array([1.0, 2.0, 3.0])).tolist() == [2, 4, 6]
    assert apportion(10, np.array([0.0, 1.0, 99.0]), least=1).tolist() == [1, 1, 8]


@given(st.integers(0, 500), st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_apportion_sums_and_stays_within_one_of_the_share(total, weights):
    weights = np.array(weights)
    parts = apportion(total, weights)
    assert parts.sum() == total
    assert np.all(np.abs(parts - weights / weights.sum() * total) < 1 + 1e-9)


def test_composition_is_uniform_over_all_sequences():
    # 5 = three parts in 1..3: (1,1,3) ×3, (1,2,2) ×3: six sequences
    rng = np.random.default_rng(0)
    seen = [tuple(composition(5, 3, 1, 3, rng).tolist()) for _ in range(6000)]
    names, counts = np.unique(seen, axis=0, return_counts=True)
    assert len(names) == 6
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(1000 * 5 / 6))


# --------------------------------------------------------------- label sets


def test_label_sets_splits_labels_evenly_and_consecutively():
    fed = LabelSets(public=5).make(labelled([100] * 10), clients=10, clusters=5, seed=3)
    assert_sound(fed, 10)
    assert fed.notes["label_sets"] == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert fed.clusters.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    for cluster, counts in zip(fed.clusters, fed.histogram()):
        assert set(np.flatnonzero(counts)) <= {2 * cluster, 2 * cluster + 1}
    for j, rows in enumerate(fed.public):
        assert len(rows) == 5 and set(fed.dataset.y_train[rows] // 2) == {j}
    assert sum(map(len, fed.clients)) == 1000 - 25
    assert fed.distributions[0].tolist() == [0.5, 0.5] + [0.0] * 8


def test_label_sets_distribution_follows_test_proportions_and_iid_rate():
    data = labelled([60, 60, 60, 60])
    y_test = np.array([0] * 3 + [1] + [2] * 4 + [3] * 2)
    data = Dataset("made", data.x_train, data.y_train, data.x_train[:10], y_test, data.classes)
    fed = LabelSets(public=0, iid_rate=0.4, samples=20).make(data, clients=4, clusters=2, seed=0)
    mixture = 0.4 * np.array([3, 1, 4, 2]) / 10
    np.testing.assert_allclose(fed.distributions[0], mixture + 0.6 * np.array([0.75, 0.25, 0, 0]))
    np.testing.assert_allclose(fed.distributions[3], mixture + 0.6 * np.array([0, 0, 4 / 6, 2 / 6]))


def test_iid_rate_is_the_share_of_samples_from_all_labels():
    fed = LabelSets(public=0, iid_rate=0.5, samples=200).make(labelled([1000] * 10), 20, 5, seed=1)
    assert_sound(fed, 20)
    inside = [counts[2 * c : 2 * c + 2].sum() for c, counts in zip(fed.clusters, fed.histogram())]
    # 100 from the own set, and a fifth of the other 100 falls into it as well
    assert np.mean(inside) == pytest.approx(120, abs=4)
    assert min(inside) >= 100


def test_newcomers_alone_may_have_samples_of_all_labels():
    data = labelled([1000] * 10)
    asked = {"public": 0, "iid_rate": 0.5, "samples": 200, "in_turn": True, "iid_from": 15}
    fed = LabelSets(**asked).make(data, 20, 5, seed=1)
    assert_sound(fed, 20)
    inside = np.array([counts[2 * c : 2 * c + 2].sum() for c, counts in zip(fed.clusters, fed.histogram())])
    assert (inside[:15] == 200).all() and inside[15:].max() < 150
    assert fed.distributions[0].max() == 0.5 and fed.distributions[15].max() == pytest.approx(0.3)
    on_sets = LabelSets(**asked, test_on_sets=True).make(data, 20, 5, seed=1)
    assert same(fed, on_sets) and (on_sets.distributions.max(1) == 0.5).all()
    with pytest.raises(CoveyError, match="iid_from"):
        LabelSets(iid_from=15)
    with pytest.raises(CoveyError, match="iid_from is 15, but the last of 15 clients is 14"):
        LabelSets(**asked).make(data, 15, 5, seed=1)
    with pytest.raises(CoveyError, match=r"240 samples per client would fit"):  # 15 × 240 + 5 × 120 of a set's own
        LabelSets(**asked | {"samples": 300}).make(labelled([480] * 10), 20, 5, seed=1)


def test_heterogeneous_sets_have_unequal_labels_and_clients_in_proportion():
    widths = []
    for seed in range(20):
        fed = LabelSets(homogeneous=False, public=0).make(labelled([60] * 10), 30, 5, seed)
        assert_sound(fed, 30)
        width = np.array([len(s) for s in fed.notes["label_sets"]])
        assert width.sum() == 10 and width.min() >= 1 and width.max() <= 3
        assert np.bincount(fed.clusters).tolist() == (3 * width).tolist()
        widths.append(tuple(width))
    assert len(set(widths)) > 5


def test_hundred_labels_keep_the_papers_ranges():
    for clusters, low, high in [(5, 10, 30), (10, 5, 20)]:
        fed = LabelSets(homogeneous=False, public=0).make(labelled([5] * 100, test=1), 20, clusters, 0)
        width = [len(s) for s in fed.notes["label_sets"]]
        assert min(width) >= low and max(width) <= high and sum(width) == 100


def test_forced_cluster_sizes():
    fed = LabelSets(sizes=(12, 12, 24, 36, 36), public=0).make(labelled([200] * 10), 120, 5, 0)
    assert np.bincount(fed.clusters).tolist() == [12, 12, 24, 36, 36]
    with pytest.raises(CoveyError, match="sum to the 100 clients"):
        LabelSets(sizes=(12, 12, 24, 36, 36)).make(labelled([200] * 10), 100, 5, 0)


def test_a_small_set_gives_at_most_a_fifth_to_the_public():
    fed = LabelSets().make(labelled([50] * 4), 4, 2, 0)
    assert fed.notes["public_per_set"] == (20, 20)


def test_too_many_samples_names_what_fits():
    data = labelled([100, 100, 100, 80])
    with pytest.raises(CoveyError, match="18 samples per client would fit"):
        LabelSets(public=0, samples=25).make(data, 20, 2, 0)  # set 1: 180 rows for 10 clients
    with pytest.raises(CoveyError, match="18 samples per client would fit"):
        LabelSets(public=0, samples=10**9).make(data, 20, 2, 0)
    assert_sound(LabelSets(public=0, samples=18).make(data, 20, 2, 0), 20)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(5, 40), min_size=2, max_size=12),
    clients=st.integers(2, 25),
    rate=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    homogeneous=st.booleans(),
    shuffled=st.booleans(),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_label_sets_always_sound_or_refused(counts, clients, rate, homogeneous, shuffled, seed, data):
    clusters = data.draw(st.integers(1, min(len(counts), clients)))
    cut = LabelSets(homogeneous=homogeneous, iid_rate=rate, shuffled=shuffled, public=3)
    dataset = labelled(counts)
    try:
        fed = cut.make(dataset, clients, clusters, seed)
    except CoveyError as refusal:
        assert "fewer" in str(refusal)
        return
    assert_sound(fed, clients)
    assert fed.notes["unused"] == 0
    assert sum(map(len, fed.clients)) + sum(map(len, fed.public)) == sum(counts)
    assert len(np.unique(fed.clusters)) == clusters
    assert same(fed, cut.make(dataset, clients, clusters, seed))


# ---------------------------------------------------------------- dirichlet


@settings(max_examples=80, deadline=None)
@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=10),
    clients=st.integers(1, 60),
    beta=st.sampled_from([1e-300, 1e-6, 1e-3, 0.1, 1.0, 100.0, 1e6]),
    prior=st.sampled_from(["symmetric", "label"]),
    equal=st.booleans(),
    minimum=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)
def test_dirichlet_ends_keeps_the_minimum_and_is_disjoint(counts, clients, beta, prior, equal, minimum, seed):
    cut = Dirichlet(beta=beta, prior=prior, equal=equal, minimum=minimum)
    dataset = labelled(counts)
    if clients * minimum > sum(counts):
        with pytest.raises(CoveyError, match="would work"):
            cut.make(dataset, clients, 1, seed)
        return
    fed = cut.make(dataset, clients, 1, seed)
    assert_sound(fed, clients)
    sizes = np.array([len(rows) for rows in fed.clients])
    assert sizes.min() >= minimum
    assert sizes.sum() == (sum(counts) // clients * clients if equal else sum(counts))
    assert not equal or sizes.max() == sizes.min()
    np.testing.assert_allclose(fed.distributions * sizes[:, None], fed.histogram())
    assert same(fed, cut.make(dataset, clients, 1, seed))


def test_log_dirichlet_has_the_moments_of_the_distribution():
    alpha = np.array([0.05, 0.4, 2.0])
    draws = np.exp(log_dirichlet(alpha, 40_000, np.random.default_rng(0)))
    mean = alpha / alpha.sum()
    variance = mean * (1 - mean) / (alpha.sum() + 1)
    np.testing.assert_allclose(draws.sum(1), 1.0)
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(variance / 40_000).max())
    np.testing.assert_allclose(draws.var(0), variance, rtol=0.05)


def test_small_beta_is_skewed_and_the_label_prior_more_so():
    def main_share(**fields):
        fed = Dirichlet(minimum=1, equal=True, **fields).make(labelled([400] * 10), 20, 1, 0)
        return fed.distributions.max(1).mean()

    assert main_share(beta=1000.0) < 0.2 < main_share(beta=0.5) < main_share(beta=0.5, prior="label")


def test_equal_dirichlet_takes_the_asked_number():
    fed = Dirichlet(equal=True, samples=30, beta=0.3).make(labelled([100] * 10), 25, 1, 2)
    assert {len(rows) for rows in fed.clients} == {30}


def test_top_up_takes_from_the_largest_only():
    owner = np.array([0] * 20 + [1] * 10 + [2] * 3)
    sizes = np.bincount(top_up(owner, 4, 4, np.random.default_rng(0)))
    assert sizes.tolist() == [15, 10, 4, 4]  # five rows move, all from client 0


# ------------------------------------------------------------- shards, iid


def test_shards_hold_few_labels():
    fed = Shards(s=2).make(labelled([100] * 10), 10, 2, 0)
    assert_sound(fed, 10)
    assert {len(rows) for rows in fed.clients} == {100}
    assert (fed.histogram() > 0).sum(1).max() <= 2
    assert fed.clusters is None


@settings(max_examples=40, deadline=None)
@given(st.integers(30, 200), st.integers(1, 20), st.integers(1, 6), st.integers(0, 9), st.integers(0, 99))
def test_shards_and_iid_use_every_row(rows, clients, s, public, seed):
    dataset = labelled([rows, 3])
    total = rows + 3 - public
    if clients * s <= total:
        fed = Shards(s=s, public=public).make(dataset, clients, 1, seed)
        assert_sound(fed, clients)
        assert sum(map(len, fed.clients)) == total
        assert same(fed, Shards(s=s, public=public).make(dataset, clients, 1, seed))
    fed = Iid(public=public).make(dataset, clients, 1, seed)
    assert_sound(fed, clients)
    sizes = [len(r) for r in fed.clients]
    assert sum(sizes) == total and max(sizes) - min(sizes) <= 1


def test_iid_clients_look_like_the_whole():
    fed = Iid().make(labelled([1000, 3000]), 10, 1, 0)
    np.testing.assert_allclose(fed.distributions[:, 1], 0.75, atol=0.1)


# ----------------------------------------------------------------- property


def with_property(rows=600, share=0.1):
    rng = np.random.default_rng(5)
    data = labelled([rows // 2, rows // 2])
    glasses = (rng.random(rows) < share).astype(np.uint8)
    glasses[:20] = 255
    return Dataset(
        "made", data.x_train, data.y_train, data.x_test, data.y_test, data.classes, attributes={"glasses": glasses}
    )


@pytest.mark.parametrize("placebo", [False, True])
def test_property_rows_are_with_victim_and_attacker_alone(placebo):
    data = with_property()
    glasses = data.attributes["glasses"]
    fed = PropertySplit(victim=2, attacker=4, minimum=20, placebo=placebo).make(data, 6, 1, 0)
    assert_sound(fed, 6)
    notes = fed.notes
    for who, rows in (("victim", fed.clients[2]), ("attacker", fed.clients[4])):
        mine = np.concatenate([notes[f"{who}_property"], notes[f"{who}_other"]])
        assert np.array_equal(np.sort(mine), np.sort(rows))
    marked = np.concatenate([notes["victim_property"], notes["attacker_property"]])
    assert abs(len(notes["victim_property"]) - len(notes["attacker_property"])) <= 1
    assert len(marked) == (glasses == 1).sum()
    assert not np.intersect1d(marked, np.concatenate([fed.clients[i] for i in (0, 1, 3, 5)])).size
    assert not (glasses[np.concatenate(fed.clients)] == 255).any()
    if placebo:
        real = data.y_train[glasses == 1]
        assert not (glasses[np.concatenate(fed.clients)] == 1).any()
        assert np.bincount(data.y_train[marked]).tolist() == np.bincount(real).tolist()
        assert notes["excluded"] == 20 + len(marked)
    else:
        assert (glasses[marked] == 1).all() and notes["excluded"] == 20
    assert min(len(r) for r in fed.clients) >= 20


def test_property_refuses_what_it_cannot_do():
    data = with_property()
    with pytest.raises(CoveyError, match="did you mean 'glasses'"):
        PropertySplit(attribute="glases").make(data, 5, 1, 0)
    with pytest.raises(CoveyError, match="clients are 0 to 1"):
        PropertySplit(attacker=2).make(data, 2, 1, 0)
    with pytest.raises(CoveyError, match="must differ"):
        PropertySplit(victim=1)
    with pytest.raises(CoveyError, match="have glasses = 7"):
        PropertySplit(value=7).make(data, 5, 1, 0)


# --------------------------------------------------------- feature clusters


def blobs(rows=1000, kind="real"):
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0, 0], [9, 0, 0], [0, 9, 0], [0, 0, 9]], np.float32)
    which, which_test = rng.integers(0, 4, rows), rng.integers(0, 4, 400)
    return Dataset(
        "blobs",
        (centres[which] + rng.standard_normal((rows, 3))).astype(np.float32),
        rng.integers(0, 2, rows),
        (centres[which_test] + rng.standard_normal((400, 3))).astype(np.float32),
        rng.integers(0, 2, 400),
        ("a", "b"),
        kind=kind,
        attributes={"blob": which},
    )


def test_feature_clusters_follow_the_rates():
    data = blobs(2000)
    cut = FeatureClusters(rows=40, rates=(0.0, 0.25, 1.0), public=100)
    fed = cut.make(data, 4, 1, 0)
    assert_sound(fed, 4)
    assert fed.notes["overlap"] == 0
    inside = list(fed.notes["target_clusters"])
    outside = [c for c in range(4) if c not in inside]
    for rate, shares, rows in zip((0, 0, 0.25, 1), fed.distributions, fed.clients):
        assert len(rows) == 120
        np.testing.assert_allclose(shares[inside], (1 - rate) / 3)
        np.testing.assert_allclose(shares[outside], rate)
    group = fed.notes["feature_clusters"]
    for c in range(4):  # one feature cluster is one blob
        assert len(np.unique(data.attributes["blob"][group == c])) == 1
    assert same(fed, cut.make(data, 4, 1, 0))


def test_feature_clusters_state_their_overlap_or_refuse():
    data = blobs(1000)  # about 250 a cluster: eight clients want 80 of each of three
    fed = FeatureClusters(rows=80, rates=(0.0,) * 7, public=0).make(data, 8, 1, 0)
    held = np.concatenate(fed.clients)
    assert_sound(fed, 8, disjoint=False)
    assert fed.notes["overlap"] == (np.bincount(held) > 1).sum() > 0
    with pytest.raises(CoveyError, match="would fit"):
        FeatureClusters(rows=80, rates=(0.0,) * 7, public=0, overlap=False).make(data, 8, 1, 0)
    with pytest.raises(CoveyError, match="by one client"):
        FeatureClusters(rows=400, public=0).make(data, 8, 1, 0)
    with pytest.raises(CoveyError, match="give 7"):
        FeatureClusters(rates=(0.5,)).make(data, 8, 1, 0)


def test_principal_components_are_the_leading_eigenvectors():
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((500, 30)) * np.linspace(5, 0.1, 30)).astype(np.float32) + 3
    axes = principal_components(x, 4, rng).axes
    exact = np.linalg.eigh(np.cov(x.T))[1][:, ::-1][:, :4]
    np.testing.assert_allclose(np.abs((axes * exact).sum(0)), 1.0, atol=1e-3)


def test_k_means_finds_the_blobs():
    data = blobs()
    centres = k_means(data.x_train, 4, np.random.default_rng(0))
    group = nearest_centre(data.x_train, centres)
    table = np.zeros((4, 4), int)
    np.add.at(table, (group, data.attributes["blob"]), 1)
    assert table.max(1).sum() == 1000


# ----------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: LabelSets().make(d, 40, 11, 0), "at most 10 sets"),
        (lambda d: LabelSets().make(d, 4, 5, 0), "at least 5 clients"),
        (lambda d: LabelSets(public=0).make(d, 300, 5, 0), "fewer clients"),
        (lambda d: LabelSets(iid_rate=1.5), "from 0 to 1"),
        (lambda d: LabelSets(homogeneous=False, labels_per_set=(1, 2)).make(d, 40, 3, 0), "at least 4"),
        (lambda d: Dirichlet(beta=0.0), "above 0"),
        (lambda d: Dirichlet(beta=-1.0), "above 0"),
        (lambda d: Dirichlet(prior="flat"), "'symmetric' or 'label'"),
        (lambda d: Dirichlet(samples=5), "equal = true"),
        (lambda d: Dirichlet(minimum=30).make(d, 10, 1, 0), "at most 20 each, or 6 clients"),
        (lambda d: Shards(s=201).make(d, 1, 1, 0), "at most 200 shards"),
        (lambda d: Iid(samples=21).make(d, 10, 1, 0), "at most 20 samples"),
        (lambda d: Iid().make(d, 0, 1, 0), "at least 1"),
        (lambda d: Iid().make(d, 5, 1, -1), "0 or more"),
        (lambda d: Iid(public=200).make(d, 5, 1, 0), "200 training samples"),
        (lambda d: FeatureClusters(picked=4), "fewer than k"),
    ],
)
def test_impossible_requests_say_what_would_work(make, message):
    with pytest.raises(CoveyError, match=message):
        make(labelled([20] * 10))


def test_every_partition_is_registered_under_its_name():
    expected = {"label_sets", "dirichlet", "shards", "iid", "property", "feature_clusters", "natural"}
    expected |= {"concept_shift", "feature_shift", "quantity_skew", "drift"}
    assert set(PARTITIONS) == expected
    assert all(kind.name == name for name, kind in PARTITIONS.items())


@functools.cache
def six_hundred_thousand():
    return labelled([60_000] * 10, features=1)


@pytest.mark.parametrize(
    "cut",
    [LabelSets(samples=50), LabelSets(iid_rate=0.3), Dirichlet(), Dirichlet(equal=True), Shards(), Iid()],
    ids=["label_sets", "label_sets iid_rate", "dirichlet", "dirichlet equal", "shards", "iid"],
)
def test_ten_thousand_clients_are_quick(cut):
    data = six_hundred_thousand()
    started = time.process_time()
    fed = cut.make(data, 10_000, 5, 0)
    assert time.process_time() - started < 5  # about a second; the rest is for a busy machine
    assert_sound(fed, 10_000)


@pytest.mark.parametrize("cls", [LabelSets, Dirichlet, Iid, Shards])
def test_a_renamed_partition_cuts_as_before_and_kinds_cut_independently(cls):
    renamed = type("Own", (cls,), {"name": "own"})
    data = labelled([60] * 4)
    assert same(renamed().make(data, 6, 2, 3), cls().make(data, 6, 2, 3))
    streams = [PARTITIONS[name].stream for name in PARTITIONS if name != "natural"]  # which draws nothing
    assert len(set(streams)) == len(streams)
