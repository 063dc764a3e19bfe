"""PQFed through the real loop: who takes part, what crosses the wire, what it costs, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from covey import config
from covey.algorithms.contract import Server, Setting
from covey.algorithms.pqfed.features import Features, NoisyFeatures, public_features
from covey.algorithms.pqfed.pqfed import PQFed
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.cli.main import main
from covey.data.federation import Federation
from covey.data.sources.load import load
from covey.engines.prepare import prepare
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.learn.work import Plan
from covey.rounds.loop import run
from covey.rounds.result import Result

INF = float("inf")


def small(algorithm: Any = None, **more: Any) -> Experiment:
    """The target and eight clients of dissimilarity 0 … 1 on digits; full batches, so that rounds differ in nothing else."""
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": algorithm or {"name": "pqfed"},
        "clients": 9,
        "clusters": 1,
        "model": "softmax",
        "partition": {"name": "feature_clusters", "components": 20, "rows": 40, "public": 100},
        "start": {"pretrain_epochs": 0},
        "training": {"rounds": 4, "epochs": 2, "batch_size": 0, "lr": 0.5},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


def pqfed(**fields: Any) -> dict[str, Any]:
    return {"name": "pqfed", "components": 20, "epsilon": INF} | fields


def longer(rounds: int) -> dict[str, Any]:
    return {"rounds": rounds, "epochs": 2, "batch_size": 0, "lr": 0.5}


@dataclass
class Recorder:
    """An honest server that keeps everything it sees."""

    name: ClassVar[str] = "recorder"
    vantage: str = "server"
    memory: dict[str, Any] = field(default_factory=dict)

    def begin(self, knowledge: Knowledge) -> None:
        self.seen: list[View] = []

    def observe(self, view: View) -> None:
        self.seen.append(view)

    def end_round(self, round: int) -> None:
        pass

    def finding(self, truth: Truth) -> Finding:
        return Finding("recorder", "server", "none", 0.0, 0.0, 0.0, 0.0)


def states(experiment: Experiment, **more: Any) -> tuple[Result, list[Any]]:
    kept: list[Any] = []
    return run(experiment, callbacks=[lambda record, state: kept.append(state)], quiet=True, **more), kept


@pytest.mark.parametrize(
    "under", ["fedavg", {"name": "fedprox", "mu": 0.5}, {"name": "feddyn", "alpha": 0.3}, "scaffold"]
)
def test_everybody_together_is_the_algorithm_underneath(under: Any) -> None:
    plain, alone = states(small(under, training=longer(3)))
    above, together = states(small(pqfed(strategy="all", under=under)))
    models = [getattr(s, "sent", s).model for s in alone]
    inner = [s.inner[0] for s in together[1:]]
    for a, b in zip(models, (getattr(s, "sent", s).model for s in inner)):
        assert torch.allclose(a, b, atol=1e-6)
    assert above.accuracy["target"] == pytest.approx(plain.accuracy["target"], abs=3e-3)


def test_only_near_clients_train_and_only_they_hear_more() -> None:
    recorder = Recorder()
    result, kept = states(small(pqfed()), attacks=[recorder])
    group = kept[0].groups[0]
    distances = np.array(result.records[0]["extra"]["earth_movers"])
    assert set(group) == {i for i in range(9) if distances[i] <= 0.3 * distances.max()}
    assert 0 in group and 1 in group and 8 not in group
    assert [r["participants"] for r in result.records] == [9, *[len(group)] * 3]
    later = {v.sender for v in recorder.seen if v.round > 1} | {v.receiver for v in recorder.seen if v.round > 1}
    assert later == {"server", *(f"client:{i}" for i in group)}
    assert result.records[0]["extra"]["group_size"] == len(group)


def test_what_the_server_gets_are_noisy_coordinates_of_every_sample() -> None:
    recorder = Recorder()
    experiment = small(pqfed(epsilon=50.0), training=longer(1))
    federation, _, setting = prepare(experiment)
    run(experiment, attacks=[recorder], quiet=True)
    sent = {v.receiver: v.message for v in recorder.seen if v.sender == "server"}
    assert len({id(m) for m in sent.values()}) == 1 and isinstance(sent["client:0"], Features)
    got = {v.sender: v.message for v in recorder.seen if v.receiver == "server"}
    assert {type(m) for m in got.values()} == {NoisyFeatures}
    features = sent["client:3"]
    data = federation.dataset
    x = torch.from_numpy(data.x_train[federation.clients[3]].astype(np.float32) * network_scale(setting, federation))
    exact = features.project(x)
    assert got["client:3"].rows.shape == exact.shape == (120, 20)
    off = (got["client:3"].rows - exact).abs().mean(0)
    assert off.numpy() == pytest.approx(((features.high - features.low) / 50).numpy(), rel=0.5)


def network_scale(setting: Setting, federation: Federation) -> float:
    """From stored pixels to what a network reads, found from the public samples that the setting carries."""
    assert setting.public is not None
    stored = federation.dataset.x_train[federation.public[0]]
    return float(setting.public[0].max()) / float(stored.max())


def test_public_bounds_hold_and_own_ranges_do_not_travel() -> None:
    _, _, setting = prepare(small())
    bounded = public_features(setting, 20, True)
    far = bounded.project(100 * torch.randn(50, 64, generator=torch.Generator().manual_seed(0)))
    assert (far >= bounded.low).all() and (far <= bounded.high).all()
    free = public_features(setting, 20, False)
    assert free.low is None and free.high is None
    assert torch.allclose(free.axes.T @ free.axes, torch.eye(20), atol=1e-4)


def test_the_ledger_shows_coordinate_and_record() -> None:
    result = run(small(pqfed(epsilon=40.0, reselect=1, strategy="lenient"), training=longer(3)), quiet=True)
    entry = result.privacy["laplace"]  # rounds 1 and 3 select
    assert entry["per_step"] == {"per_coordinate": 40.0, "per_record": 800.0, "coordinates": 20}
    assert entry["epsilon"] == 1600.0 and entry["total"]["releases"] == 2
    assert entry["sensitivity"]["from"] == "public bound"
    own = run(small(pqfed(epsilon=40.0, sensitivity="data", strategy="lenient"), training=longer(1)), quiet=True)
    assert own.privacy["laplace"]["sensitivity"]["from"] == "private data"
    assert "leaks itself" in own.privacy["laplace"]["caveat"]


def test_every_client_as_target_is_each_of_them_alone() -> None:
    _, everyone = states(small(pqfed(target=-1, under={"name": "feddyn", "alpha": 0.3}), training=longer(3)))
    groups, inner = everyone[-1].groups, everyone[-1].inner
    assert sorted(groups) == list(range(9))
    assert all(group[0] == t for t, group in groups.items())
    for target in (0, 4, 8):
        _, alone = states(small(pqfed(target=target, under={"name": "feddyn", "alpha": 0.3}), training=longer(3)))
        assert alone[-1].groups[target] == groups[target]
        assert torch.allclose(alone[-1].inner[target].sent.model, inner[target].sent.model, atol=1e-6)


def test_a_matrix_of_similarities_is_recorded_for_all() -> None:
    result = run(small(pqfed(target=-1), training=longer(2)), quiet=True)
    matrix = np.array(result.records[0]["extra"]["earth_movers"])
    assert matrix.shape == (9, 9) and (matrix == matrix.T).all() and (np.diag(matrix) == 0).all()
    assert matrix[0].argmax() == 8  # the client with nothing of the target's
    groups = result.records[0]["extra"]["collaborators"]
    assert sorted(groups, key=int) == [str(t) for t in range(9)]
    for t, group in groups.items():  # itself, then those within 30 % of its farthest, the nearest first
        near = [i for i in np.argsort(matrix[int(t)], kind="stable") if matrix[int(t), i] <= 0.3 * matrix[int(t)].max()]
        assert group[0] == int(t) and group[1:] == [i for i in near if i != int(t)]


@pytest.mark.parametrize(("target", "says"), [(-1, "Recommended groups"), (0, "Who is near the target")])
def test_the_report_shows_who_learns_with_whom(tmp_path: Path, target: int, says: str) -> None:
    result = run(small(pqfed(target=target), training=longer(2)), out=tmp_path, quiet=True)
    page = (tmp_path / "report.html").read_text()
    assert says in page and ("How far clients are from each other" in page) == (target < 0)
    chosen = result.records[0]["extra"]["collaborators"]["0"][1:]
    assert (", ".join(map(str, chosen)) if target < 0 else f"client {chosen[0]} · chosen") in page


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["partition.public=10"], "10 public samples of 64 values cannot give 20 principal components"),
        (["algorithm.epsilon=0"], "algorithm.epsilon is 0.0"),
        (["partition.rates=[0, 0, 0, 0, 0, 0, 0, 0]", "algorithm.epsilon=inf"], "the clients are alike"),
        (["partition.rows=1", "partition.picked=1", "algorithm.sensitivity=data"], "one sample spans no range"),
    ],
)
def test_the_command_line_says_what_is_wrong_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: list[str], says: str
) -> None:
    (tmp_path / "small.toml").write_text(config.to_toml(small(pqfed(epsilon=10.0)).table()))
    sets = [part for one in settings for part in ("--set", one)]
    code = main(["run", str(tmp_path / "small.toml"), *sets, "--out", str(tmp_path / "r")])
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 2 and last.startswith("covey: ") and says in last


@pytest.fixture(scope="module")
def searched() -> tuple[Result, list[Any]]:
    fields = pqfed(strategy="incremental", step_rounds=1, validation=0.3)
    training = {"rounds": 17, "epochs": 3, "batch_size": 10, "lr": 1.0}
    return states(small(fields, training=training))


def test_the_incremental_search_stops_at_the_first_drop(searched: tuple[Result, list[Any]]) -> None:
    result, kept = searched
    validations = [r["extra"]["validation"] for r in result.records if "validation" in r["extra"]]
    assert kept[-1].phase == "done"
    assert len(validations) < 8  # it did not go through all
    assert validations[:-1] == sorted(validations[:-1]) and validations[-1] < validations[-2]
    done = 1 + 2 * len(validations)
    assert [r["participants"] for r in result.records] == [9, *[2, 1] * len(validations), *[0] * (17 - done)]
    # Evaluated after training in round 2 s, the model of step s is what stays when step s + 1 drops.
    before_the_drop = result.records[2 * (len(validations) - 1) - 1]["accuracy"]["target"]
    assert result.accuracy["target"] == before_the_drop


def test_without_a_stop_all_are_tried_and_the_same_model_stays(searched: tuple[Result, list[Any]]) -> None:
    fields = pqfed(strategy="incremental", step_rounds=1, validation=0.3, stop=False)
    training = {"rounds": 17, "epochs": 3, "batch_size": 10, "lr": 1.0}
    result, kept = states(small(fields, training=training))
    assert kept[-1].phase == "done"
    assert [r["participants"] for r in result.records] == [9, *[2, 1] * 8]
    assert result.accuracy["target"] == searched[0].accuracy["target"]


def test_the_target_never_trains_on_what_it_judges_by() -> None:
    recorder = Recorder()
    experiment = small(pqfed(strategy="incremental", step_rounds=1, validation=0.25), training=longer(3))
    run(experiment, attacks=[recorder], quiet=True)
    replies = {v.sender: v.message for v in recorder.seen if v.round == 2 and v.receiver == "server"}
    assert replies.pop("client:0").samples == 90
    assert [r.samples for r in replies.values()] == [120]


@pytest.mark.parametrize(
    "fields", [{"strategy": "incremental", "step_rounds": 2}, {"target": -1, "under": "feddyn", "reselect": 2}]
)
def test_resumed_and_spread_over_workers_it_is_the_same(tmp_path: Path, fields: dict[str, Any]) -> None:
    training = {"rounds": 7, "epochs": 1, "batch_size": 20, "lr": 0.5}
    whole = run(small(pqfed(**fields), training=training), quiet=True)

    def interrupt(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 4:
            raise KeyboardInterrupt

    spread = small(pqfed(**fields), training=training, engine={"workers": 2})
    with pytest.raises(KeyboardInterrupt):
        run(spread, out=tmp_path, callbacks=[interrupt], quiet=True)
    resumed = run(spread, out=tmp_path, resume=True, quiet=True)
    assert [r["participants"] for r in resumed.records] == [r["participants"] for r in whole.records]
    for a, b in zip(whole.records, resumed.records):
        assert a["accuracy"]["target"] == pytest.approx(b["accuracy"]["target"], abs=3e-3)


def test_configured_and_read_back() -> None:
    experiment = small(pqfed(under={"name": "fedprox", "mu": 0.7}, strategy="top", m=2))
    assert experiment.algorithm.under.mu == 0.7
    assert Experiment.of(experiment.table()) == experiment
    assert run(experiment, quiet=True).records[-1]["participants"] == 3


def toy(**fields: Any) -> tuple[PQFed, Setting]:
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    start = torch.zeros(1, 4)
    setting = Setting(0, 3, 1, 5, Plan(), start, torch.ones(4, dtype=torch.bool), public=(x, torch.zeros(30)))
    return PQFed(components=3, k=2, **fields), setting


def desk(setting: Setting) -> Server:
    return Server(1, 0, setting, {}, lambda party, question: None, lambda name: nullcontext())


def test_without_the_target_the_next_round_asks_again() -> None:
    algorithm, setting = toy(epsilon=INF)
    state = algorithm.start(setting)
    replies: Iterator[tuple[int, Any]] = iter(
        [(1, NoisyFeatures(torch.randn(9, 3))), (2, NoisyFeatures(torch.randn(9, 3)))]
    )
    assert algorithm.aggregate(desk(setting), state, replies) is state
    assert algorithm.wants(state, 0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epsilon": 0.0}, "above 0"),
        ({"epsilon": -1.0}, "above 0"),
        ({"epsilon": float("nan")}, "above 0"),
        ({"strategy": "stric"}, "did you mean 'strict'"),
        ({"sensitivity": "none"}, "public, data"),
        ({"ground": "x"}, "centroid, label"),
        ({"under": "pqfed"}, "algorithm.under is 'pqfed', which has a protocol of its own"),
        ({"under": {"name": "fedprox", "nu": 1.0}}, "algorithm.under.nu"),
        ({"threshold": 0.0}, "share of the largest"),
        ({"k": 1}, "algorithm.k is 1"),
        ({"validation": 1.0}, "strictly between"),
        ({"budget": 0.0}, "algorithm.budget"),
        ({"strategy": "incremental", "under": "ifca"}, "hands one model"),
        ({"strategy": "incremental", "target": -1}, "one target"),
    ],
)
def test_fields_out_of_range_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CoveyError, match=words):
        small(pqfed(**fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"components": 31}, "cannot give 31 principal components"),
        ({"target": 3}, "clients count from 0 to 2"),
        ({"epsilon": 10.0, "budget": 29.0}, "one selection would spend ε = 30 per record"),
        ({"epsilon": 10.0, "budget": 60.0, "reselect": 1}, "3 selections would spend ε = 90"),
        ({"strategy": "incremental"}, "at least 22"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(fields: dict[str, Any], words: str) -> None:
    algorithm, setting = toy(**{k: v for k, v in fields.items() if k != "components"})
    with pytest.raises(CoveyError, match=words):
        replace(algorithm, components=fields.get("components", 3)).start(setting)


def test_a_partition_without_public_samples_is_refused() -> None:
    algorithm, setting = toy()
    with pytest.raises(CoveyError, match=r"set partition\.public"):
        algorithm.start(replace(setting, public=None))


def test_a_client_keeps_its_own_account() -> None:
    """A server that asks more often than it said is refused by the client, not trusted."""
    algorithm, setting = toy(epsilon=10.0, budget=60.0)
    features = algorithm.start(setting).features
    from covey.algorithms.contract import Client

    me = Client(1, 1, 0, 5, Plan(), setting, {}, {}, lambda: (torch.randn(5, 6), torch.zeros(5)))
    for _ in range(2):
        turn = algorithm.client(me, features)
        work: Any = next(turn)
        work = turn.send(work.function(*work.arguments))  # the agreed features, then the samples by them
        with pytest.raises(StopIteration):
            turn.send(work.function(*work.arguments))
    with pytest.raises(CoveyError, match="client 1's selections up to round 1 would spend ε = 90"):
        next(algorithm.client(me, features))
    assert me.memory["spent"] == 60.0 and len(me.events) == 2


def federation_of(rows: list[np.ndarray[Any, Any]]) -> Federation:
    digits = load("digits")
    shares = np.full((len(rows), 10), 0.1)
    return Federation(digits, tuple(rows), None, digits.y_test, shares, public=(np.arange(1000, 1100),))


def test_a_client_with_one_sample() -> None:
    some = federation_of([np.arange(50), np.arange(50, 100), np.array([100])])
    table = small(pqfed(epsilon=30.0, sensitivity="data", strategy="all"), clients=3)
    with pytest.raises(CoveyError, match="client 2's one sample spans no range"):
        run(table, federation=some, quiet=True)
    public = small(pqfed(epsilon=30.0, strategy="all"), clients=3)
    assert run(public, federation=some, quiet=True).rounds == 4


def test_identical_clients_are_not_told_apart() -> None:
    same = replace(federation_of([np.arange(60)] * 4), notes={"overlap": "all"})
    with pytest.raises(CoveyError, match="the clients are alike"):
        run(small(pqfed(), clients=4), federation=same, quiet=True)
    assert run(small(pqfed(strategy="all"), clients=4), federation=same, quiet=True).records[1]["participants"] == 4


def test_drowned_distances_are_refused() -> None:
    with pytest.raises(CoveyError, match=r"epsilon = 0.1 has drowned them"):
        run(small(pqfed(epsilon=0.1)), quiet=True)
