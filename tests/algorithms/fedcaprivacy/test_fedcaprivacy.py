"""FedCAPrivacy: when it clusters, memberships between two clusterings, and the parties, by hand."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.contract import Setting
from covey.algorithms.fedcaprivacy import envelopes
from covey.algorithms.fedcaprivacy.envelopes import Envelope, issue_keys, open_package, purpose_of, seal_model, sign
from covey.algorithms.fedcaprivacy.fedcaprivacy import FedCAPrivacy
from covey.algorithms.fedcaprivacy.two_servers import (
    BusinessServer,
    CloudProvider,
    CoveredRound,
    continue_memberships,
    renumber_clusters,
    settle_memberships,
)
from covey.crypto.blinded import blinded
from covey.crypto.paillier.paillier import PrivateKey
from covey.crypto.signatures import Signer
from covey.errors import CoveyError
from covey.learn.work import Plan


def bits(values: list[list[int]]) -> np.ndarray:
    return np.array(values, np.uint8)


class Rows:
    """Rows that nobody covered."""

    def __init__(self, points: list[list[float]]) -> None:
        self.points = np.array(points)
        self.length = self.points.shape[1]
        self.offsets = np.rint((self.points - self.points[0]) * 2**24).astype(np.int64)

    def means(self, weights: Any) -> list[Any]:
        return list(np.asarray(weights) @ self.points)


# ---------------------------------------------------------------- when to cluster


def test_clustering_count_follows_the_sum_of_probabilities() -> None:
    algorithm, rounds, runs = FedCAPrivacy(alpha=0.1), 100, 300
    counts = [
        sum(algorithm.clusters_in(r, np.random.default_rng([seed, r])) for r in range(1, rounds + 1))
        for seed in range(runs)
    ]
    p = np.array([1.0] + [1 / (1 + 0.1 * r) for r in range(2, rounds + 1)])
    error = np.sqrt((p * (1 - p)).sum() / runs)
    assert abs(np.mean(counts) - p.sum()) < 4 * error
    assert rounds / p.sum() == pytest.approx(4.2, abs=0.1)  # the saving at 100 rounds


def test_alpha_zero_clusters_in_every_round_and_every_is_a_period() -> None:
    random = np.random.default_rng(0)
    assert all(FedCAPrivacy(alpha=0.0).clusters_in(r, random) for r in range(1, 50))
    assert [r for r in range(1, 22) if FedCAPrivacy(every=10).clusters_in(r, random)] == [1, 11, 21]
    assert FedCAPrivacy(alpha=1e9).clusters_in(1, random)


# ---------------------------------------------------------------- memberships between two clusterings


def test_a_newcomer_joins_the_nearest_cluster() -> None:
    rows = Rows([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2], [8.0]])
    before = bits([[1, 0]] * 3 + [[0, 1]] * 3 + [[0, 0]])
    assert continue_memberships(rows, before, 3).tolist() == [[1, 0]] * 3 + [[0, 1]] * 4


def test_a_cluster_with_too_few_present_members_gives_no_model() -> None:
    rows = Rows([[0.0], [0.1], [0.2], [9.0], [9.1]])
    before = bits([[1, 0]] * 3 + [[0, 1], [1, 1]])
    assert continue_memberships(rows, before, 3).tolist() == [[1, 0]] * 5
    assert continue_memberships(rows, before, 2).tolist() == before.tolist()


def test_one_cluster_is_everybodys_however_small() -> None:
    rows = Rows([[0.0], [1.0], [2.0], [3.0]])
    assert continue_memberships(rows, bits([[1, 0], [0, 1], [0, 0], [0, 0]]), 3).tolist() in (
        [[1, 0]] * 4,
        [[0, 1]] * 4,
    )


def test_without_rows_the_homeless_belong_to_all_that_is_left() -> None:
    before = bits([[1, 0, 0]] * 3 + [[0, 1, 0]] * 3 + [[0, 0, 1], [0, 0, 0]])
    found = settle_memberships(before, 3)
    assert found.tolist() == [[1, 0, 0]] * 3 + [[0, 1, 0]] * 3 + [[1, 1, 0]] * 2
    assert settle_memberships(bits([[1, 0], [0, 1], [0, 0]]), 3).sum(0).tolist() in ([3, 0], [0, 3])


def test_new_clusters_take_the_numbers_of_the_old_ones_they_resemble() -> None:
    before = bits([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
    now = bits([[0, 1], [0, 1], [1, 0], [1, 0], [1, 0]])
    assert renumber_clusters(now, before).tolist() == [1, 0]
    assert sorted(renumber_clusters(bits([[1, 0]] * 3), bits([[0, 0, 0]] * 3)).tolist()) == [0, 1]  # all new


# ---------------------------------------------------------------- the parties


@pytest.fixture(scope="module")
def keys() -> dict[str, dict[str, Any]]:
    return issue_keys("bfv", 4, 2048)


def own(keys: dict[str, dict[str, Any]], i: int) -> dict[str, Any]:
    return {**keys["clients"], **keys["clients"]["own"][i]}


def server(keys: dict[str, dict[str, Any]], length: int = 50, clusters: int = 2) -> BusinessServer:
    return BusinessServer(keys["bs"], clusters, length, 3600.0)


def test_bs_refuses_forged_replayed_stale_and_misplaced_uploads(keys: dict[str, dict[str, Any]]) -> None:
    bs = server(keys)
    good = [seal_model(own(keys, i), i, 7, np.full(50, float(i))) for i in range(4)]
    desk = bs.begin()
    rows, seen, refused = bs.receive(desk, enumerate(good), 7)
    assert (sorted(rows), refused) == ([0, 1, 2, 3], 0)
    bad: list[tuple[int, Envelope]] = [
        (0, good[0]),  # again
        (1, replace(good[1], payload=good[2].payload)),  # altered
        (2, seal_model(own(keys, 3), 2, 7, np.zeros(50))),  # signed by another
        (3, seal_model(own(keys, 3), 3, 6, np.zeros(50))),  # another round
        (3, seal_model(own(keys, 2), 2, 7, np.zeros(50))),  # another's, passed off as one's own
        (2, seal_model(own(keys, 2), 2, 7, np.zeros(49))),  # another model
        (1, replace(seal_model(own(keys, 1), 1, 7, np.zeros(50)), timestamp=0)),
        (1, sign(own(keys, 1), "client:1", "another purpose", 7, good[1].payload)),
    ]
    rows, _, refused = bs.receive(replace(desk, accepted=seen), bad, 7)
    assert (rows, refused) == ({}, len(bad))


def test_an_old_upload_is_stale(keys: dict[str, dict[str, Any]]) -> None:
    bs, secret = server(keys), keys["clients"]["own"][0]["signing"]
    payload = seal_model(own(keys, 0), 0, 1, np.zeros(50)).payload
    for age, refused in ((3000.0, 0), (4000.0, 1)):
        signer = Signer("client:0", secret, clock=lambda age=age: time.time() - age)
        letter = Envelope(**vars(signer.sign(payload, envelopes.UPLOAD, 1)))
        assert bs.receive(bs.begin(), [(0, letter)], 1)[2] == refused


def test_a_participant_takes_only_what_bs_signed_for_this_round_cluster_and_size(
    keys: dict[str, dict[str, Any]],
) -> None:
    payload = blinded.sealer(keys["bs"]["participants"]).seal(np.full(50, 3.0))
    envelope = sign(keys["bs"], "bs", purpose_of(1, 2), 4, payload)
    package = envelopes.Package(0, [1], [envelope], [2])
    assert np.allclose(open_package(own(keys, 0), package, 4), 1.5)
    forged = sign(own(keys, 1), "bs", purpose_of(1, 2), 4, payload)
    for bad, round in (
        (package, 5),
        (replace(package, clusters=[0]), 4),
        (replace(package, sizes=[1]), 4),
        (replace(package, models=[forged]), 4),
        (replace(package, models=[replace(envelope, payload=payload[:-1] + b"x")]), 4),
    ):
        with pytest.raises(CoveyError):
            open_package(own(keys, 0), bad, round)


def test_a_participant_begins_from_the_mean_of_its_models() -> None:
    keys = issue_keys("none", 3, 2048)
    models = np.random.default_rng(0).normal(0, 1, (3, 50))
    sizes = [1, 3, 1]
    sealed = [blinded.sealer(keys["bs"]["participants"]).seal(model) for model in models]
    signed = [sign(keys["bs"], "bs", purpose_of(k, n), 4, one) for k, (n, one) in enumerate(zip(sizes, sealed))]
    opened = [blinded.opener(keys["clients"]["opening"]).open(one) / n for n, one in zip(sizes, sealed)]
    package = envelopes.Package(0, [0, 1, 2], signed, sizes)
    for _ in range(2):  # models that are kept open stay as they are
        assert np.array_equal(open_package(keys["clients"], package, 4), np.mean(opened, axis=0))


def test_each_party_holds_its_own_keys_only(keys: dict[str, dict[str, Any]]) -> None:
    assert set(keys) == {"clients", "bs", "csp"}
    assert set(keys["bs"]) == {"csp", "participants", "signing", "known"}  # seals for both, opens nothing
    assert set(keys["csp"]) == {"opening", "participants"}
    assert keys["csp"]["opening"] not in (keys["bs"]["csp"], keys["clients"]["csp"], keys["clients"]["opening"])
    with pytest.raises(CoveyError):  # a sealing key does not open
        blinded.opener(keys["bs"]["csp"]).open(blinded.sealer(keys["bs"]["csp"]).seal(np.zeros(5)))
    row = blinded.sealer(keys["clients"]["csp"]).seal(np.zeros(5))
    with pytest.raises(CoveyError):  # participants cannot open what another sealed for the CSP
        blinded.opener(keys["clients"]["opening"]).open(row)


def test_keys_that_open_faster_open_the_same() -> None:
    setting = Setting(0, 2, 1, 1, Plan(), torch.zeros(1, 70), torch.ones(70, dtype=torch.bool), "paillier")
    row = np.linspace(-3, 3, 70)
    short = []
    for choice in (False, True):
        keys = FedCAPrivacy(fast_opening=choice).keys(setting)
        sealed = blinded.sealer(keys["bs"]["participants"]).seal(row)
        assert np.allclose(blinded.opener(keys["clients"]["opening"]).open(sealed), row, atol=1e-7)
        private = PrivateKey.from_bytes(keys["csp"]["opening"].split(b"\n", 1)[1][4:])
        short.append(int(private.order_p).bit_length() < 400)  # the exponent of an opening, else p - 1
    assert short == [False, True]


def test_one_round_by_hand() -> None:
    """Two clusters of three: each participant gets the mean of its own cluster, whatever the order of the rows."""
    keys = issue_keys("none", 6, 2048)
    bs, csp = server(keys, length=2), CloudProvider(keys["csp"], 0.5, True, 3)
    models = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [50.0, 0.0], [50.0, 1.0], [50.0, 2.0]])
    rows, _, _ = bs.receive(bs.begin(), [(i, seal_model(keys["clients"], i, 1, m)) for i, m in enumerate(models)], 1)
    order = [4, 0, 2, 5, 3, 1]
    cover = blinded.draw_cover(bs.upload, 2, False, None)
    request = CoveredRound(bs.cover([rows[i] for i in order], cover), 2, None, [])
    opened = csp.open(request)
    phi, facts = csp.memberships(request, opened, np.random.default_rng(0))
    sent = [bs.uncover(m, cover) for m in csp.average(opened, phi)]
    desk, served = bs.adopt(bs.begin(), order, phi, sent, [1, 1], True)
    desk = bs.forward(desk, served, 1, {})
    assert facts["exposed"] == 0
    for i, mean in enumerate([[0.0, 1.0]] * 3 + [[50.0, 1.0]] * 3):
        package = desk.packages[desk.package_of[i]]
        assert np.allclose(open_package(keys["clients"], package, 1), mean, atol=1e-6)
    assert len(desk.packages) == 3  # none yet, and one for each set of clusters
