"""Coordinator, silos and further servers with real keys and letters; the processes and Flower are in test_processes.py."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey import Experiment, run
from covey.algorithms.fedcaprivacy.two_servers import BusinessState
from covey.algorithms.ifca import ClusterUpdate
from covey.attacks.contract import Finding
from covey.deploy import load_model
from covey.deploy import session as sessions
from covey.deploy.course.questions import check_answer
from covey.deploy.letters import MAGIC, Letter, OtherProtocol, RoundReply, unpack
from covey.deploy.transcript import line
from covey.errors import CoveyError
from covey.files import read_state
from covey.messages import decode, encode
from covey.version import PROTOCOL
from support.deployment import Deployment, rehearsal

ALGORITHMS: list[Any] = [
    ("local", "none"),
    ("fedavg", "none"),
    ("fedprox", "none"),
    ("scaffold", "none"),
    ("feddyn", "none"),
    ("fedem", "none"),
    ("ifca", "none"),
    ({"name": "ifca", "aggregation": "median"}, "none"),
    ({"name": "fedavg", "weighting": "clients", "aggregation": "clipped"}, "none"),
    ("sattler", "none"),
    ("fedsoft", "none"),
    ("fedper", "none"),
    ({"name": "auto_k", "under": "fedgroup"}, "none"),
    ({"name": "pqfed", "components": 8, "k": 3, "strategy": "all"}, "none"),
    ("mingledpie", "ckks"),
    ({"name": "ifca", "min_group": 3}, "none"),
    ({"name": "mingledpie", "threshold": 1, "min_group": 3}, "ckks"),
    ("routing", "bfv"),
    ("routing", "threshold"),
    ({"name": "fedcaprivacy", "min_size": 2}, "bfv"),
    ({"name": "fedcaprivacy", "min_size": 2, "mitigation": "sketch"}, "bfv"),
]


class Watch:
    """Writes down what passes, as transcripts do."""

    name, vantage = "watch", "eavesdropper"

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.memory: dict[str, Any] = {}

    def begin(self, knowledge: Any) -> None: ...

    def observe(self, view: Any) -> None:
        self.lines.append(line(view.round, view.sender, view.receiver, view.message))

    def end_round(self, round: int) -> None: ...

    def finding(self, truth: Any) -> Finding:
        return Finding("watch", "eavesdropper", "nothing", 0.0, 0.0, 0.0, 0.0)


def transcript(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_an_eavesdropper_sees_everything_in_the_simulation() -> None:
    watch = Watch()
    run(rehearsal("ifca", training={"rounds": 1}), attacks=[watch], quiet=True)
    assert len(watch.lines) == 8  # four clients, down and up


@pytest.mark.parametrize(("algorithm", "encryption"), ALGORITHMS, ids=str)
def test_deployed_and_simulated_runs_are_the_same(tmp_path: Path, algorithm: Any, encryption: str) -> None:
    experiment = rehearsal(algorithm, encryption=encryption, training={"rounds": 2})
    watch = Watch()
    simulated = run(experiment, attacks=[watch], quiet=True)
    deployment = Deployment(tmp_path, experiment)
    deployed = deployment.coordinator().run()
    seen = transcript(tmp_path / "run" / "transcript.jsonl")
    sealed, last_bit = encryption != "none", algorithm in ("fedem", "fedsoft", "fedper", "scaffold")
    for ours, theirs in zip(sorted(seen, key=order), sorted(watch.lines, key=order), strict=True):
        # Ciphertexts differ in every run, and what is computed for one client or for many at once may in the last bit.
        same = ("round", "from", "to", "kind") if sealed or last_bit else tuple(ours)
        assert [ours[k] for k in same] == [theirs[k] for k in same]
        assert ours["bytes"] == pytest.approx(theirs["bytes"], rel=1e-3)  # headers hold numbers as text
    assert deployed.bytes == pytest.approx(simulated.bytes, rel=1e-3)
    served = [n for n in deployment.names if (tmp_path / "state" / n / "model.bin").is_file()]
    assert served
    for name in served:
        mine = read_state(tmp_path / "state" / name / "model.bin")
        assert mine.accuracy is not None and bool(torch.isfinite(mine.models).all())
    if last_bit:
        states = (vars(result.state).values() for result in (deployed, simulated))
        assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(*states, strict=True))
    elif not sealed:
        assert encode(deployed.state) == encode(simulated.state)


def order(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["round"], line["from"], line["to"], line["kind"], line["bytes"]


def test_ciphertexts_hold_the_simulations_models(tmp_path: Path) -> None:
    experiment = rehearsal("mingledpie", encryption="ckks")
    deployment = Deployment(tmp_path, experiment)
    deployment.coordinator().run()
    plain = Deployment(tmp_path / "plain", rehearsal("mingledpie"))
    plain.coordinator().run()
    for name in deployment.names:
        sealed, clear = (read_state(folder / "state" / name / "model.bin") for folder in (tmp_path, tmp_path / "plain"))
        assert sealed.index == clear.index
        assert torch.allclose(sealed.models, clear.models, atol=1e-5)


def test_a_coordinator_started_again_goes_on(tmp_path: Path) -> None:
    """Killed after aggregating but before saving round 2: round 2 is asked again, and answered as before."""
    experiment = rehearsal("scaffold")
    deployment = Deployment(tmp_path / "a", experiment)
    first = deployment.coordinator()
    save = first._save

    def dies(state: Any, done: int) -> None:
        if done == 2:
            raise KeyboardInterrupt
        save(state, done)

    first._save = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.run()
    resumed = deployment.coordinator().run()
    assert sum("asked again, answered as before" in said for said in deployment.said) == 4
    assert resumed.rounds == 3 and [r["round"] for r in resumed.records] == [1, 2, 3]
    whole = Deployment(tmp_path / "b", experiment).coordinator().run()
    assert encode(resumed.state) == encode(whole.state)


def test_a_silo_started_again_remembers(tmp_path: Path) -> None:
    experiment = rehearsal("mingledpie", encryption="ckks")
    deployment = Deployment(tmp_path, experiment)
    coordinator = deployment.coordinator()
    shown: list[dict[str, Any]] = []

    def restart(done: int, record: Any) -> None:
        shown.append(deployment.parties["north"].host.memories.whole[0]["sets"])
        deployment.parties["north"] = deployment.silo("north")

    coordinator.run(restart)
    assert shown[0] == shown[1] or set(map(str, shown[0])) <= set(map(str, shown[1]))  # kept, never drawn anew


def test_a_round_whose_answer_could_not_be_stored_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """North's disk is full once, in round 2: it is not counted there, and its memory is as before."""
    deployment = Deployment(tmp_path, rehearsal("scaffold"))
    north = deployment.parties["north"]
    coordinator = deployment.coordinator()
    state, _ = coordinator._begin()

    def ask(round: int) -> bytes:
        letter = coordinator.session.mailbox.write(coordinator.session.run, "round", "client:0", round, state)[0]
        return encode(decode(unpack(north.handle(letter)).payload).body)

    ask(1)
    with monkeypatch.context() as full:
        full.setattr(north, "_save", lambda state: (_ for _ in ()).throw(CoveyError("the disk is full")))
        with pytest.raises(CoveyError, match="disk is full"):
            ask(2)
    again = ask(2)
    other = Deployment(tmp_path / "other", rehearsal("scaffold"))
    north, coordinator = other.parties["north"], other.coordinator()
    coordinator._begin()
    ask(1)
    assert ask(2) == again


def test_a_silo_predicts_with_what_it_took_home(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("fedem", training={"rounds": 4, "lr": 0.1}))
    deployment.coordinator().run()
    model = load_model(tmp_path / "state" / "north")
    tested = np.load(tmp_path / "data" / "north" / "test.npz")
    right = np.mean([int(word) == y for word, y in zip(model.predict(tested["x"]), tested["y"])])
    assert right == pytest.approx(model.accuracy) and model.weights is not None
    with pytest.raises(CoveyError, match="the model reads"):
        model.predict(np.zeros((2, 3, 3), np.uint8))
    with pytest.raises(CoveyError, match="its run is not over"):
        load_model(tmp_path)


def test_two_questions_in_one_round_are_refused(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("ifca"))
    coordinator = deployment.coordinator()
    state, _ = coordinator._begin()
    coordinator.gather()
    north = deployment.parties["north"]

    def ask(round: int, body: Any) -> bytes:
        return bytes(
            north.handle(
                coordinator.session.mailbox.write(coordinator.session.run, "round", "client:0", round, body)[0]
            )
        )

    first = ask(1, coordinator.algorithm.broadcast(state, 0))
    again = ask(1, coordinator.algorithm.broadcast(state, 0))
    bodies = [decode(unpack(data).payload).body for data in (first, again)]
    assert encode(bodies[0]) == encode(bodies[1])
    with pytest.raises(CoveyError, match="with other words"):
        ask(1, replace(state, models=state.models + 1))
    ask(2, state)
    with pytest.raises(CoveyError, match="no round is answered twice"):
        ask(1, coordinator.algorithm.broadcast(state, 0))


def test_a_silo_follows_its_own_coordinator_and_run_only(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("ifca"))
    coordinator = deployment.coordinator()
    state, _ = coordinator._begin()
    north, south = deployment.parties["north"], deployment.parties["south"]
    with pytest.raises(CoveyError, match="unknown sender"):
        north.handle(south.mailbox.write(coordinator.session.run, "round", "client:0", 1, state)[0])
    call = coordinator.session.mailbox.write(coordinator.session.run, "round", "client:1", 1, state)[0]
    with pytest.raises(CoveyError, match="for 'client:1' came to 'client:0'"):
        north.handle(call)
    with pytest.raises(CoveyError, match="replay"):
        north.handle(call)
    north.handle(coordinator.session.mailbox.write(coordinator.session.run, "round", "client:0", 1, state)[0])
    with pytest.raises(CoveyError, match="takes part in run"):
        north.handle(coordinator.session.mailbox.write("another", "round", "client:0", 2, state)[0])
    with pytest.raises(CoveyError, match="hello, round, consult and finish"):
        north.handle(coordinator.session.mailbox.write(coordinator.session.run, "exec", "client:0", 2, "rm -rf /")[0])


def tampered(deployment: Deployment, change: Any) -> None:
    """From now on north answers rounds with what `change` makes of its reply, well signed."""
    north = deployment.parties["north"]

    def tamper(name: str, call: bytes, answer: bytes) -> bytes | None:
        letter: Letter = decode(unpack(answer).payload)
        if name != "north" or letter.kind != "round":
            return answer
        changed = change(letter, unpack(answer).round)
        if isinstance(changed, bytes):
            return changed
        round, body, answers = changed
        return bytes(north.mailbox.write(letter.run, "round", letter.receiver, round, body, answers)[0])

    deployment.office.tamper = tamper


def reply(letter: Letter, **changed: Any) -> RoundReply:
    return replace(letter.body, reply=replace(letter.body.reply, **changed))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda letter, r: b"garbage", "not a letter"),
        (lambda letter, r: b"", "not a letter"),
        (lambda letter, r: MAGIC + bytes([PROTOCOL, 255]) + bytes(90), "not a letter"),
        (lambda letter, r: encode({"a": 1}), "not a letter"),
        (lambda letter, r: (r, reply(letter, model=torch.zeros(3)), letter.answers), "has the shape"),
        (
            lambda letter, r: (r, reply(letter, model=letter.body.reply.model * float("nan")), letter.answers),
            "infinite",
        ),
        (lambda letter, r: (r, reply(letter, cluster=7), letter.answers), "expected a cluster"),
        (lambda letter, r: (r, reply(letter, samples=-5), letter.answers), "positive number of samples"),
        (
            lambda letter, r: (r, RoundReply(letter.body, None), letter.answers),
            "found a RoundReply, expected ClusterUpdate",
        ),
        (lambda letter, r: (r, "reply", letter.answers), "found a str"),
        (lambda letter, r: (r - 1, letter.body, letter.answers), "is of round"),
        (lambda letter, r: (r, letter.body, "0" * 16), "stale, or a replay"),
    ],
)
def test_what_a_broken_silo_sends_is_refused_and_the_round_goes_on(tmp_path: Path, change: Any, why: str) -> None:
    deployment = Deployment(tmp_path, rehearsal("ifca", training={"rounds": 2}))
    tampered(deployment, change)
    result = deployment.coordinator().run()
    assert [r["participants"] for r in result.records] == [3, 3]
    events = transcript(tmp_path / "run" / "events.jsonl")
    assert [e["refused"] for e in events] == ["north", "north"] and all(why in e["why"] for e in events)
    assert sum("refused north" in said for said in deployment.said) == len({e["why"] for e in events})
    assert bool(torch.isfinite(result.state.models).all())


def test_a_replayed_answer_is_refused(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("ifca", training={"rounds": 2}))
    kept: list[bytes] = []

    def tamper(name: str, call: bytes, answer: bytes) -> bytes:
        if name == "north" and decode(unpack(answer).payload).kind == "round":
            kept.append(answer)
            return kept[0]
        return answer

    deployment.office.tamper = tamper
    result = deployment.coordinator().run()
    assert [r["participants"] for r in result.records] == [4, 3]
    assert "replay" in transcript(tmp_path / "run" / "events.jsonl")[0]["why"]


def test_a_ciphertext_under_another_key_is_refused(tmp_path: Path) -> None:
    experiment = rehearsal("mingledpie", encryption="ckks", training={"rounds": 2})
    deployment, other = Deployment(tmp_path / "a", experiment), Deployment(tmp_path / "b", experiment)
    sealing = other.parties["north"].host.keys["sealing"]
    deployment.parties["north"].host.keys["sealing"] = sealing
    result = deployment.coordinator().run()
    assert result.records[0]["participants"] == 3
    assert "under another key" in transcript(tmp_path / "a" / "run" / "events.jsonl")[0]["why"]
    assert torch.isfinite(read_state(tmp_path / "a" / "state" / "south" / "model.bin").models).all()


def test_a_letter_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("ifca", training={"rounds": 1}))
    coordinator = deployment.coordinator()
    tampered(deployment, lambda letter, r: bytes(coordinator.session.mailbox.max_bytes + 1))
    coordinator.run()
    assert "MB are allowed" in transcript(tmp_path / "run" / "events.jsonl")[0]["why"]


def test_a_silo_that_is_gone_is_missed_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "GONE_SECONDS", 0.2)
    deployment = Deployment(tmp_path, rehearsal("ifca"))

    def change(done: int, record: Any) -> None:
        deployment.office.away = {"west"} if done == 1 else set()

    result = deployment.coordinator().run(change)
    assert [r["participants"] for r in result.records] == [4, 3, 4]


@pytest.mark.parametrize(("later", "forgotten"), [(-1, False), (1, True)])
def test_a_late_word_of_a_beginning_forgets_no_silo_that_was_greeted_since(
    tmp_path: Path, later: int, forgotten: bool
) -> None:
    """The door says in a line of its own that a node has begun: on a busy machine that is heard after the node's answer."""
    deployment = Deployment(tmp_path, rehearsal("ifca", training={"rounds": 1}))
    coordinator, office = deployment.coordinator(), deployment.office
    node, began = office.nodes["west"], time.monotonic() + 60 * later  # before or after every greeting
    words = [{node: began}]

    def begun() -> dict[int, float]:
        return words.pop() if words and node in coordinator.session.at.values() else {}

    office.begun = begun  # type: ignore[method-assign]
    coordinator.run()
    assert not words and any("west was started again" in text for text in deployment.said) == forgotten


def test_waiting_for_all_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "GONE_SECONDS", 0.2)
    deployment = Deployment(tmp_path, rehearsal("ifca", deployment={"missing": "wait", "rehearsal": True}))
    coordinator, office = deployment.coordinator(), deployment.office

    def tamper(name: str, call: bytes, answer: bytes) -> bytes:
        if decode(unpack(answer).payload).kind == "round" and unpack(answer).round == 2 and name == "south":
            office.away = {"west"}  # leaves in the middle of the round …
        return answer

    def say(text: str) -> None:
        deployment.said.append(text)
        if "still waiting for west" in text:
            office.away = set()  # … and comes back when it is missed

    office.tamper, coordinator.say = tamper, say
    coordinator.session.say = say
    result = coordinator.run()
    assert [r["participants"] for r in result.records] == [4, 4, 4]


def test_noise_in_a_silo_is_its_own(tmp_path: Path) -> None:
    """Outside of a rehearsal nobody who knows the experiment's seed knows a silo's draws."""
    experiment = rehearsal("ifca", deployment={"rehearsal": False})
    a, b = Deployment(tmp_path / "a", experiment), Deployment(tmp_path / "b", experiment)
    seeds = {d.parties[n].host.private_seed for d in (a, b) for n in a.names}
    assert len(seeds) == 8 and experiment.seed not in seeds


def test_nothing_of_the_clients_notes_or_spends_leaves(tmp_path: Path) -> None:
    experiment = rehearsal("ifca", defence={"name": "ldp", "epsilon": 5.0}, training={"rounds": 2})
    deployment = Deployment(tmp_path, experiment)
    sent: list[Any] = []

    def tamper(name: str, call: bytes, answer: bytes) -> bytes:
        sent.append(decode(unpack(answer).payload).body)
        return answer

    deployment.office.tamper = tamper
    result = deployment.coordinator().run()
    assert all(isinstance(b.reply, ClusterUpdate | None) for b in sent if isinstance(b, RoundReply))
    assert result.privacy == {}
    ledger = json.loads((tmp_path / "state" / "north" / "summary.json").read_text())["privacy"]
    assert ledger["ldp"]["epsilon"] is None or ledger["ldp"]["epsilon"] > 0


def test_what_an_older_covey_stored_is_read_under_its_former_names() -> None:
    state = BusinessState({0: [1]}, [b"", b"x"], [1, 1], [], {0: 0}, {})
    for value, former in ((RoundReply({"a": 1}, 0.5), "Told"), (state, "Desk")):
        data = encode(value)
        header = data[8:].replace(type(value).__name__.encode(), former.encode(), 1)
        length = int.from_bytes(data[4:8], "little") - len(type(value).__name__) + len(former)
        assert decode(data[:4] + length.to_bytes(4, "little") + header) == value


def two_servers() -> Experiment:
    return rehearsal({"name": "fedcaprivacy", "min_size": 2}, encryption="bfv")


def test_a_second_server_answers_what_its_algorithm_asks_and_nothing_else(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, two_servers())
    coordinator, csp = deployment.coordinator(), deployment.parties["csp"]
    odd = ClusterUpdate(torch.zeros(2), 0, 1)
    letter, _ = coordinator.session.mailbox.write("run", "ask", "csp", 1, odd)
    with pytest.raises(CoveyError, match="ClusterUpdate, expected CoveredRound or CoveredSums"):
        csp.handle(letter)
    with pytest.raises(CoveyError, match="'csp' answered with a ClusterUpdate, expected CoveredMeans or CoveredSums"):
        check_answer(coordinator.declared, "csp", odd)


def test_an_envelope_of_wrong_kinds_is_refused_and_the_round_goes_on(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, two_servers())
    wrong: list[dict[str, Any]] = [{"round": "1"}, {"nonce": None}, {"payload": [1]}]
    tampered(deployment, lambda letter, r: (r, reply(letter, **wrong[r - 1]), letter.answers))
    result = deployment.coordinator().run()
    assert [r["participants"] for r in result.records] == [3, 3, 3]
    events = transcript(tmp_path / "run" / "events.jsonl")
    assert [e["why"].split()[0] for e in events] == ["Envelope.round", "Envelope.nonce", "Envelope.payload"]
    assert not any("order" in record["extra"] for record in result.records)  # whose row is whose is not written down


def test_a_silo_tells_its_accuracy_only_where_both_sides_agreed(tmp_path: Path) -> None:
    """The silos of these tests would share theirs; what they agreed on asks for none."""
    quiet = rehearsal("fedavg", training={"rounds": 1}, deployment={"rehearsal": True, "report_accuracy": False})
    deployment = Deployment(tmp_path, quiet, silos=2)
    deployment.coordinator().run()
    records = [json.loads(text) for text in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["accuracy"] for record in records] == [None]


def test_a_silo_answers_its_server_and_no_other_whose_key_it_knows(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, rehearsal("fedavg", training={"rounds": 1}), silos=2)
    north, south = (deployment.parties[name] for name in deployment.names)
    north.mailbox.learn({south.role: south.mailbox._signer.public})
    letter, _ = south.mailbox.write("a run", "hello", north.role, 1, None)
    with pytest.raises(CoveyError, match=f"a letter came from '{south.role}'"):
        north.handle(letter)


def test_a_silo_of_another_protocol_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Both owners are told, once; the others go on without it."""
    deployment = Deployment(tmp_path, rehearsal("ifca", training={"rounds": 2}, deployment={"min_silos": 3}))
    deployment.parties["north"].mailbox.protocol = PROTOCOL + 1
    result = deployment.coordinator().run()
    assert [r["participants"] for r in result.records] == [3, 3]
    advice = "install the same covey on both sides"
    ours = [said for said in deployment.said if said.startswith("a letter of the coordinator cannot be read")]
    theirs = [said for said in deployment.said if "refused north" in said]
    assert len(ours) == len(theirs) == 1 and advice in ours[0] and advice in theirs[0]
    assert f"speaks protocol {PROTOCOL}, and" in ours[0] and f"speaks protocol {PROTOCOL + 1}, and" in theirs[0]


def test_a_letter_of_the_first_protocol_is_known_as_one() -> None:
    with pytest.raises(OtherProtocol, match="speaks protocol 1, and"):
        unpack(b"CVYL\x06server" + bytes(96))
    for short in (b"", MAGIC, MAGIC + bytes([PROTOCOL])):
        with pytest.raises(CoveyError, match="not a letter"):
            unpack(short)
