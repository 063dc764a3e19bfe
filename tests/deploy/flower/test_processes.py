"""Real processes on loopback: coordinator, silos and second server, over Flower with TLS and node authentication."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from covey import run
from covey.cli.main import main
from covey.deploy import keys
from covey.deploy.membership.roll import node_keys
from covey.experiment.participation import Participation
from covey.files import read_state
from covey.messages import decode
from covey.results import status as of
from support.deployment import rehearsal, simulated
from support.patience import PATIENCE
from support.processes import Meter, Processes, command

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'covey[deploy]'")


LETTER_BYTES = 20_000  # what Flower, HTTP and TLS take for a letter and its answer, the question for it included
WAITING_BYTES = 500  # and for every second, in which hearts beat and questions wait


def test_mingledpie_over_flower(deploy: Any, tmp_path: Path) -> None:
    """Parity with the simulation, bytes on the wire, and no secret where it could be read."""
    experiment = rehearsal("mingledpie", encryption="ckks", clients=2, model="mlp", training={"rounds": 3})
    parties = deploy(experiment, silos=2)
    parties.serve()
    parties.until(lambda: "waiting for" in parties.log("server"))
    meter, begin = Meter(parties.port), time.monotonic()
    parties.join("north", meter.port, "--log", "json", "--metrics", "0")
    parties.join("south", 0, "--share-accuracy")
    parties.until(lambda: len(parties.records()) >= 1)
    spoken = subprocess.run(["ps", "axwwe"], capture_output=True, check=True).stdout
    for name in ("server", *parties.names):
        parties.wait(name)
    seconds = time.monotonic() - begin
    _, uses = simulated(experiment)
    for i, name in enumerate(parties.names):
        mine = parties.model(name)
        assert mine.index == uses[i].index and torch.allclose(mine.models, uses[i].models, atol=1e-5), name
    # The wire carries what is accounted for: the models of three rounds and the last ones, up and down.
    records = parties.records()
    rounds = len(records)
    up = sum(r["bytes"]["up"] for r in records)
    down = sum(r["bytes"]["down"] for r in records) * (1 + 1 / (rounds - 1))  # sums of rounds 2…, and with the finish
    more = LETTER_BYTES * (rounds + 2) + WAITING_BYTES * seconds  # hello, the rounds, finish
    print(
        f"{up:.0f} bytes up, {down:.0f} down; beyond that {meter.up - up:.0f} up, {meter.down - down:.0f} down in {seconds:.0f} s"
    )
    assert up < meter.up < 1.01 * up + more and down < meter.down < 1.01 * down + more
    lines = [json.loads(line) for line in parties.log("north").splitlines()]
    assert {line["party"] for line in lines} == {"north"} and lines[-1]["event"] == "ends"
    for folder in ("run", "state/north", "state/south"):
        status = of.read(parties.folder / folder)
        assert (status.phase, status.done) == (of.FINISHED, 3) and not status.troubles(status.updated), folder
    secrets_of(parties, spoken, tmp_path)


def secrets_of(parties: Processes, spoken: bytes, folder: Path) -> None:
    secret: list[bytes] = []
    for path in folder.glob("keys/**/party.bin"):
        party = decode(path.read_bytes())
        sealing = party.keys.get("sealing", b"")
        secret += [party.signing, party.signing.hex().encode()]
        secret += [json.loads(sealing)["secret"].encode()] if b'"secret"' in sealing else []
    assert len(secret) == 2 * 3 + 2
    logs = [p for p in folder.rglob("*") if p.is_file() and (p.suffix in (".log", ".jsonl", ".json", ".html", ".toml"))]
    bundle = list((folder / "run" / "flower").rglob("*.fab")) + list((folder / "run" / "flower" / "bundle").rglob("*"))
    assert len(logs) > 6 and bundle
    for text in [spoken, *(p.read_bytes() for p in [*logs, *bundle] if p.is_file())]:
        assert not any(s in text for s in secret)
    assert "import" not in (folder / "run" / "flower" / "bundle" / "nothing.py").read_text()


def test_fedcaprivacy_with_both_servers(deploy: Any) -> None:
    experiment = rehearsal({"name": "fedcaprivacy", "min_size": 2}, encryption="bfv", clients=2, training={"rounds": 2})
    parties = deploy(experiment, silos=2)
    parties.serve()
    for name in parties.names:
        parties.join(name)
    parties.start(
        "csp", command, "csp", parties.at("keys/csp"), "--superlink", f"localhost:{parties.port}",
        "--state", parties.at("state/csp"),
    )  # fmt: skip
    for name in ("server", *parties.names, "csp"):
        parties.wait(name)
    _, uses = simulated(experiment)
    for i, name in enumerate(parties.names):
        assert torch.allclose(parties.model(name).models, uses[i].models, atol=1e-5), name
    lines = (parties.folder / "state" / "csp" / "transcript.jsonl").read_text().splitlines()
    assert {json.loads(text)["from"] for text in lines} == {"bs", "csp"}  # nobody else writes to it


def run_without_east_from_round_2(parties: Processes) -> None:
    """Four silos to the end of the run; one of them is killed in the middle of round 2. It joins before the others, since three
    are enough to begin without it.
    """
    parties.serve()
    parties.rogue("held", "east")
    parties.until(lambda: "east is there" in parties.log("server"))
    for name in ("north", "south", "west"):
        parties.join(name)
    parties.until(lambda: parties.is_asleep("east"))
    parties.running["east"].send_signal(signal.SIGKILL)
    for name in ("server", "north", "south", "west"):
        parties.wait(name)


def test_masked_averages_survive_a_silo_that_is_killed(deploy: Any) -> None:
    """Three of four are enough when the fourth is gone in the middle of a round. As simulated."""
    experiment = rehearsal(
        "fedavg", encryption="secagg", model="softmax", training={"rounds": 3}, deployment={"min_silos": 3}
    )
    parties = deploy(experiment, silos=4)
    run_without_east_from_round_2(parties)
    records = parties.records()
    assert [r["extra"]["unopened"] for r in records] == [0.0] * 3 and records[-1]["participants"] == 3
    _, uses = simulated(replace(experiment, participation=Participation(drops=parties.absences())))
    for i, name in enumerate(["north", "south", "west"]):
        assert torch.allclose(parties.model(name).models, uses[i].models, atol=1e-5), name


@pytest.mark.slow
@pytest.mark.parametrize("encryption", ["secagg", "threshold"])
def test_noise_in_sealed_sums_where_a_silo_is_killed(deploy: Any, encryption: str) -> None:
    """Client-level DP whose noise is in the sum: three of four shares are the noise that was promised, so no ε is restated, and
    every round in which three are there is opened. Models and ε are the simulation's with the same silo missing.
    """
    experiment = rehearsal(
        "ifca",
        encryption=encryption,
        model="softmax",
        training={"rounds": 6},
        defence={"name": "client_dp", "epsilon": 8.0, "delta": 1e-3, "survivors": 0.75, "quorum": 3},
        deployment={"rehearsal": True, "min_silos": 3},
    )
    parties = deploy(experiment, silos=4)
    run_without_east_from_round_2(parties)
    records, absences = parties.records(), parties.absences()
    assert records[-1]["participants"] == 3 and (6, 3) in absences
    assert [r["extra"]["unopened"] for r in records] == [0.0] * 6
    alike = run(replace(experiment, participation=Participation(drops=absences)), quiet=True)
    for name in ("north", "south", "west"):
        assert torch.allclose(parties.model(name).models, alike.state.state.models, atol=1e-5), name
    sealed = {name: 6 - sum(i == absent for _, absent in absences) for i, name in enumerate(parties.names)}
    epsilons = {}
    for name in ("north", "south", "west"):
        summary = json.loads((parties.folder / "state" / name / "summary.json").read_text())["privacy"]
        (epsilons[name],) = {entry["epsilon"] for entry in summary.values() if entry["rounds"] == sealed[name]}
    worst = max(sealed[name] for name in epsilons)
    (said,) = {entry["epsilon"] for entry in alike.privacy.values()}
    assert all(epsilons[name] == pytest.approx(said, rel=1e-9) for name in epsilons if sealed[name] == worst)
    print(f"{encryption}: absent {absences}, ε {epsilons}, simulated {said}")


def test_a_lying_silo_and_a_stranger(deploy: Any) -> None:
    """What either of them sends changes nothing for the others. The stranger calls in the middle of a round: TLS and node
    authentication are on, and they have no key.
    """
    from support.stranger import Stranger

    parties = deploy(rehearsal("ifca", clients=2, training={"rounds": 7}), silos=2)
    parties.serve()
    parties.rogue("liar", "north")
    parties.join("south")
    parties.until(lambda: parties.is_asleep("north"))
    answers = Stranger(parties.port).everything(node_keys(Path(parties.at("keys/server")))["north"])
    assert {name: status for name, status in answers.items() if status < 400} == {}
    assert parties.records() == []
    parties.wake("north")
    for name in ("server", *parties.names):
        parties.wait(name)
    assert [r["participants"] for r in parties.records()] == [1, 1, 1, 1, 1, 1, 2]
    whys = {e["round"]: e["why"] for e in parties.events()}
    expected = [
        "is not a letter",
        "has the shape [7]",
        "infinite",
        "round 3, not 4",
        "replay|accepted before",
        "signature",
    ]
    for round, why in enumerate(expected, start=1):
        assert any(part in whys[round] for part in why.split("|")), whys
    assert all(e["refused"] == "north" for e in parties.events())
    assert bool(torch.isfinite(parties.model("south").models).all())


@pytest.mark.alone  # it mostly waits; the others share the process from which their parties are copied
def test_silos_come_and_go(deploy: Any) -> None:
    """One seals under keys of its own, then dawdles and is missed; one is killed in mid-round and comes back with its memory; one
    joins later. The one that is killed comes back while the sleeper is waited for.
    """
    experiment = rehearsal(
        "mingledpie",
        encryption="ckks",
        clients=4,
        training={"rounds": 4},
        deployment={"round_seconds": 60.0, "rehearsal": True},  # which nobody takes but the sleeper
    )
    parties = deploy(experiment, silos=3)
    parties.serve()
    parties.join("north")
    parties.rogue("slow", "south")
    parties.rogue("held", "west")
    parties.until(lambda: parties.is_asleep("south") and parties.is_asleep("west"))
    assert parties.records()[0]["participants"] == 2
    assert "under another key" in parties.events()[0]["why"] and parties.events()[0]["refused"] == "south"
    remembered = read_state(parties.folder / "state" / "west" / "state.bin").memory["sets"]
    parties.running["west"].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    parties.join("west")
    keys.add(parties.folder / "keys", "east")
    parties.join("east")
    parties.until(lambda: parties.log("server").count("west is there") == 2)
    print(f"greeted {time.monotonic() - killed:.0f} s after it was killed")
    parties.until(lambda: "east is there" in parties.log("server"))
    parties.until(lambda: len(parties.records()) >= 2)
    second = parties.records()[1]
    assert second["participants"] + second["dropped"] == 3
    assert second["dropped"] in (1, 2)  # without the sleeper; the other takes part if it was quick
    parties.wake("south")
    for name in ("server", *parties.names, "east"):
        parties.wait(name)
    assert any(r["participants"] == 4 for r in parties.records())
    after = read_state(parties.folder / "state" / "west" / "state.bin").memory["sets"]
    kept = [(before, now) for before, now in zip(remembered, after) if before]
    assert kept and all(before == now for before, now in kept)  # no set is drawn twice
    assert [r["round"] for r in parties.records()] == [1, 2, 3, 4]


OWN_PACKAGE = Path(__file__).parents[3] / "examples" / "own_package"


def test_the_coordinator_of_a_package_of_ones_own_is_killed_and_started_again(
    deploy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each party imports its own copy and says so first; one that has none says which package is missing. What silos remember of
    the rounds before outlives the coordinator.
    """
    monkeypatch.syspath_prepend(str(OWN_PACKAGE))
    own = {"algorithm": "own_methods.algorithm:StickyClusters", "defence": "own_methods.defence:Rounding"}
    experiment = rehearsal(own["algorithm"], defence=own["defence"], clients=2, training={"rounds": 3})
    parties = deploy(experiment, silos=2)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "path", [folder for folder in sys.path if folder != str(OWN_PACKAGE)])
        assert parties.join("south").wait(PATIENCE) == 2
    assert "there is no module 'own_methods' here" in parties.log("south")
    parties.serve()
    parties.rogue("held", "north")
    parties.join("south")
    parties.until(lambda: parties.is_asleep("north"))
    assert len(parties.records()) == 1
    parties.running["server"].send_signal(signal.SIGKILL)
    parties.running["server"].wait()
    parties.serve()
    parties.wake("north")
    for name in ("server", *parties.names):
        parties.wait(name)
        assert "Traceback" not in parties.log(name)
    for name in ("server", "south"):
        assert all(f"own code, as it is installed here: {path}" in parties.log(name) for path in own.values())
    assert [r["round"] for r in parties.records()] == [1, 2, 3] and "going on after round" in parties.log("server")
    _, uses = simulated(experiment)
    for i, name in enumerate(parties.names):
        assert torch.allclose(parties.model(name).models, uses[i].models, atol=1e-5), name


@pytest.mark.parametrize(
    "words", [["serve", "--keys", "."], ["join", ".", "--data", "."], ["second-server", "."], ["csp", "."]]
)
def test_bad_input_is_one_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = main(words), capfd.readouterr().err
    assert code == 2 and "party.bin" in text and len(text.splitlines()) == 1


@pytest.mark.slow
def test_a_paused_coordinator(deploy: Any) -> None:
    """Its processes stand still for a minute, as under a closed lid: Flower has forgotten the run, and all find each other."""
    parties = deploy(rehearsal("ifca", clients=3, training={"rounds": 400}))
    server = parties.serve()
    for name in parties.names:
        parties.join(name)
    parties.until(lambda: len(parties.records()) >= 1)
    pids = [server.pid, *children(server.pid)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            os.kill(pid, number)
        time.sleep(60 if number == signal.SIGSTOP else 0)
    done = len(parties.records())
    parties.until(lambda: any(r["participants"] == 3 for r in parties.records()[done + 1 :]))
    assert "starting Flower's SuperLink again" in parties.log("server")


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(child) for child in found.stdout.split()]
