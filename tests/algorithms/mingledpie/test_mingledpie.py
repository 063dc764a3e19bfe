"""MingledPie end to end: what it shares with IFCA, what crosses the wire, who holds which key, and what is remembered."""

from __future__ import annotations

import os
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey.algorithms.contract import Client, Server, Setting, make_keys
from covey.algorithms.mingledpie import mingledpie
from covey.algorithms.mingledpie.mingledpie import MingledPie, MingledSums, MingledUpdate
from covey.algorithms.rebuild import rebuild_models, recall
from covey.algorithms.routing import Routing
from covey.algorithms.sums.openings import Seals
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.crypto.identity_math import guess_accuracy
from covey.crypto.sealing import sealing
from covey.engines import start
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.work import Compute, Plan
from covey.messages import decode, encode
from covey.rounds.loop import run


def small(algorithm: Any = "mingledpie", **more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": algorithm,
        "clients": 20,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 4, "epochs": 2, "batch_size": 10, "lr": 0.1},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


def setting(encryption: str = "none", k: int = 3, d: int = 4, clients: int = 6) -> Setting:
    start = torch.arange(float(k * d)).reshape(k, d) / 10
    return Setting(0, clients, k, 5, Plan(), start, torch.ones(d, dtype=torch.bool), encryption)


def client(
    made: Setting, keys: dict[str, Any], i: int = 0, round: int = 1, memory: dict[str, Any] | None = None
) -> Client:
    mine = {} if memory is None else memory
    return Client(i, round, 0, 1, Plan(), made, mine, keys["clients"], data=lambda: None)  # type: ignore


def final_models(result: Any) -> torch.Tensor:
    """What clients rebuild from the last broadcast of a run without encryption."""
    k = 5
    keys = sealing.generate_keys("none")
    opened, counts = mingledpie.open_sums(Seals(keys), result.state, k)
    return torch.from_numpy(np.linalg.lstsq(counts, opened[:k].numpy(), rcond=None)[0]).float()


def test_without_false_identities_it_is_ifca() -> None:
    """A set of one hides nothing and mingles nothing: the same models, to floating-point noise."""
    ours = run(small({"name": "mingledpie", "rate": 2.0**-30, "threshold": 1}), quiet=True)
    theirs = run(small("ifca"), quiet=True)
    assert [r["clusters"] for r in ours.records] == [r["clusters"] for r in theirs.records]
    assert torch.allclose(final_models(ours), theirs.state.models, atol=2e-6)


def test_exact_routing_is_ifca() -> None:
    ours, theirs = run(small("routing"), quiet=True), run(small("ifca"), quiet=True)
    for a, b in zip(ours.records, theirs.records):
        assert a["clusters"] == b["clusters"]
        assert a["accuracy"]["client_mean"] == pytest.approx(b["accuracy"]["client_mean"], abs=3e-3)


@pytest.mark.parametrize("scheme", ["ckks", "bfv"])
def test_every_scheme_gives_the_same_models(scheme: str) -> None:
    made = {s: run(small(encryption=s), quiet=True) for s in ("none", scheme)}
    plain, sealed = made["none"], made[scheme]
    assert [r["clusters"] for r in plain.records] == [r["clusters"] for r in sealed.records]
    for a, b in zip(plain.records, sealed.records):
        assert a["extra"].get("mingled") == b["extra"].get("mingled")
        assert a["accuracy"]["client_mean"] == pytest.approx(b["accuracy"]["client_mean"], abs=3e-3)
    assert np.array(plain.records[-1]["extra"]["mingled"]).shape == (5, 5)
    assert sealed.bytes["up"] > 3 * plain.bytes["up"]


def test_one_round_agrees_to_the_error_of_the_scheme() -> None:
    models = {}
    for scheme in ("none", "ckks", "bfv"):
        made = setting(scheme)
        keys = make_keys(MingledPie(), made)
        seals = Seals(keys["clients"]["sealing"])
        mixer = sealing.mixer(keys["server"]["sealing"], 3, 7)
        sizes = [0, 0, 0]
        for i in range(6):
            theta = torch.linspace(-1, 1, 4) * (i + 1)
            shown = sorted({i % 3, (i * i + 1) % 3})
            mixer.add(mingledpie.seal_with_indicator(seals, theta, i % 3, 3)[0], shown)
            for j in shown:
                sizes[j] += 1
        opened, counts = mingledpie.open_sums(seals, MingledSums(mixer.sums(), sizes), 3)
        models[scheme] = MingledPie()._rebuild(made, MingledSums([], sizes), opened, counts).models
    assert torch.allclose(models["none"], models["ckks"], atol=1e-6)
    assert torch.allclose(models["none"], models["bfv"], atol=1e-6)


def test_the_server_holds_no_key_and_sees_no_model() -> None:
    made = setting("ckks")
    keys = make_keys(MingledPie(), made)
    assert b"secret" in keys["clients"]["sealing"] and b"secret" not in keys["server"]["sealing"]
    with pytest.raises(CoveyError, match="not a client's keys"):
        sealing.sealer(keys["server"]["sealing"])
    assert decode(encode(keys)) == keys  # key material of plain types only: it can be checkpointed

    class Watch:
        name, vantage = "watch", "server"

        def __init__(self) -> None:
            self.memory: dict[str, Any] = {}
            self.views: list[View] = []

        def begin(self, knowledge: Knowledge) -> None:
            self.keys = knowledge.keys

        def observe(self, view: View) -> None:
            self.views.append(view)

        def end_round(self, round: int) -> None: ...

        def finding(self, truth: Truth) -> Finding:
            return Finding("watch", "server", "none", 0, 0, 0, 0)

    watch = Watch()
    run(small(encryption="ckks", training={"rounds": 2}), attacks=[watch], quiet=True)
    assert b"secret" not in watch.keys["server"]["sealing"]
    for view in watch.views:
        tree = vars(view.message)
        assert not any(isinstance(v, torch.Tensor | np.ndarray) for v in tree.values())
        if isinstance(view.message, MingledUpdate):
            assert set(tree) == {"identities", "sealed", "boxes", "turn"}
            assert view.message.boxes is None and view.message.turn is None
            assert 2 <= len(view.message.identities) <= 5


def test_the_other_reading_of_the_threshold_asks_for_one_more() -> None:
    experiment = small({"name": "mingledpie", "reading": "false", "threshold": 2})
    made = setting(k=5)
    keys = make_keys(experiment.algorithm, made)
    sets = [experiment.algorithm._show(client(made, keys, i), i % 5) for i in range(40)]
    assert min(map(len, sets)) == 3
    assert min(len(MingledPie()._show(client(made, keys, i), i % 5)) for i in range(40)) == 2
    assert Experiment.of(experiment.table()) == experiment  # every field can stand in a TOML file


def test_clients_refuse_cluster_keys_that_do_not_belong_together() -> None:
    made = setting(k=3)
    keys = make_keys(MingledPie(), made)
    public = keys["clients"]["identities"]
    crossed = {**public, "publics": public["publics"][::-1]}
    with pytest.raises(CoveyError, match="cluster 0 does not belong to its address"):
        MingledPie()._show(client(made, {"clients": keys["clients"] | {"identities": crossed}}), 0)


def test_sets_are_remembered_per_identity_or_redrawn() -> None:
    made = setting(k=3)
    keys = make_keys(MingledPie(), made)

    def shown(algorithm: MingledPie, choices: list[int]) -> list[list[int]]:
        memory: dict[str, Any] = {}
        return [algorithm._show(client(made, keys, 0, t, memory), j) for t, j in enumerate(choices)]

    flips = [0, 1, 0] * 10
    kept = shown(MingledPie(), flips)
    assert len({tuple(s) for s in kept[0::3]}) == 1 and kept[0] == kept[2]
    changed = shown(MingledPie(remember="change"), flips)
    assert len({tuple(s) for s in changed[0::3]}) > 1
    assert len({tuple(s) for s in shown(MingledPie(remember="change"), [0] * 20)}) == 1
    assert len({tuple(s) for s in shown(MingledPie(remember="never"), [0] * 20)}) > 1
    assert all(j in s and len(s) >= 2 for j, s in zip(flips, kept))


def test_a_cluster_that_empties_keeps_its_model_and_hosts_store_it_once() -> None:
    made = setting()
    memory: dict[int, dict[str, Any]] = {0: {}, 1: {}}
    full = rebuild_models(torch.arange(12.0).reshape(3, 4), [True] * 3, made)
    lost = rebuild_models(torch.ones(3, 4), [True, False, True], made)

    def models(i: int, found: Any) -> torch.Tensor:
        turn = recall(client(made, {"clients": {}}, i, memory=memory[i]), found)
        answer = None
        while True:
            try:
                work = turn.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            assert isinstance(work, Compute)
            answer = work.function(*work.arguments)

    assert models(0, full) is full.models  # no copy per client
    assert torch.equal(models(0, lost)[1], full.models[1]) and torch.equal(models(0, lost)[0], torch.ones(4))
    assert torch.equal(models(1, lost)[1], made.start[1])  # this one was away: it falls back to what it knows
    long = list(torch.zeros(3, 10_000).unbind(0))
    many = {i: {"models": long} for i in range(100)}
    assert len(encode(many)) < 1.1 * len(encode({0: {"models": long}}))
    back = decode(encode(many))
    assert back[0]["models"][0] is back[99]["models"][0]


def test_a_cluster_whose_clients_are_away_keeps_its_model() -> None:
    """Cluster 4's clients miss rounds 3 and 4: their model stays what round 2 made it, as IFCA keeps it."""
    drops = [[t, i] for t in (3, 4) for i in range(16, 20)]
    alone = {"name": "mingledpie", "rate": 2.0**-30, "threshold": 1, "history": 3}
    ours = run(small(alone, participation={"drops": drops}), quiet=True)
    theirs = run(small("ifca", participation={"drops": drops}), quiet=True)
    assert len(ours.state.past) == 2 and not np.array(ours.records[-1]["extra"]["mingled"])[:, 4].any()
    assert ours.accuracy["per_cluster"] == pytest.approx(theirs.accuracy["per_cluster"], abs=3e-3)
    without = run(small(alone | {"history": 1}, participation={"drops": drops}), quiet=True)
    assert not without.state.past
    assert (
        without.accuracy["per_cluster"][4] < theirs.accuracy["per_cluster"][4]
    )  # these clients know round 1's model only


def test_lost_or_altered_contributions_are_noticed() -> None:
    made = setting()
    keys = make_keys(MingledPie(), made)["clients"]["sealing"]
    blobs = [mingledpie.seal_with_indicator(Seals(keys), torch.zeros(4), j, 3)[0] for j in range(3)]
    with pytest.raises(CoveyError, match="lost, doubled or altered"):
        mingledpie.open_sums(Seals(keys), MingledSums(blobs, [1, 1, 2]), 3)
    half = sealing.sealer(keys).seal(np.array([0, 0, 0, 0, 0.5, 0.5, 0.0]))
    with pytest.raises(CoveyError):
        mingledpie.open_sums(Seals(keys), MingledSums([half, *blobs[1:]], [1, 1, 1]), 3)


def test_weights_outside_the_range_and_nan_are_refused_before_encryption() -> None:
    keys = make_keys(MingledPie(bound=2.0), setting("ckks"))["clients"]["sealing"]
    for bad in (torch.tensor([0.0, 3.0, 0, 0]), torch.tensor([0.0, float("nan"), 0, 0])):
        with pytest.raises(CoveyError, match="largest magnitude"):
            mingledpie.seal_with_indicator(Seals(keys), bad, 0, 3)


def test_shared_layers_are_the_mean_over_all_clients() -> None:
    plain = {"rate": 2.0**-30, "threshold": 1}
    ours = run(small({"name": "mingledpie", **plain}, layers={"personal": 1}), quiet=True)
    theirs = run(small("ifca", layers={"personal": 1}), quiet=True)
    assert len(ours.state.sums) == 6
    for a, b in zip(ours.records, theirs.records):
        assert a["clusters"] == b["clusters"]
        assert a["accuracy"]["client_mean"] == pytest.approx(b["accuracy"]["client_mean"], abs=3e-3)


STEADY = {"name": "mingledpie", "rebuild": "steady"}


@pytest.mark.parametrize("algorithm", ["mingledpie", STEADY, "routing"])
def test_drop_outs_joiners_and_resuming(tmp_path: Path, algorithm: Any) -> None:
    schedule = {"initial": 12, "join": 4, "join_every": 1, "dropout": 0.2}
    experiment = small(algorithm, participation=schedule, partition={"in_turn": True}, engine={"checkpoint_every": 1})
    whole = run(experiment, quiet=True)
    assert whole.records[-1]["participants"] > whole.records[0]["participants"]

    def stop(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, out=tmp_path, callbacks=[stop], quiet=True)
    again = run(experiment, out=tmp_path, resume=True, quiet=True)
    assert [r["clusters"] for r in again.records] == [r["clusters"] for r in whole.records]
    assert again.accuracy["client_mean"] == pytest.approx(whole.accuracy["client_mean"], abs=3e-3)


def test_a_steady_rebuild_of_the_same_sums_is_the_same_however_often_it_is_asked_for() -> None:
    """Clients rebuild for an evaluation and again for the next round: the second must not start from the first."""
    often, seldom = (run(small(STEADY, evaluation={"every": n}), quiet=True) for n in (1, 4))
    assert [r["clusters"] for r in often.records] == [r["clusters"] for r in seldom.records]
    assert often.accuracy == seldom.accuracy
    plain = run(small("mingledpie", training={"rounds": 1}), quiet=True)
    assert often.bytes["up"] == plain.bytes["up"]  # nothing else is sent
    assert often.records[-1]["bytes"]["down"] == seldom.records[-1]["bytes"]["down"]


def test_aggregation_memory_does_not_grow_with_the_clients() -> None:
    d, k = 20_000, 4
    peaks = []
    for n in (60, 240):
        made = Setting(0, n, k, 5, Plan(), torch.zeros(k, d), torch.ones(d, dtype=torch.bool), "none")
        keys = make_keys(MingledPie(), made)
        server = Server(1, 0, made, keys["server"], lambda *_: None, lambda _: None)  # type: ignore
        seals = Seals(keys["clients"]["sealing"])
        stream = (
            (i, MingledUpdate([i % k], mingledpie.seal_with_indicator(seals, torch.ones(d), i % k, k)[0]))
            for i in range(n)
        )
        tracemalloc.start()
        MingledPie().aggregate(server, MingledSums([], [0] * k), stream)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_no_reply_at_all_keeps_the_state() -> None:
    for algorithm in (MingledPie(), Routing()):
        made = setting()
        server = Server(1, 0, made, make_keys(algorithm, made)["server"], lambda *_: None, lambda _: None)  # type: ignore
        before = algorithm.start(made)
        assert algorithm.aggregate(server, before, iter(())) is before


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(CoveyError, match="rebuild"):
        MingledPie(rebuild="ideel")
    with pytest.raises(CoveyError, match="between 0 and 1"):
        MingledPie(rate=1.0)
    with pytest.raises(CoveyError, match="Threshold"):
        make_keys(MingledPie(threshold=9), setting())
    with pytest.raises(CoveyError, match="cannot run with encryption"):
        small(encryption="paillier")


@dataclass(frozen=True)
class Summing(MingledPie):
    """An aggregate of one's own, written for one client after the other."""

    def aggregate(self, server: Server, state: MingledSums, replies: Any) -> MingledSums:
        k, d = server.setting.start.shape
        mixer, sizes = sealing.mixer(server.keys["sealing"], k, d + k), [0] * k
        for _, reply in replies:
            mixer.add(reply.sealed, reply.sums)
            for cluster in reply.sums:
                sizes[cluster] += 1
        return MingledSums(mixer.sums(), sizes)


@pytest.mark.parametrize("turns", [False, True])
def test_an_own_aggregate_reads_the_sums_of_one_client(turns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    mine, ours = (run(small(kind(turns=turns)), quiet=True) for kind in (Summing, MingledPie))
    assert mine.state == ours.state


def test_the_default_run_names_its_closed_form() -> None:
    from covey.experiment.presets import DEFAULT, PRESETS
    from covey.report.terminal import closing_lines

    assert DEFAULT == "mingledpie-digits"
    result = run(Experiment.of(PRESETS[DEFAULT], training={"rounds": 2}, engine={"workers": 1}), quiet=True)
    found = result.attacks["a1"]
    assert found["details"]["closed form"] == pytest.approx(guess_accuracy(5, 0.5, 2))
    assert found["low"] < found["details"]["closed form"] < found["high"]
    assert any("closed form expects 0.347" in line for line in closing_lines(result))


def ablation(**more: Any) -> dict[str, float]:
    scores = {}
    for how in ("counts", "none", "ideal"):
        table = small({"name": "mingledpie", "rebuild": how}, evaluation={"every": 50}, **more)
        scores[how] = run(table, quiet=True).accuracy["average_cluster"]
    return scores


def test_broken_rebuilds_are_broken() -> None:
    """The digits are too easy for mingled means to collapse; the ideal matrix does."""
    training = {"rounds": 8, "steps": 5, "batch_size": 0, "lr": 0.3}
    scores = ablation(clients=40, training=training)
    assert scores["counts"] > 0.97 and scores["counts"] > scores["none"]
    assert scores["counts"] - scores["ideal"] >= 0.15


@pytest.mark.slow
@pytest.mark.skipif("COVEY_DATA" not in os.environ, reason="MNIST is read from COVEY_DATA, which is not set")
def test_broken_rebuilds_collapse_on_mnist() -> None:
    """Table V: both at least 15 points below."""
    training = {"rounds": 30, "steps": 5, "batch_size": 0, "lr": 0.01}
    partition = {"name": "label_sets", "samples": 450, "public": 200}
    scores = ablation(dataset="mnist", clients=120, training=training, partition=partition, engine={"workers": 0})
    assert scores["counts"] > 0.96
    assert scores["counts"] - max(scores["none"], scores["ideal"]) >= 0.15


def test_the_server_is_never_handed_what_clients_hold() -> None:
    """The loop gives the server's code its own keys only: no decryption key can be used there by mistake."""
    from dataclasses import dataclass

    from covey import Experiment, run
    from covey.algorithms.mingledpie.mingledpie import MingledPie

    held: list[dict[str, Any]] = []

    @dataclass(frozen=True)
    class Watched(MingledPie):
        def aggregate(self, server: Any, state: Any, replies: Any) -> Any:
            held.append(dict(server.keys))
            return super().aggregate(server, state, replies)

    table = {
        "dataset": "digits",
        "clients": 10,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 1},
    }
    run(Experiment.of(table, algorithm=Watched(), encryption="ckks", engine={"workers": 1}), quiet=True)
    assert [set(keys) for keys in held] == [{"sealing", "identities"}] and b"secret" not in held[0]["sealing"]


@pytest.mark.parametrize(("fields", "clusters"), [({"threshold": 2}, 2), ({"threshold": 2, "reading": "false"}, 3)])
def test_a_threshold_that_shows_every_cluster_is_refused(fields: dict[str, Any], clusters: int) -> None:
    made = Setting(0, 4, clusters, 1, Plan(), torch.zeros(clusters, 3), torch.ones(3, dtype=torch.bool), "none")
    with pytest.raises(CoveyError, match="no model could be rebuilt"):
        make_keys(MingledPie(**fields), made)
