"""The loop and its hosts: same result however the work is spread, and nothing is lost when something dies."""

from __future__ import annotations

import json
import multiprocessing as mp
import multiprocessing.connection
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from covey import files as checkpoint
from covey.algorithms.averaging import GlobalModel, LocalModel
from covey.algorithms.contract import Messages
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.ifca import IFCA
from covey.data.federation import Federation
from covey.errors import CoveyError, NotFinite
from covey.experiment.experiment import Experiment
from covey.messages import message
from covey.report.terminal import closing_lines
from covey.results.folder import RunFolder
from covey.rounds.loop import run
from covey.rounds.result import Result
from support.patience import PATIENCE, until


def small(**more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": "ifca",
        "clients": 10,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 4, "epochs": 2, "batch_size": 10, "lr": 0.1},
        "engine": {"workers": 1},
    }
    return Experiment.of(table, **more)


@cache
def plain(algorithm: str) -> Result:
    return run(small(algorithm=algorithm), quiet=True)


@pytest.mark.parametrize(
    "engine",
    [
        {"workers": 1, "clients_at_once": 1},
        {"workers": 1, "clients_at_once": 64},
        {"workers": 2, "clients_at_once": 3},
        {"workers": 3},
    ],
)
@pytest.mark.parametrize("algorithm", ["ifca", "local"])
def test_how_the_work_is_spread_does_not_show(engine: dict[str, Any], algorithm: str) -> None:
    reference = plain(algorithm)
    other = run(small(algorithm=algorithm, engine=engine), quiet=True)
    for a, b in zip(reference.records, other.records):
        assert a["clusters"] == b["clusters"]
        # One test image of 360 may tip over; the models themselves agree to 1e-6 (seen: 2e-7).
        assert a["accuracy"]["client_mean"] == pytest.approx(b["accuracy"]["client_mean"], abs=3e-3)
    if algorithm == "ifca":
        assert torch.allclose(reference.state.models, other.state.models, atol=1e-6)


def test_another_seed_is_another_run() -> None:
    a, b = plain("ifca"), run(small(seed=1), quiet=True)
    assert not torch.allclose(a.state.models, b.state.models, atol=1e-3)


class Stop(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("algorithm", ["ifca", "local"])
@pytest.mark.parametrize("workers", [1, 2])
def test_resume_goes_on_to_the_same_result(tmp_path: Path, algorithm: str, workers: int) -> None:
    experiment = small(algorithm=algorithm, engine={"workers": workers, "checkpoint_every": 1000})
    whole = run(experiment, out=tmp_path / "whole", quiet=True)

    def interrupt(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(experiment, out=tmp_path / "cut", callbacks=[interrupt], quiet=True)
    assert len(checkpoint.read_lines(tmp_path / "cut" / "metrics.jsonl")) == 2
    resumed = run(experiment, out=tmp_path / "cut", resume=True, quiet=True)
    assert [r["round"] for r in resumed.records] == [1, 2, 3, 4]
    for a, b in zip(whole.records, resumed.records):
        assert (a["clusters"], a["accuracy"]) == (b["clusters"], b["accuracy"])
    if algorithm == "ifca":
        assert torch.equal(whole.state.models, resumed.state.models)


def test_a_line_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    experiment = small(engine={"workers": 1, "checkpoint_every": 2})
    run(experiment, out=tmp_path, quiet=True)
    lines = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(lines[:-20])
    for name in ("state.bin", "state.before.bin"):
        (tmp_path / "checkpoint" / name).write_bytes(b"CVY1 rubbish")
    with pytest.raises(CoveyError, match="damaged"):
        run(experiment, out=tmp_path, resume=True, quiet=True)


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="no checkpoint"):
        run(small(), out=tmp_path, resume=True, quiet=True)


def test_a_run_interrupted_in_its_first_round_can_be_resumed(tmp_path: Path) -> None:
    class Interrupting(IFCA):
        def aggregate(self, *_: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(replace(small(), algorithm=Interrupting()), out=tmp_path, quiet=True)
    resumed = run(small(), out=tmp_path, resume=True, quiet=True)
    assert resumed.accuracy == run(small(), quiet=True).accuracy


class CutShort(FedAvg):
    """Interrupted in its third round, when half of the clients have replied."""

    def aggregate(self, server: Any, state: GlobalModel, replies: Any) -> GlobalModel:
        if server.round == 3:
            for _ in range(5):
                next(replies)
            raise KeyboardInterrupt
        return super().aggregate(server, state, replies)


@pytest.mark.parametrize(
    ("more", "saved"),
    [
        ({"defence": {"name": "ldp", "epsilon": 5.0}}, 2),
        ({"attacks": ["label_shares"]}, 0),  # attacks cannot forget what they have seen
        ({"attacks": ["label_shares"], "engine": {"workers": 1, "checkpoint_every": 1, "clients_at_once": 3}}, 2),
        ({"participation": {"buffer": 6, "delay": 1.0}}, 2),
    ],
    ids=["spends", "views", "saved views", "under way"],
)
def test_a_round_that_was_cut_short_counts_once(more: dict[str, Any], saved: int, tmp_path: Path) -> None:
    engine = {"workers": 1, "checkpoint_every": 0, "clients_at_once": 3}
    given = small(**({"algorithm": "fedavg", "clusters": 1, "engine": engine} | more))
    with pytest.raises(KeyboardInterrupt):
        run(replace(given, algorithm=CutShort()), out=tmp_path, quiet=True)
    assert RunFolder(tmp_path).load()[0]["round"] == saved
    resumed, whole = run(given, out=tmp_path, resume=True, quiet=True), run(given, quiet=True)
    assert torch.equal(resumed.state.model, whole.state.model)
    assert resumed.privacy == whole.privacy
    assert [finding.value for finding in resumed.findings] == [finding.value for finding in whole.findings]
    assert [record["extra"] for record in resumed.records] == [record["extra"] for record in whole.records]


@message
@dataclass(frozen=True)
class Note:
    vector: Tensor


class Asking(FedAvg):
    """Consults its clients when the second reply has come, and others are still to come."""

    name: ClassVar[str] = "asking"
    replies: ClassVar[Messages] = (LocalModel, Note)

    def advise(self, me: Any, question: Note) -> Any:
        yield from ()
        return Note(torch.full_like(question.vector, 7.0))

    def aggregate(self, server: Any, state: GlobalModel, replies: Any) -> GlobalModel:
        models = []
        for _, reply in replies:
            models.append(reply.model)
            if len(models) == 2:
                question = Note(
                    state.model[:-64]
                )  # shorter than a model: it fits where replies lie that nobody has read
                answers = server.consult(dict.fromkeys(range(10), question), 10)
                assert all((answer.vector == 7).all() for answer in answers.values())
        return GlobalModel(torch.stack(models).mean(0))


@pytest.mark.parametrize("at_once", [1, 5])
def test_who_consults_before_all_have_replied_gets_the_other_replies_whole(at_once: int) -> None:
    training = {"rounds": 1, "batch_size": 10, "lr": 0.1}
    alone, spread = (
        run(
            small(algorithm=Asking(), clusters=1, training=training, engine={"workers": n, "clients_at_once": at_once}),
            quiet=True,
        )
        for n in (1, 2)
    )
    assert torch.allclose(alone.state.model, spread.state.model, atol=1e-6)


def test_workers_die_with_a_run_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "covey", "run", "ifca-digits", "--out", str(tmp_path / "run"), "--quiet"]
    command += ["--set", "training.rounds=100000", "--set", "engine.workers=2"]
    process = subprocess.Popen(command, start_new_session=True)
    until(lambda: process.poll() is not None or len(checkpoint.read_lines(tmp_path / "run" / "metrics.jsonl")) >= 1)
    process.kill()
    process.wait()
    until(lambda: not _alive(process.pid))


def test_a_dead_worker_is_reported_and_finished_rounds_are_kept(tmp_path: Path) -> None:
    experiment = small(engine={"workers": 2, "checkpoint_every": 1})

    def kill(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 2:
            worker = mp.active_children()[0]
            os.kill(worker.pid or 0, signal.SIGKILL)
            assert mp.connection.wait([worker.sentinel], PATIENCE)

    with pytest.raises(CoveyError, match=r"worker \d died \(killed by signal 9\).*covey resume"):
        run(experiment, out=tmp_path, callbacks=[kill], quiet=True)
    assert len(checkpoint.read_lines(tmp_path / "metrics.jsonl")) == 2
    assert not mp.active_children()
    assert run(experiment, out=tmp_path, resume=True, quiet=True).rounds == 4


def test_ctrl_c_leaves_no_process_behind_and_a_run_to_resume(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "covey", "run", "ifca-digits", "--out", str(out)]
    command += ["--set", "training.rounds=100000", "--set", "engine.workers=2"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    until(lambda: process.poll() is not None or len(checkpoint.read_lines(out / "metrics.jsonl")) >= 3)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "covey resume" in said and "Traceback" not in said
    until(lambda: not _alive(process.pid))  # nobody of the group is left
    assert (out / "checkpoint" / "state.bin").is_file()


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_full_disk_is_one_sentence_and_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, {"round": 1}, {})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CoveyError, match="the disk is full"):
        checkpoint.save(tmp_path, {"round": 2}, {})
    assert checkpoint.load(tmp_path)[0] == {"round": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.before.bin", "state.bin"]


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {"round": 1}, {"clients": {"k": b"secret"}})
    assert (tmp_path / "keys.bin").stat().st_mode & 0o777 == 0o600
    assert b"secret" not in (tmp_path / "state.bin").read_bytes()


def test_target_stops_early_and_is_reported() -> None:
    result = run(small(training={"rounds": 30, "target": 0.9, "target_metric": "average_cluster"}), quiet=True)
    assert result.rounds_to_target == result.rounds < 30
    assert result.accuracy["average_cluster"] >= 0.9


def test_seeds_give_mean_and_deviation(tmp_path: Path) -> None:
    result = run(small(seeds=3, training={"rounds": 2}), out=tmp_path, quiet=True)
    assert result.seeds is not None and result.seeds["n"] == 3
    own = [run(small(seed=s, training={"rounds": 2}), quiet=True).accuracy["client_mean"] for s in range(3)]
    assert result.seeds["mean"]["accuracy.client_mean"] == pytest.approx(sum(own) / 3)
    assert result.seeds["std"]["accuracy.client_mean"] == pytest.approx(
        torch.tensor(own, dtype=torch.float64).std().item()
    )
    assert (tmp_path / "seed-2" / "report.html").is_file() and (tmp_path / "result.json").is_file()


def test_a_run_over_seeds_can_be_resumed_from_its_folder(tmp_path: Path) -> None:
    experiment = small(seeds=2, training={"rounds": 3})
    whole = run(experiment, quiet=True)
    rounds = []

    def stop(record: dict[str, Any], state: Any) -> None:
        rounds.append(record["round"])
        if len(rounds) == 5:  # in the second seed
            raise Stop

    with pytest.raises(Stop):
        run(experiment, out=tmp_path, callbacks=[stop], quiet=True)
    assert Experiment.read(tmp_path / "config.toml") == experiment
    resumed = run(Experiment.read(tmp_path / "config.toml"), out=tmp_path, resume=True, quiet=True)
    assert resumed.accuracy == whole.accuracy


def test_an_interruption_before_a_round_has_its_line_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, append = small(training={"rounds": 3}), RunFolder.append_record

    def interrupted(folder: RunFolder, record: dict[str, Any]) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt
        append(folder, record)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunFolder, "append_record", interrupted)
        run(experiment, out=tmp_path, quiet=True)
    content, _ = checkpoint.load(tmp_path / "checkpoint")
    assert content["round"] == len(RunFolder(tmp_path).records()) == 2
    run(experiment, out=tmp_path, resume=True, quiet=True)
    assert [record["round"] for record in RunFolder(tmp_path).records()] == [1, 2, 3]


def test_a_file_cannot_be_the_folder_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    for seeds in (1, 2):
        with pytest.raises(CoveyError, match="cannot be the folder of a run"):
            run(small(seeds=seeds), out=tmp_path / "taken", quiet=True)


def test_without_fork_everything_runs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = small(engine={"workers": 2}, training={"rounds": 1})
    reference = run(experiment, quiet=True)

    def fail(method: str) -> None:
        raise AssertionError("a process was to be started")

    monkeypatch.setattr(mp, "get_all_start_methods", lambda: ["spawn"])
    monkeypatch.setattr(mp, "get_context", fail)
    assert torch.allclose(run(experiment, quiet=True).state.models, reference.state.models, atol=1e-6)


@pytest.mark.parametrize("vantage", ["client:", "client:x", "server+client:-1"])
def test_a_vantage_names_clients_by_number(vantage: str) -> None:
    with pytest.raises(CoveyError, match="without its number"):
        run(small(attacks=[{"name": "a1", "vantage": vantage}]), quiet=True)


def test_noise_of_zero_guarantees_nothing_and_the_closing_lines_say_so() -> None:
    result = run(small(defence={"name": "dp_sgd", "noise": 0.0}, training={"rounds": 1}), quiet=True)
    assert result.privacy["dp_sgd"]["epsilon"] is None
    assert any("dp_sgd: nothing is guaranteed" in line for line in closing_lines(result))


def test_files_are_json_for_every_reader(tmp_path: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    def spoil(record: dict[str, Any], state: Any) -> None:
        record["extra"]["ratio"] = float("inf")

    checkpoint.append_line(tmp_path / "metrics.jsonl", {"round": 1, "gap": float("nan")})
    assert checkpoint.read_lines(tmp_path / "metrics.jsonl") == [{"round": 1, "gap": None}]
    result = run(small(training={"rounds": 1}), out=tmp_path, callbacks=[spoil], quiet=True)
    undefined = replace(result, attacks={"x": {"value": float("nan"), "details": {"curve": [float("inf"), 1.0]}}})
    json.loads(json.dumps(undefined.json()), parse_constant=refuse)
    assert undefined.json()["attacks"]["x"] == {"value": None, "details": {"curve": [None, 1.0]}}
    checkpoint.write_lines(tmp_path / "again.jsonl", result.records)
    json.loads((tmp_path / "again.jsonl").read_text(), parse_constant=refuse)


def test_drop_outs_and_joiners_show_in_the_record() -> None:
    participation = {"initial": 6, "join": 2, "join_every": 1, "drops": [[2, 0]]}
    result = run(small(participation=participation), quiet=True)
    assert [r["participants"] for r in result.records] == [6, 7, 10, 10]
    assert [r["dropped"] for r in result.records] == [0, 1, 0, 0]
    assert result.records[0]["clusters"][6:] == [-1] * 4


def test_bytes_are_those_of_the_codec() -> None:
    from covey.algorithms.ifca import ClusterModels, ClusterUpdate
    from covey.messages import encode

    result = run(small(training={"rounds": 1}), quiet=True)
    models = result.state.models
    assert result.bytes["down"] == len(encode(ClusterModels(models)))
    assert result.bytes["up"] == pytest.approx(len(encode(ClusterUpdate(models[0], 0, 100))), abs=2)


def test_a_learning_rate_that_explodes_is_explained() -> None:
    with pytest.raises(CoveyError, match="not finite"):
        run(small(training={"lr": 1e30, "rounds": 2}), quiet=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_who_ended_in_values_that_are_no_numbers_is_named(workers: int) -> None:
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    x[25] = 1e38
    federation = Federation.from_arrays(x, np.arange(60) % 3, clients=np.arange(60) // 10)
    algorithm = {"algorithm": "fedavg", "model": "fcnn", "training": {"rounds": 1, "lr": 0.1}}
    with pytest.raises(NotFinite, match=r"look for huge values in the samples \(client 2\)$"):
        run(Experiment.of(**algorithm, engine={"workers": workers}), federation=federation, quiet=True)


def test_a_model_that_learned_nothing_is_said_at_the_end() -> None:
    fast, slow = (run(small(training={"lr": lr, "rounds": 2}), quiet=True) for lr in (500.0, 0.1))
    assert any(line.startswith("warning     at most one class is ever recognised") for line in closing_lines(fast))
    assert not any(line.startswith("warning") for line in closing_lines(slow))


def test_a_clusters_accuracy_is_that_of_its_own_model() -> None:
    from covey.engines.evaluation import Score, cluster_accuracies

    # Two clusters, two models; cluster 0's clients choose model 1, which fits them better than their own.
    scores = [Score(0, 0.8, 0.5, 1, [0.3, 0.8]), Score(1, 0.6, 0.5, 1, [0.1, 0.6]), Score(2, 0.9, 0.5, 1, [0.2, 0.9])]
    groups = np.array([0, 0, 1])
    assert cluster_accuracies(scores, groups, intended=True) == pytest.approx([0.2, 0.9])
    assert cluster_accuracies(scores, groups, intended=False) == pytest.approx([0.7, 0.9])
    own = [Score(0, 0.8, 0.5, -1, [0.8]), Score(1, 0.6, 0.5, -1, [0.6])]
    assert cluster_accuracies(own, np.array([0, 0]), intended=True) == pytest.approx([0.7])
    one = [Score(0, 0.8, 0.5, 0, [0.8]), Score(1, 0.4, 0.5, 0, [0.4])]
    assert cluster_accuracies(one, np.array([0, 1]), intended=True) == pytest.approx([0.8, 0.4])


@pytest.mark.parametrize("intended", [False, True])
@pytest.mark.parametrize("index", [-1, 0, 1])
def test_a_cluster_of_clients_alike_is_what_it_is_beside_another(index: int, intended: bool) -> None:
    """To the bit, whatever so many times a share over so many gives."""
    from covey.engines.evaluation import Score, cluster_accuracies

    other = Score(0, 0.5, 0.5, 0, [0.5, 0.5])
    for count in range(1, 200):
        own, *fits = np.random.default_rng(count).random(3).tolist()
        for alike in (Score(0, own, 0.5, index, fits), Score(0, own, 0.5, min(index, 0), fits[:1])):
            for cluster in (0, 1, 3):
                both = cluster_accuracies([alike, other], np.array([cluster, 9]), intended, np.array([count, 1]))
                assert cluster_accuracies([alike], np.array([cluster]), intended, np.array([count])) == both[:1]
    assert cluster_accuracies([other], np.array([-1]), intended) == []


def test_an_attack_that_cannot_be_scored_loses_no_result(tmp_path: Path) -> None:
    from dataclasses import dataclass, field

    @dataclass
    class Speechless:
        name: str = "speechless"
        vantage: str = "server"
        memory: dict[str, Any] = field(default_factory=dict)

        def begin(self, knowledge: Any) -> None: ...
        def observe(self, view: Any) -> None: ...
        def end_round(self, round: int) -> None: ...
        def finding(self, truth: Any) -> Any:
            raise CoveyError("it saw too little")

    with pytest.raises(CoveyError, match="'speechless' has no finding: it saw too little"):
        run(small(attacks=["a1"]), attacks=[Speechless()], out=tmp_path, quiet=True)
    assert "a1" in json.loads((tmp_path / "result.json").read_text())["attacks"]
    assert (tmp_path / "report.html").is_file()


def test_what_is_no_experiment_is_refused_in_a_sentence() -> None:
    with pytest.raises(CoveyError, match="run was given a str: expected an Experiment"):
        run("ifca-digits")  # type: ignore[arg-type]


def test_a_result_reads_as_a_run_ends() -> None:
    result = run(small(training={"rounds": 1}), quiet=True)
    assert str(result).splitlines() == closing_lines(result)
