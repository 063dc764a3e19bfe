"""FedCAPrivacy: the parties by hand, then whole runs: encrypted equals clear, alignment, views, keys, refusals."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms import envelopes, fedcaprivacy, two_servers
from covey.algorithms.envelopes import Envelope, issue_keys, open_package, purpose_of, seal_model, sign
from covey.algorithms.fedcaprivacy import FedCAPrivacy
from covey.algorithms.two_servers import BusinessServer, CloudProvider, CoveredRound, continued, renumbered, settled
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.crypto import blinded
from covey.crypto.blinded_clear import ClearRows
from covey.crypto.signatures import Signer
from covey.errors import CoveyError
from covey.experiment import Experiment
from covey.messages import decode, encode
from covey.run import run


def small(algorithm: dict[str, Any] | None = None, **more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "model": "softmax",
        "algorithm": {"name": "fedcaprivacy", "median": True, **(algorithm or {})},
        "clients": 12,
        "clusters": 3,
        "partition": {"name": "dirichlet", "beta": 0.3},
        "training": {"rounds": 4, "epochs": 2, "batch_size": 10, "lr": 0.1},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


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
    assert continued(rows, before, 3).tolist() == [[1, 0]] * 3 + [[0, 1]] * 4


def test_a_cluster_with_too_few_present_members_gives_no_model() -> None:
    rows = Rows([[0.0], [0.1], [0.2], [9.0], [9.1]])
    before = bits([[1, 0]] * 3 + [[0, 1], [1, 1]])
    assert continued(rows, before, 3).tolist() == [[1, 0]] * 5
    assert continued(rows, before, 2).tolist() == before.tolist()


def test_one_cluster_is_everybodys_however_small() -> None:
    rows = Rows([[0.0], [1.0], [2.0], [3.0]])
    assert continued(rows, bits([[1, 0], [0, 1], [0, 0], [0, 0]]), 3).tolist() in ([[1, 0]] * 4, [[0, 1]] * 4)


def test_without_rows_the_homeless_belong_to_all_that_is_left() -> None:
    before = bits([[1, 0, 0]] * 3 + [[0, 1, 0]] * 3 + [[0, 0, 1], [0, 0, 0]])
    found = settled(before, 3)
    assert found.tolist() == [[1, 0, 0]] * 3 + [[0, 1, 0]] * 3 + [[1, 1, 0]] * 2
    assert settled(bits([[1, 0], [0, 1], [0, 0]]), 3).sum(0).tolist() in ([3, 0], [0, 3])


def test_new_clusters_take_the_numbers_of_the_old_ones_they_resemble() -> None:
    before = bits([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
    now = bits([[0, 1], [0, 1], [1, 0], [1, 0], [1, 0]])
    assert renumbered(now, before).tolist() == [1, 0]
    assert sorted(renumbered(bits([[1, 0]] * 3), bits([[0, 0, 0]] * 3)).tolist()) == [0, 1]  # all new


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


# ---------------------------------------------------------------- whole runs


@pytest.mark.parametrize(
    ("scheme", "mitigation"),
    [
        ("paillier", "none"),
        ("paillier", "sketch"),
        ("bfv", "none"),
        ("bfv", "rearrange"),
        ("bfv", "sums"),
        pytest.param("paillier", "rearrange", marks=pytest.mark.slow),
        pytest.param("bfv", "sketch", marks=pytest.mark.slow),
    ],
)
def test_encrypted_and_clear_give_the_same_models(
    scheme: str, mitigation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With partial participation, drop-outs and unequal devices. All schemes compute on the same whole numbers."""
    models: dict[str, list[torch.Tensor]] = {}
    results = {}
    opened = fedcaprivacy._opened

    def issue(*arguments: Any) -> dict[str, dict[str, Any]]:
        """Moves and sketches go by block, and the clear scheme's would be of another size than the ciphertexts."""
        keys = issue_keys(*arguments)
        monkeypatch.setattr(ClearRows, "block", blinded.sealer(keys["bs"]["csp"]).block)
        return keys

    monkeypatch.setattr(fedcaprivacy, "issue_keys", issue)
    for how in (scheme, "none"):
        models[how] = []

        def keep(*arguments: Any, how: str = how) -> torch.Tensor:
            models[how].append(opened(*arguments))
            return models[how][-1]

        monkeypatch.setattr(fedcaprivacy, "_opened", keep)
        people = {"share": 0.7, "dropout": 0.2, "slowest": 0.2}
        algorithm = {"mitigation": mitigation, "alpha": 1.0, "min_size": 2}
        training = {"rounds": 3, "epochs": 2}
        results[how] = run(
            small(algorithm, clients=16, participation=people, training=training, encryption=how), quiet=True
        )
    hidden, clear = results.values()
    assert clear.state.memberships == hidden.state.memberships
    assert {r["extra"]["clustered"] for r in clear.records} == {0, 1}
    assert max(r["participants"] for r in clear.records) < 16
    assert len(models["none"]) == len(models[scheme]) >= 3
    for a, b in zip(models["none"], models[scheme], strict=True):
        assert torch.allclose(a, b, rtol=0, atol=2**-22)
    assert hidden.accuracy == clear.accuracy


class Watch:
    """An observer that keeps its views."""

    name = "watch"

    def __init__(self, vantage: str) -> None:
        self.vantage, self.memory, self.views = vantage, {}, list[View]()

    def begin(self, knowledge: Knowledge) -> None:
        self.keys = knowledge.keys

    def observe(self, view: View) -> None:
        self.views.append(view)

    def end_round(self, round: int) -> None:
        return None

    def finding(self, truth: Truth) -> Finding:
        return Finding(self.name, self.vantage, "", 0.0, 0.0, 0.0, 1.0)


def test_each_server_sees_its_own_part() -> None:
    experiment = small(encryption="bfv", training={"rounds": 2, "epochs": 1})
    csp, bs = Watch("csp"), Watch("bs")
    bs.name = "watch2"
    run(experiment, attacks=[csp, bs], quiet=True)
    assert {(v.sender, v.receiver) for v in csp.views} == {("bs", "csp"), ("csp", "bs")}
    assert {v.receiver for v in bs.views if v.sender == "client:3"} == {"bs"}
    uploads = [v.message for v in bs.views if v.sender.startswith("client:")]
    assert all(u.signature and len(u.nonce) == 16 for u in uploads) and len({u.sender for u in uploads}) == 12
    rows = [v.message for v in csp.views if isinstance(v.message, CoveredRound)]
    assert all(not hasattr(message, "order") for message in rows)
    with pytest.raises(CoveyError):  # what BS relays it cannot open with any key that it has
        blinded.opener(bs.keys["bs"]["csp"]).open(uploads[0].payload)
    with pytest.raises(CoveyError):  # the CSP opens no average: it went out under the participants' key
        blinded.opener(csp.keys["csp"]["opening"]).open(
            next(v for v in csp.views if v.sender == "csp").message.models[0]
        )


def test_a_client_holds_its_own_signing_key_and_no_other() -> None:
    watch = Watch("client:5")
    run(small(encryption="bfv", training={"rounds": 1, "epochs": 1}), attacks=[watch], quiet=True)
    assert set(watch.keys["client:5"]) == {"csp", "opening", "bs", "signing"}


def test_with_sketches_the_csp_sees_rows_only_when_it_clusters_and_never_whole() -> None:
    watch = Watch("csp")
    run(small({"mitigation": "sketch", "every": 3, "buckets": 2}, training={"rounds": 5}), attacks=[watch], quiet=True)
    rounds = [v.round for v in watch.views if isinstance(v.message, CoveredRound)]
    assert rounds == [1, 4]
    assert all(v.message.memberships is None for v in watch.views if isinstance(v.message, CoveredRound))
    sketches = [v.message for v in watch.views if isinstance(v.message, CoveredRound)]
    assert all(len(s.kept) == 2 and len(row) == 1 + 8 * 64 for s in sketches for row in s.rows)
    opener = blinded.opener(watch.keys["csp"]["opening"])
    seen = opener.open_covered(sketches[0].rows).offsets.astype(float)
    kept = np.zeros(64, bool)
    kept[sketches[0].kept] = True
    assert np.abs(seen[1:, kept]).max() < 2**30 < 2**50 < np.abs(seen[1:, ~kept]).min()  # else: numbers of 64 bits


def test_with_sums_the_csp_sees_rows_only_when_it_clusters_and_models_are_the_same() -> None:
    watch, training = Watch("csp"), {"rounds": 5}
    summed = run(small({"mitigation": "sums", "every": 3}, training=training), attacks=[watch], quiet=True)
    plain = run(small({"every": 3}, training=training), quiet=True)
    assert [v.round for v in watch.views if isinstance(v.message, CoveredRound)] == [1, 4]
    assert {v.round for v in watch.views if isinstance(v.message, two_servers.CoveredSums)} == {2, 3, 5}
    assert summed.state.memberships == plain.state.memberships
    assert [r["accuracy"] for r in summed.records] == [r["accuracy"] for r in plain.records]


def test_memberships_stay_with_their_participants_between_clusterings() -> None:
    """The trap: rows are shuffled anew in every round, so keeping labels by row would scramble them."""
    states: list[Any] = []
    result = run(small({"every": 100}), callbacks=[lambda _, state: states.append(state)], quiet=True)
    assert [r["extra"]["clustered"] for r in result.records] == [1, 0, 0, 0]
    assert len({tuple(r["extra"]["order"]) for r in result.records}) == 4
    assert all(state.memberships == states[0].memberships for state in states)
    packages = [{i: state.packages[n].clusters for i, n in state.package_of.items()} for state in states]
    assert all(p == packages[0] for p in packages) and len(set(map(str, packages[0].values()))) > 1
    scrambled: list[Any] = []
    run(small({"every": 100, "alignment": "scrambled"}), callbacks=[lambda _, s: scrambled.append(s)], quiet=True)
    last = {i: scrambled[-1].packages[n].clusters for i, n in scrambled[-1].package_of.items()}
    assert last != packages[-1]


def test_absent_participants_find_the_model_of_their_clusters_when_they_return() -> None:
    states: list[Any] = []
    people = {"drops": [[2, 0], [3, 0]]}
    run(small({"every": 100}, participation=people), callbacks=[lambda _, s: states.append(s)], quiet=True)
    before, after = (s.packages[s.package_of[0]] for s in (states[0], states[2]))
    assert before.clusters == after.clusters
    assert [m.round for m in after.models] == [3] * len(after.models)
    assert before.models[0].payload != after.models[0].payload


def test_a_round_with_too_few_participants_changes_no_model() -> None:
    states: list[Any] = []
    people = {"drops": [[2, i] for i in range(10)]}
    result = run(small(participation=people), callbacks=[lambda _, s: states.append(s)], quiet=True)
    assert states[1].models == states[0].models and result.records[1]["participants"] == 2
    assert states[2].models != states[1].models


def test_no_model_has_fewer_than_the_least_members() -> None:
    for seed in range(3):
        sizes: list[int] = []

        def look(record: dict[str, Any], state: Any) -> None:
            present = record["extra"]["order"]
            given = [set(state.packages[state.package_of[i]].clusters) for i in present]
            sizes.extend(sum(k in g for g in given) for k in set().union(*given))  # noqa: B023

        run(small({"min_size": 4}, seed=seed, participation={"share": 0.6}), callbacks=[look], quiet=True)
        assert min(sizes) >= 4


def test_aligned_memberships_beat_scrambled_ones() -> None:
    """Participants in two worlds: label sets that share no label."""
    table: dict[str, Any] = {
        "clusters": 2,
        "partition": {"name": "label_sets"},
        "training": {"rounds": 6, "epochs": 5, "batch_size": 10, "lr": 0.1},
    }
    kept, scrambled = (
        run(small({"every": 100, "alignment": how}, **table), quiet=True).accuracy["client_mean"]
        for how in ("kept", "scrambled")
    )
    assert kept > scrambled + 0.02


def test_an_interrupted_encrypted_run_resumes(tmp_path: Any) -> None:
    experiment = small(encryption="bfv", engine={"workers": 2, "checkpoint_every": 1})
    whole = run(experiment, quiet=True)

    class Stop(KeyboardInterrupt):
        pass

    def interrupt(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(experiment, out=tmp_path, callbacks=[interrupt], quiet=True)
    resumed = run(experiment, out=tmp_path, resume=True, quiet=True)
    assert [r["accuracy"] for r in resumed.records] == [r["accuracy"] for r in whole.records]


def test_what_cannot_work_is_refused() -> None:
    for bad in (
        {"mitigation": "rotate"},
        {"alignment": "x"},
        {"min_size": 1},
        {"alpha": -1.0},
        {"gamma": 0.0},
        {"noise": 1.0},
        {"draw": "dice"},
    ):
        with pytest.raises(CoveyError, match="algorithm\\."):
            FedCAPrivacy(**bad)
    with pytest.raises(CoveyError, match="personal"):
        run(small(layers={"personal": 1}, model="fcnn"), quiet=True)
    with pytest.raises(CoveyError, match="ckks"):
        small(encryption="ckks")


def test_nothing_but_torch_and_numpy_is_needed_in_the_clear() -> None:
    """Full-size runs happen on machines that have nothing else."""
    import subprocess
    import sys

    code = (
        "import sys\n"
        "for name in ('scipy', 'sklearn', 'gmpy2', 'seal', 'cryptography', 'numba', 'rbcl', 'ot'):\n"
        "    sys.modules[name] = None\n"
        "import numpy as np\n"
        "from covey.algorithms.fedcaprivacy import FedCAPrivacy\n"
        "from covey.algorithms.envelopes import issue_keys, seal_model\n"
        "from covey.clustering.spectral import soft_spectral\n"
        "seal_model(issue_keys('none', 3, 2048)['clients'], 0, 1, np.zeros(9))\n"
        "soft_spectral(np.random.default_rng(0).normal(size=(9, 4)), 2, 0.5, np.random.default_rng(0))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_start_is_the_common_model_until_one_has_clusters() -> None:
    assert two_servers.BusinessServer({}, 2, 3, 1.0).begin().packages[0].group == -1
    result = run(small(training={"rounds": 1, "epochs": 1}, participation={"share": 0.5}), quiet=True)
    assert set(result.state.package_of) == set(result.records[0]["extra"]["order"])
    assert torch.isfinite(torch.tensor(result.accuracy["client_mean"]))


def test_packages_share_their_models_when_stored_and_sent() -> None:
    """Every set of clusters has a package; a model that is in many of them is stored once and is one object again."""
    blob = bytes(5000)
    envelope = Envelope("bs", "p", 1, 0, b"", blob, b"")
    packages = [envelopes.Package(n, [0], [envelope], [1]) for n in range(5)]
    stored = encode(packages)
    assert len(stored) < 2 * len(blob)
    back = decode(stored)
    assert back == packages and back[0].models[0].payload is back[4].models[0].payload
    short, mutable = b"x" * 10, bytearray(3000)
    mixed = [short, short, mutable, blob, torch.ones(3), blob, torch.zeros(2)]
    again = decode(encode(mixed))
    assert again[:4] == [short, short, bytes(mutable), blob] and again[5] == blob
    assert torch.equal(again[4], torch.ones(3)) and torch.equal(again[6], torch.zeros(2))
