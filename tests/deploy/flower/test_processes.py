"""Real processes on loopback: coordinator, silos and second server, over Flower with TLS and node authentication."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from covey.cli.main import main
from covey.deploy.membership.roll import node_keys
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
    parties = deploy(experiment, silos=2, program=True)
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
    parties = deploy(rehearsal("ifca", clients=3, training={"rounds": 400}), program=True)
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
