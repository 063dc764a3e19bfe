"""FedCAPrivacy in whole runs: encrypted equals clear, views, mitigations, alignment, drop-outs, resuming, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.fedcaprivacy import envelopes, fedcaprivacy, two_servers
from covey.algorithms.fedcaprivacy.envelopes import Envelope, issue_keys
from covey.algorithms.fedcaprivacy.fedcaprivacy import FedCAPrivacy
from covey.algorithms.fedcaprivacy.two_servers import CoveredRound
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.crypto.blinded import blinded
from covey.crypto.blinded.clear import ClearRows
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.messages import decode, encode
from covey.rounds.loop import run
from support.patience import PATIENCE


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
    opened = fedcaprivacy._open_package

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

        monkeypatch.setattr(fedcaprivacy, "_open_package", keep)
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
    assert np.abs(seen[1:, kept]).max() < 2**30  # weights, and else numbers of 64 bits
    assert np.median(np.abs(seen[1:, ~kept])) > 2**60


def test_with_sums_the_csp_sees_rows_only_when_it_clusters_and_models_are_the_same() -> None:
    watch, training = Watch("csp"), {"rounds": 5}
    summed = run(small({"mitigation": "sums", "every": 3}, training=training), attacks=[watch], quiet=True)
    plain = run(small({"every": 3}, training=training), quiet=True)
    assert [v.round for v in watch.views if isinstance(v.message, CoveredRound)] == [1, 4]
    assert {v.round for v in watch.views if isinstance(v.message, two_servers.CoveredSums)} == {2, 3, 5}
    assert summed.state.memberships == plain.state.memberships
    assert [r["accuracy"] for r in summed.records] == [r["accuracy"] for r in plain.records]


def test_every_clustering_notes_whether_gamma_fits() -> None:
    """The trap: γ must fit the distances between models. All affinities near 0 or near 1 would say that it does not."""
    fits, small_gamma = (run(small({"every": 2, "median": False, "gamma": g}), quiet=True).records for g in (0.5, 1e-4))
    for record in fits:
        assert (
            ("eigengap" in record["extra"]) == ("affinity_quantiles" in record["extra"]) == (record["round"] % 2 == 1)
        )
    low, _, middle, _, high = fits[0]["extra"]["affinity_quantiles"]
    assert 0 < low < middle < high < 1 and np.isfinite(fits[0]["extra"]["eigengap"])
    assert small_gamma[0]["extra"]["affinity_quantiles"][-1] < 1e-6


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
        "from covey.algorithms.fedcaprivacy.fedcaprivacy import FedCAPrivacy\n"
        "from covey.algorithms.fedcaprivacy.envelopes import issue_keys, seal_model\n"
        "from covey.clustering.spectral import soft_spectral\n"
        "seal_model(issue_keys('none', 3, 2048)['clients'], 0, 1, np.zeros(9))\n"
        "soft_spectral(np.random.default_rng(0).normal(size=(9, 4)), 2, 0.5, np.random.default_rng(0))\n"
        "del sys.modules['cryptography']  # boxes between clients want it, and it is everywhere\n"
        "import covey.algorithms.ifca, covey.algorithms.routing, covey.algorithms.mingledpie.mingledpie\n"
        "from covey.crypto import fmd\n"
        "from covey.crypto.sealing import ring\n"
        "from covey.errors import CoveyError\n"
        "for needy in (fmd._group, lambda: ring.prime(4096, 50)):\n"
        "    try:\n"
        "        needy()\n"
        "        raise SystemExit('it was there')\n"
        "    except CoveyError as e:\n"
        "        assert 'pip install' in str(e)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


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
