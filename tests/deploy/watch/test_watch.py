"""The operator's view: what a party says of itself, in every form, and that no secret stands in any of them."""

from __future__ import annotations

import base64
import http.client
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from covey.cli.main import commands, main
from covey.deploy import keys
from covey.deploy.coordinator import Coordinator
from covey.deploy.serve import watched
from covey.deploy.watch.exposition import exposition
from covey.deploy.watch.journal import JSON, Journal
from covey.deploy.watch.watch import Watch
from covey.errors import CoveyError
from covey.loopback import port_of
from covey.messages import decode
from covey.report.status import status_lines
from covey.results import status as of
from covey.results.status import COORDINATOR, Peer, Refusal, Spending, Status
from support.deployment import Deployment, rehearsal

LATER = 1_700_000_000.0


class Watched:
    """A rehearsal of three silos under masks, of which one sends garbage in round 2."""

    def __init__(self, folder: Path) -> None:
        experiment = rehearsal(
            "fedavg",
            encryption="secagg",
            model="softmax",
            clients=4,
            training={"rounds": 3},
            deployment={"rehearsal": True, "min_silos": 3},
        )
        self.folder, self.deployment, self.stream = folder, Deployment(folder, experiment), io.StringIO()
        self.deployment.office.tamper = self._tamper
        self.letters = 0
        party, agreed = keys.load(folder / "keys" / "server")
        journal, out = Journal("server", JSON, stream=self.stream), folder / "run"
        with watched(Status("server", COORDINATOR), out, folder / "keys" / "server", journal, None) as self.watch:
            self.coordinator = Coordinator(
                party, agreed, self.deployment.office, out, say=journal, watch=self.watch.begin()
            )
            self.coordinator.run()

    def _tamper(self, name: str, call: bytes, answer: bytes) -> bytes:
        self.letters += name == "south"
        return b"garbage" if name == "south" and self.letters == 5 else answer

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return Watched(tmp_path_factory.mktemp("watched"))


def test_a_run_as_its_operator_sees_it(run: Watched) -> None:
    status = of.read(run.folder / "run")
    assert (status.phase, status.done, status.rounds, status.what) == (of.FINISHED, 3, 3, "FedAvg")
    assert [peer.name for peer in status.peers] == ["north", "south", "west", "east"]
    south = next(peer for peer in status.peers if peer.name == "south")
    assert south.refused == 1 and south.answered + south.missed == 3 and south.why
    assert [(r.name, r.why) for r in status.refusals] == [("south", south.why)]
    assert all(peer.up > 0 and peer.down > 0 for peer in status.peers)
    assert len(status.expires) == 2 and not status.troubles(status.updated)
    written = "\n".join(status_lines(status, status.updated))
    assert (
        "finished, 3 rounds" in written
        and f"south: {south.why}" in written
        and "the server's certificate ends in 730 days" in written
    )


def test_the_journal_is_one_object_a_line(run: Watched) -> None:
    kinds = [line["event"] for line in run.lines]
    assert {line["party"] for line in run.lines} == {"server"} and kinds[-1] == "ends"
    assert kinds.count("round begins") == kinds.count("round ends") == 3
    refused = [line for line in run.lines if line["event"] == "refused"]
    assert [line["peer"] for line in refused] == ["south"]
    assert all(re.match(r"\d{4}-\d\d-\d\dT", line["time"]) for line in run.lines)


def _leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    elif hasattr(value, "__dataclass_fields__"):
        yield from _leaves(vars(value))


def test_no_secret_is_in_any_of_it(run: Watched) -> None:
    secrets: set[bytes] = set()
    for path in run.folder.glob("keys/**/party.bin"):
        party = decode(path.read_bytes())
        secrets |= {party.signing, *(leaf for leaf in _leaves(party.keys) if len(leaf) >= 16)}
    for path in [*run.folder.glob("keys/**/*.key")]:
        body = b"".join(line for line in path.read_bytes().splitlines() if not line.startswith(b"-----"))
        secrets.add(base64.b64decode(body))
    assert len(secrets) > 8
    seeds = [str(silo.state.seed) for silo in run.deployment.parties.values()]
    status = of.read(run.folder / "run")
    told = [
        run.stream.getvalue(),
        (run.folder / "run" / "status.json").read_text(),
        exposition(status, status.updated),
        "\n".join(status_lines(status, status.updated)),
    ]
    for text in told:
        assert not any(seed in text for seed in seeds) and run.coordinator.session.run not in text
        for secret in secrets:
            for form in (secret.hex(), base64.b64encode(secret).decode(), repr(secret)[2:-1]):
                assert form[:24] not in text


def test_three_failures_are_an_alert_and_a_round_that_works_ends_it(tmp_path: Path) -> None:
    stream = io.StringIO()
    watch = Watch(Status("server", COORDINATOR), Journal("server", JSON, stream=stream), tmp_path)
    said = [watch.failed(7, "still waiting for south") for _ in range(5)]
    assert [bool(words) for words in said] == [False, False, True, False, False]
    assert said[2] == "ALERT: round 7: 3 failures in a row, lastly: still waiting for south"
    assert "alert" in [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    status = watch.status
    assert status.troubles(of.now()) == ("ALERT: round 7: 5 failures in a row, lastly: still waiting for south",)
    assert "covey_alert 1\n" in exposition(status, of.now()) and "covey_healthy 0\n" in exposition(status, of.now())
    assert watch.ends(7, 1.0, ["north"], ["south"], well=False) == ""
    assert watch.ends(8, 1.0, ["north", "south"], [], well=True) == "round 8: works again, after 5 failures in a row"
    assert not watch.status.troubles(of.now()) and watch.failed(9, "x") == ""


def test_a_round_that_fails_thrice_alerts(tmp_path: Path) -> None:
    """From round 2 on nobody's answer can be read: the third try is the last, and said before the run ends."""
    experiment = rehearsal("fedavg", model="softmax", clients=2, training={"rounds": 3})
    deployment = Deployment(tmp_path, experiment)
    coordinator = deployment.coordinator()

    def spoil(done: int, record: dict[str, Any]) -> None:
        deployment.office.tamper = lambda name, call, answer: b"garbage"

    with pytest.raises(CoveyError, match="round 2: every silo's answer was refused"):
        coordinator.run(spoil)
    alert = "ALERT: round 2: 3 failures in a row, lastly: every silo's answer was refused"
    assert deployment.said.count(alert) == 1 and coordinator.watch.status.alert == alert
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event for event in events if "alert" in event] == [{"round": 2, "alert": alert}]


def example() -> Status:
    peers = (
        Peer("north", of.ANSWERED, LATER + 8, answered=3, seconds=8.0, up=1000, down=2000),
        Peer("south", of.WORKING, LATER, answered=2, missed=1, refused=1, why="too\n\x1b[31mred"),
        Peer('we"st\\', of.ANSWERED, LATER + 2, seconds=2.0),
    )
    return Status(
        "server", COORDINATOR, "FedAvg", of.ROUND, "", 4, 10, 3, LATER - 60, LATER, LATER, peers=peers,
        privacy=(Spending("client_dp", 3.25, 1e-5, "client"), Spending("none", None, None, "record")),
        expires={"the certificate": LATER + 10 * of.DAY},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error", "phase", "words"),
    [(None, of.FINISHED, ""), (KeyboardInterrupt(), of.STOPPED, ""), (CoveyError("no disk"), of.FAILED, "no disk")],
)
def test_how_it_ended(tmp_path: Path, error: BaseException | None, phase: str, words: str) -> None:
    watch = Watch(Status("server", COORDINATOR), folder=tmp_path).begin()
    watch.expect(["north"])
    watch.begins(3)
    watch.over(error)
    status = of.read(tmp_path)
    assert (status.phase, status.words) == (phase, words) and not status.is_silent(status.updated + 1e6)
    assert bool(status.troubles(status.updated)) == (phase == of.FAILED)
    again = Watch(
        Status("server", COORDINATOR), folder=tmp_path
    ).status  # started again: counts are kept, nobody is there
    assert [peer.name for peer in again.peers] == ["north"] and again.phase == of.WAITING


def test_who_is_late() -> None:
    status = example()
    assert status.late(LATER + 15) == {} and status.late(LATER + 20) == {"south": 20.0}
    assert replace(status, updated=LATER - 60).late(LATER + 20) == {}  # nobody has watched since
    assert status.troubles(LATER) == ("the certificate ends in 10 days: see `covey keys renew`",)
    assert "it has ended, or stands still" in status.troubles(LATER + 100)[0]


def test_prometheus_reads_it() -> None:
    text = exposition(example(), LATER + 20)
    sample = re.compile(r'[a-z_]+(\{([a-z]+="(\\.|[^"\\\n])*",?)*\})? (-?[0-9.e+-]+|\+Inf)')
    lines = text.splitlines()
    assert text.endswith("\n") and all(line.startswith("# ") or sample.fullmatch(line) for line in lines)
    names = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert 'covey_peer_late{peer="south"} 1' in lines and 'covey_peer_answers_total{peer="we\\"st\\\\"} 0' in lines
    assert 'covey_epsilon{mechanism="client_dp",unit="client"} 3.25' in lines and "covey_round_age_seconds 20" in lines
    assert 'covey_epsilon{mechanism="none",unit="record"} +Inf' in lines


def test_the_endpoint_answers_this_machine_only(tmp_path: Path) -> None:
    from covey.deploy.watch.endpoint import open_endpoint

    watch = Watch(Status("server", COORDINATOR))
    server = open_endpoint(lambda: watch.status, 0)
    try:

        def ask(path: str, **headers: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=20)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        assert server.server_address[0] == "127.0.0.1"
        assert ask("/health") == (200, "well\n") and ask("/metrics")[1].startswith("# HELP covey_up")
        assert of.of_json(json.loads(ask("/status.json")[1])).party == "server"
        assert ask("/metrics", Host="evil.example")[0] == 403 and ask("/keys")[0] == 404
        for _ in range(3):
            watch.failed(1, "nobody answers")
        code, words = ask("/health")
        assert code == 503 and "3 failures in a row" in words
        place = f"http://127.0.0.1:{port_of(server)}"
        assert main(["status", place]) == 1
    finally:
        server.shutdown()
        server.server_close()
    assert main(["status", place]) == 2


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "{",
        '{"party": 1}',
        '{"party": "a", "kind": "b", "peers": [{"name": 3, "since": "x"}]}',
        '{"party": "a", "kind": "b", "updated": "x"}',
    ],
)
def test_a_damaged_status_is_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "status.json").write_text(content)
    try:
        of.read(tmp_path)
    except CoveyError:
        return
    pytest.fail("was taken")


def test_the_command(tmp_path: Path, run: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(run.folder / "run")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "server, FedAvg: finished, 3 rounds"
    assert main(["status", str(run.folder / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 3
    assert main(["status", str(tmp_path)]) == 2 and (said := capsys.readouterr().err).count("holds no status.json") == 1
    assert "simulated" not in said
    (tmp_path / "result.json").write_text("{}")
    assert main(["status", str(tmp_path)]) == 2 and "a simulated run has none" in capsys.readouterr().err
    with pytest.raises(CoveyError, match="--log"):
        Journal(form="xml")


def test_nothing_in_a_status_obeys_the_terminal(tmp_path: Path) -> None:
    """Its words may be of whoever took the port, or the file's place, before its party did."""
    escape = "\x1b[2J\rwell"
    watch = Watch(Status("server", COORDINATOR))
    watch.met("north", escape)
    (peer,) = watch.status.peers
    assert escape not in peer.version and "well" in peer.version
    status = replace(watch.status, refusals=(Refusal(0.0, 1, escape, escape),), phase="failed", words=escape)
    (tmp_path / "status.json").write_text(json.dumps(status.json()))
    shown = CliRunner().invoke(commands(), ["status", str(tmp_path)]).output
    assert "refusals" in shown and "\\x1b[2J\\rwell" in shown and "\x1b" not in shown and "\r" not in shown
