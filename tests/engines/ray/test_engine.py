"""Clients on Ray workers: the same run to the bit, whatever happens to a worker."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from covey import files as checkpoint
from covey.algorithms import ALGORITHMS
from covey.algorithms.ifca import IFCA
from covey.attacks import ATTACKS
from covey.attacks.contract import Finding, Knowledge, Truth, View
from covey.cli.interrupts import interruptible
from covey.defences import DEFENCES
from covey.engines.prepare import prepare
from covey.engines.ray import host_state as parcel
from covey.engines.ray.engine import RayWorkers
from covey.engines.ray.pool import connect, protect
from covey.errors import CoveyError, CoveyWarning
from covey.experiment.experiment import Experiment
from covey.messages import decode, encode
from covey.rounds.loop import run
from covey.rounds.result import Result
from covey.sweep.grid import sweep
from support.own_algorithms import Mine, Odd
from support.patience import PATIENCE, until

if importlib.util.find_spec("ray") is None:  # not imported yet: a cluster has its token only where `connect` does that
    pytest.skip("Ray is not installed (pip install 'covey[ray]')", allow_module_level=True)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """The module, connected to one cluster for all tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("RAY_ADDRESS", raising=False)
        for when in ("RAY_enable_worker_prestart", "RAY_prestart_worker_first_driver"):
            patched.setenv(when, "0")  # a Python for every processor, at every connection, that nobody asks for
        try:
            module = connect(cpus=2)
        except Exception as e:
            if "timed out during startup" not in str(e):
                raise
            # Ray gives itself 30 s, whatever else the machine has to do: on a busy one its clock is slowed.
            sys.modules["ray"].shutdown()
            patched.setattr("ray._private.node.time", SlowClock)
            module = connect(cpus=2)
        yield module
        module.shutdown()


class SlowClock:
    """The module `time` for who counts seconds on a busy machine."""

    sleep, time = time.sleep, time.time

    @staticmethod
    def monotonic() -> float:
        return time.monotonic() * 30 / PATIENCE


def small(engine_: str = "ray", **more: Any) -> Experiment:
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": "ifca",
        "model": "softmax",
        "clients": 10,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 4, "epochs": 2, "batch_size": 10, "lr": 0.1},
        "engine": {"name": engine_, "workers": 2, "clients_at_once": 2},
    }
    return Experiment.of(table, **more)


def same(a: Result, b: Result) -> None:
    assert len(a.records) == len(b.records)
    for one, other in zip(a.records, b.records):
        for key in ("accuracy", "clusters", "bytes", "participants", "extra"):
            assert one[key] == other[key], (one["round"], key)


def test_an_algorithm_of_ones_own_gives_the_same_run_to_the_bit(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    puts, asked = [], []
    really_put, really_ask = ray.put, RayWorkers._ask

    def put(value: Any) -> Any:
        puts.append(value)
        return really_put(value)

    def ask(self: RayWorkers, number: int, request: dict[str, Any]) -> None:
        really_ask(self, number, request)
        asked.append((number, request["do"], len(self._under_way[number])))

    monkeypatch.setattr(ray, "put", put)
    monkeypatch.setattr(RayWorkers, "_ask", ask)
    uneven = {"share": 0.8, "slowest": 0.4}
    simulated, on_ray = (
        run(small(e, algorithm=Mine(extra=0.25), participation=uneven), quiet=True) for e in ("simulate", "ray")
    )
    same(simulated, on_ray)
    assert torch.equal(simulated.state.models, on_ray.state.models)
    waves = [a for a in asked if a[1] != "seconds"]
    # Parcel and data once; the messages of a round at most twice (for training and for evaluation), not per wave.
    assert len(puts) <= 2 + 2 * 4 < len(waves)
    assert max(depth for _, _, depth in asked) == 2
    assert {number for number, _, _ in asked} == {0, 1}


class Stop(KeyboardInterrupt):
    pass


def test_an_interrupted_run_resumes_to_the_same_result(ray: Any, tmp_path: Path) -> None:
    more: dict[str, Any] = {"algorithm": "feddyn", "participation": {"share": 0.6}}
    whole = run(small("simulate", **more), out=tmp_path / "whole", quiet=True)

    def interrupt(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(small(**more), out=tmp_path / "cut", callbacks=[interrupt], quiet=True)
    same(whole, run(Experiment.read(tmp_path / "cut" / "config.toml"), out=tmp_path / "cut", resume=True, quiet=True))
    assert remembered(tmp_path / "whole") == remembered(tmp_path / "cut") != {}


def remembered(folder: Path) -> dict[int, dict[str, bytes]]:
    """What the clients remember at the end, comparable to the bit."""
    content, _ = checkpoint.load(folder / "checkpoint")
    return {
        i: {name: np.asarray(v).tobytes() for name, v in memory.items()} for i, memory in content["memories"].items()
    }


def test_an_attacker_in_a_clients_place_and_keys_reach_the_workers(ray: Any) -> None:
    """Before any worker is killed: they are those of the runs above."""
    spied: dict[str, Any] = {
        "algorithm": {"name": "sattler", "eps1": 1.0, "eps2": 1.0, "gamma": 0.3},
        "attacks": [{"name": "acquisition", "first": 7, "colluders": 3}],
    }
    simulated, on_ray = (run(small(e, **spied), quiet=True) for e in ("simulate", "ray"))
    same(simulated, on_ray)
    assert simulated.findings == on_ray.findings
    sealed: dict[str, Any] = {"algorithm": "mingledpie", "encryption": "ckks", "training": {"rounds": 2}}
    simulated, on_ray = (run(small(e, **sealed), quiet=True) for e in ("simulate", "ray"))
    for a, b in zip(simulated.records, on_ray.records):  # the noise of ciphertexts comes from the operating system
        assert a["accuracy"]["client_mean"] == pytest.approx(b["accuracy"]["client_mean"], abs=0.02)


def processes() -> list[int]:
    """The worker processes of the cluster that this process started."""
    parents, found = {}, []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(status.parent.name), status.read_text().rpartition(")")[2].split()
            parents[pid] = int(rest[1])
            if (status.parent / "cmdline").read_text().startswith("ray::Worker"):
                found.append(pid)
        except OSError:
            continue  # ended in between

    def ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and ours(parents[pid]))

    return [pid for pid in found if ours(pid)]


@dataclass
class Killer:
    """Sees all replies, and kills a worker in the middle of a round."""

    name: ClassVar[str] = "killer"
    vantage: ClassVar[str] = "server"

    at: tuple[tuple[int, int], ...] = ((3, 5),)  # round, replies before it strikes: there are memories of two rounds
    memory: dict[str, Any] = field(default_factory=dict)
    killed: list[int] = field(default_factory=list)

    def begin(self, knowledge: Knowledge) -> None:
        self.seen = 0

    def observe(self, view: View) -> None:
        if view.receiver == "server":
            if (view.round, self.seen) in self.at:
                victim = max(processes())
                os.kill(victim, signal.SIGKILL)
                self.killed.append(victim)
                until(lambda: victim not in processes())
            self.seen += 1

    def end_round(self, round: int) -> None:
        self.seen = 0

    def finding(self, truth: Truth) -> Finding:
        return Finding(self.name, self.vantage, "none", 0.0, 0.0, 0.0, 0.0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds worker processes in /proc")
def test_a_killed_worker_changes_nothing(ray: Any, tmp_path: Path) -> None:
    # One client per wave: of the killed worker's clients some have been heard, some are under way, some wait.
    more: dict[str, Any] = {"algorithm": "local", "engine": {"clients_at_once": 1}}
    reference = run(small("simulate", **more), out=tmp_path / "simulated", quiet=True)
    killer = Killer()
    struck = run(small(**more), attacks=[killer], out=tmp_path / "struck", quiet=True)
    assert len(killer.killed) == 1
    same(reference, struck)
    assert remembered(tmp_path / "simulated") == remembered(tmp_path / "struck") != {}


def test_a_worker_that_always_dies_ends_in_one_sentence(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_send = RayWorkers._send

    def send(self: RayWorkers, number: int, request: bytes) -> list[Any]:
        if number == 1 and decode(request)["do"] == "run" and decode(request)["round"] == 3:
            ray.kill(self._actors[number])
        return really_send(self, number, request)

    monkeypatch.setattr(RayWorkers, "_send", send)
    monkeypatch.setattr("covey.engines.ray.engine.DEATHS", 2)
    with pytest.raises(CoveyError, match=r"Ray worker 1 died 2 times in one round.*covey resume"):
        run(small(), out=tmp_path, quiet=True)
    assert checkpoint.load(tmp_path / "checkpoint")[0]["round"] == 2


def test_the_runs_of_a_sweep_are_spread_over_the_cluster(ray: Any, tmp_path: Path) -> None:
    made = sweep(small().table(), ["training.lr=0.1,0.02"], 1, tmp_path, quiet=True)
    assert not made.failed and len(made.settings) == 2
    for one in made.settings:
        alone = small("simulate", engine={"workers": 1}, training={"lr": float(one.values["training.lr"])})
        assert one.mean["accuracy.client_mean"] == run(alone, quiet=True).accuracy["client_mean"]


def test_a_host_is_given_the_keys_of_its_own_clients_only() -> None:
    keys = {"common": b"all", "own": {i: {"k": bytes([i])} for i in range(6)}}
    assert decode(parcel.keys_for(keys, [1, 3, 5], {})) == {
        "common": b"all",
        "own": {i: {"k": bytes([i])} for i in (1, 3, 5)},
    }


def test_a_federation_arrives_as_it_was() -> None:
    federation, _, _ = prepare(small("simulate", partition={"name": "dirichlet", "beta": 0.3, "equal": False}))
    there = parcel.federation_of(parcel.arrays(federation))
    assert all(np.array_equal(a, b) for a, b in zip(federation.clients, there.clients, strict=True))
    assert np.array_equal(federation.histogram(), there.histogram()) and there.notes == federation.notes


@pytest.mark.parametrize("registry", [ALGORITHMS, DEFENCES, ATTACKS])
def test_all_that_is_registered_can_be_built_anew(registry: dict[str, type]) -> None:
    for cls in registry.values():
        assert parcel._built(decode(encode(parcel._described(cls())))) == cls()


def test_what_workers_could_not_build_is_refused_in_one_sentence() -> None:
    @dataclass(frozen=True)
    class Here(IFCA):
        pass

    odd = Odd(start_at=lambda: 1)
    for algorithm, why in ((Here(), "in a module that they can import"), (odd, "that can cross the wire")):
        experiment = small(algorithm=algorithm)
        _, _, setting = prepare(experiment)
        with pytest.raises(CoveyError, match=why):
            parcel.pack(experiment, setting, {})
    with pytest.raises(CoveyError, match=r"engine.gpus is 1.5: a share of one GPU above 0, or a whole number"):
        small(engine={"device": "cuda", "gpus": 1.5})


def test_without_ray_or_without_its_cluster_there_is_one_sentence(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(**_: Any) -> None:
        raise ConnectionError("Ray is trying to start at 192.0.2.1:1, but is unable to connect")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", nobody)
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:1")
    with pytest.raises(CoveyError, match=r"no Ray cluster lets us in at RAY_ADDRESS = '192.0.2.1:1'"):
        connect()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CoveyError, match=r"pip install 'covey\[ray\]'"):
        connect()


@pytest.mark.slow
def test_sigterm_stays_with_the_command_that_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**settings: Any) -> None:  # as Ray documents of its own
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with interruptible():
        ours = signal.getsignal(signal.SIGTERM)
        connect()
        assert signal.getsignal(signal.SIGTERM) is ours


def test_who_imported_ray_before_hears_that_its_cluster_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    with pytest.warns(CoveyWarning, match="lets in whoever reaches this machine's ports; set RAY_AUTH_MODE=token"):
        protect()
    assert "RAY_AUTH_TOKEN" not in os.environ
    monkeypatch.delitem(sys.modules, "ray")
    protect()
    assert (os.environ.pop("RAY_AUTH_MODE"), len(os.environ.pop("RAY_AUTH_TOKEN"))) == ("token", 64)


def test_a_stranger_is_not_let_into_the_cluster_that_we_start(ray: Any) -> None:
    """Ray listens on all interfaces, and whoever gets in can run code."""
    address, right = ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    enter = f"import ray; ray.init(address='{address}', log_to_driver=False); print(ray.cluster_resources()['CPU'])"

    def visit(token: str) -> subprocess.Popen[str]:
        known = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", enter], env=env | known, text=True, **pipes)

    visits = {token: visit(token) for token in ("", "0" * 64, right)}

    def is_decided(token: str) -> bool:
        """Let in, or refused for its token. Whom Ray keeps waiting on a busy machine is neither, and comes again."""
        said, why = visits[token].communicate(timeout=PATIENCE)
        entered, refused = visits[token].returncode == 0, "AuthenticationError" in why
        if token != right:
            assert not entered and "2.0" not in said
        if entered or refused:
            assert entered == (token == right) and ("2.0" in said) == entered, why
        else:
            visits[token] = visit(token)
        return entered or refused

    for token in visits:
        until(lambda token=token: is_decided(token), lambda: "Ray answered nobody")  # type: ignore[misc]


@pytest.mark.slow
def test_a_cluster_that_is_there_is_used(tmp_path: Path) -> None:
    """`ray start`, then `covey run` with RAY_ADDRESS."""
    from ray._common.utils import reset_ray_address

    port = next(p for p in range(20_500, 21_000) if _free(p))  # beyond those that Ray gives its workers
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"RAY_USAGE_STATS_ENABLED": "0"}
    start = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}", "--num-cpus=2"]
    with (tmp_path / "log").open("wb") as log:
        head = subprocess.Popen([*start, "--include-dashboard=false"], env=env, stdout=log, stderr=log)
    try:
        until(lambda: head.poll() is not None or "started" in (tmp_path / "log").read_text())
        assert head.poll() is None, (tmp_path / "log").read_text()
        command = [sys.executable, "-m", "covey", "run", "ifca-digits", "--quiet", "--out", str(tmp_path / "there")]
        command += ["--set", "engine.name=ray", "--set", "training.rounds=2", "--set", "engine.workers=2"]
        done = subprocess.run(command, env=env | {"RAY_ADDRESS": f"127.0.0.1:{port}"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert head.poll() is None  # it goes on without us
    finally:
        head.terminate()
        head.wait(timeout=PATIENCE)
        reset_ray_address()  # else whoever asks Ray for no cluster is sent to this one, and waits for it
    table = Experiment.read(tmp_path / "there" / "config.toml").table()
    reference = run(Experiment.of(table, engine={"name": "simulate"}), quiet=True)
    records = checkpoint.read_lines(tmp_path / "there" / "metrics.jsonl")
    assert [r["accuracy"] for r in records] == [r["accuracy"] for r in reference.records]


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
