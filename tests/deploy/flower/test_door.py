"""What somebody without a key can do at the coordinator's port."""

from __future__ import annotations

import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, cast

import pytest

from covey.deploy.flower.door import Guests
from covey.deploy.flower.process import listening
from covey.errors import CoveyError
from support.doors import NUMBER, Silo, StandingDoor, standing_door, status_of
from support.patience import PATIENCE, until

CALL, PULL = "/v1/fleet/get-run", "/v1/fleet/pull-messages"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingDoor]:
    with standing_door(tmp_path_factory.mktemp("door")) as standing:
        yield standing


@pytest.fixture(autouse=True)
def nothing_passed(request: pytest.FixtureRequest) -> None:
    if "door" in request.fixturenames:
        request.getfixturevalue("door").inner.calls.clear()


def test_a_silo_passes(door: StandingDoor) -> None:
    """Several requests of one connection; large bodies are streamed; only known headers go on."""
    body = random.Random(0).randbytes(16 << 20)
    with door.dial() as line:
        for content in (b"", b"some bytes", body):
            line.sendall(door.silo.request(body=content, **{"x-other": "1", "connection": "keep-alive"}))
            answer = bytearray()
            while not answer.endswith(content) or b"\r\n\r\n" not in answer:
                answer += line.recv(1 << 20)
            assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200"))
            assert answer.partition(b"\r\n\r\n")[2] == content
    assert [(path, size) for path, _, size in door.inner.calls] == [(CALL, 0), (CALL, 10), (CALL, 16 << 20)]
    names = {name.lower() for _, headers, _ in door.inner.calls for name in headers}
    assert names == {"content-length", "flwr-public-key", "flwr-timestamp", "flwr-signature"}


def refused() -> dict[str, tuple[int, Any]]:
    """What is wrong -> (status, the request of a silo)."""
    return {
        "control": (403, lambda silo: silo.request("/v1/control/list-nodes")),
        "runtime": (403, lambda silo: silo.request("/v1/runtime/get-nodes")),
        "registering": (403, lambda silo: silo.request("/v1/fleet/register-node")),
        "unregistering": (403, lambda silo: silo.request("/v1/fleet/unregister-node")),
        "another path's dots": (403, lambda silo: silo.request("/v1/fleet/../control/list-nodes")),
        "a query": (403, lambda silo: silo.request(f"{PULL}?x=/v1/control")),
        "a host in the path": (403, lambda silo: silo.request(f"http://localhost{PULL}")),
        "an escaped path": (403, lambda silo: silo.request("/v1/fleet/pull%2Dmessages")),
        "GET": (403, lambda silo: silo.request().replace(b"POST", b"GET", 1)),
        "an older HTTP": (400, lambda silo: silo.request().replace(b"HTTP/1.1", b"HTTP/1.0", 1)),
        "HTTP/2": (400, lambda silo: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        "no key": (401, lambda silo: b"POST %b HTTP/1.1\r\ncontent-length: 0\r\n\r\n" % CALL.encode()),
        "another's key": (401, lambda silo: Silo().request()),
        "another's signature": (
            401,
            lambda silo: silo.request(**{"flwr-signature": Silo().headers()["flwr-signature"]}),
        ),
        "another's time": (401, lambda silo: silo.request(**{"flwr-timestamp": "2027-01-01T00:00:00+00:00"})),
        "a key that is no key": (401, lambda silo: silo.request(**{"flwr-public-key": "AAAA"})),
        "no base64": (401, lambda silo: silo.request(**{"flwr-public-key": "%%%"})),
        "no length": (411, lambda silo: silo.request().replace(b"content-length", b"content-weight", 1)),
        "a negative length": (411, lambda silo: silo.request().replace(b"length: 0", b"length: -1", 1)),
        "a signed length": (411, lambda silo: silo.request().replace(b"length: 0", b"length: +5", 1)),
        "two lengths": (400, lambda silo: silo.request().replace(b"\r\n", b"\r\ncontent-length: 5\r\n", 1)),
        "chunks": (411, lambda silo: silo.request(**{"transfer-encoding": "chunked"})),
        "an upgrade": (411, lambda silo: silo.request(upgrade="websocket")),
        "a folded header": (400, lambda silo: silo.request(**{"x-a": "b\r\n c"})),
        "a lone line feed": (400, lambda silo: silo.request(**{"x-a": "b\nx-c: d"})),
        "a space before the colon": (400, lambda silo: silo.request(**{"x-a ": "b"})),
        "a zero byte": (400, lambda silo: silo.request(**{"x-a": "b\0"})),
        "a long body": (413, lambda silo: silo.request().replace(b"length: 0", b"length: 9999999999", 1)),
        "long headers": (431, lambda silo: silo.request(**{"x-a": "b" * 40_000})),
    }


@pytest.mark.parametrize("what", refused())
def test_what_does_not_pass(door: StandingDoor, what: str) -> None:
    status, request = refused()[what]
    assert door.status(request(door.silo)) == status
    assert door.inner.calls == []
    assert door.status(door.silo.request()) == 200


def test_garbage(door: StandingDoor) -> None:
    """Inside TLS and instead of it: an answer or a closed line, and nothing reaches Flower."""
    draw = random.Random(1)
    for n in range(200):
        noise = draw.randbytes(draw.randrange(1, 3000)) + b"\r\n\r\n" * (n % 2)
        if n % 4 == 0:
            with socket.create_connection(("127.0.0.1", door.port), timeout=PATIENCE) as plain:
                plain.sendall(noise)
        elif n % 4 == 1:  # a request that decays
            request = bytearray(door.silo.request())
            request[draw.randrange(len(request) - 4)] = draw.choice(b"\r\n\0 :\x1b\xff")
            assert door.status(bytes(request)) in (200, 400, 401, 403, 411)
        else:
            assert door.status(noise + b"\r\n\r\n") in (0, 400, 431)
    assert all(path == CALL and size == 0 for path, _, size in door.inner.calls)
    assert door.status(door.silo.request()) == 200 and door.process.alive()
    assert "\x1b" not in (door.folder / "door.log").read_text()


def test_a_key_that_is_taken_back(door: StandingDoor) -> None:
    door.process.tell(door.inner.server_port, {})
    until(lambda: door.status(door.silo.request()) == 401)
    door.admit()
    until(lambda: door.status(door.silo.request()) == 200)


def test_one_silo_has_so_many_lines(door: StandingDoor) -> None:
    """The newest are kept: older ones may be of a network that is gone."""
    with ExitStack() as stack:
        lines = [stack.enter_context(door.dial()) for _ in range(9)]
        for line in lines:
            line.sendall(door.silo.request())
            assert status_of(line) == 200
        assert lines[0].recv(100) == b""  # hung up
        for line in lines[1:]:
            line.sendall(door.silo.request())
            assert status_of(line) == 200


class Question:
    """A SuperNode that asks whether there are letters, and waits."""

    def __init__(self, door: StandingDoor) -> None:
        door.admit()  # who is told anew whom to admit does not know of any letters
        self.door, self.line = door, door.dial()
        self.door.inner.answers[PULL] = b""
        self.line.sendall(door.silo.request(PULL, b"\x0a\x02\x08\x01"))
        self.until_asked(1)

    def until_asked(self, times: int) -> None:
        until(lambda: len(self.door.inner.calls) == times, lambda: self.door.inner.calls)

    @property
    def is_held(self) -> bool:
        self.line.settimeout(0.3)
        try:
            self.line.recv(1)
        except TimeoutError:
            return True
        return False


def test_a_question_is_held_until_there_is_a_letter(door: StandingDoor) -> None:
    """The coordinator hears of the question, the silo of the letter; a letter for somebody else changes nothing."""
    door.heard.clear()
    question = Question(door)
    until(lambda: door.heard == [{"asks": door.silo.public.decode()}], lambda: door.heard)
    door.process.posted(Silo().public)
    assert question.is_held and len(door.inner.calls) == 1
    door.process.posted(door.silo.public)  # which another connection has taken already
    question.until_asked(2)
    assert question.is_held
    door.inner.answers[PULL] = b"a letter"
    begin = time.monotonic()
    door.process.posted(door.silo.public)
    question.line.settimeout(PATIENCE)
    assert question.line.recv(1 << 16).startswith(b"HTTP/1.") and question.line.recv(100) == b"a letter"
    print(f"answered after {1e3 * (time.monotonic() - begin):.0f} ms")
    assert set(door.inner.bodies[-3:]) == {b"\x0a\x02\x08\x01"}
    question.line.sendall(door.silo.request())  # the connection goes on
    assert status_of(question.line) == 200


def test_flower_is_not_asked_for_letters_that_cannot_be_there(door: StandingDoor) -> None:
    """After the one that was posted was fetched; the next one is, though nobody has asked between."""
    door.heard.clear()
    first = Question(door)
    door.inner.answers[PULL] = b"a letter"
    door.process.posted(door.silo.public)
    first.until_asked(2)
    first.line.settimeout(PATIENCE)
    assert first.line.recv(1 << 16).startswith(b"HTTP/1.") and first.line.recv(100) == b"a letter"
    first.line.sendall(door.silo.request(PULL, b"\x0a\x02\x08\x01"))
    until(lambda: len(door.heard) >= 2, lambda: door.heard)
    assert first.is_held and len(door.inner.calls) == 2
    door.process.posted(door.silo.public)
    first.until_asked(3)


def test_who_hangs_up_is_not_held(door: StandingDoor) -> None:
    """A letter for a silo that is gone stays with Flower."""
    question = Question(door)
    question.line.close()
    until(lambda: not door.is_connected())
    door.process.posted(door.silo.public)
    assert door.status(door.silo.request()) == 200
    assert [path for path, _, _ in door.inner.calls] == [PULL, CALL]


def test_a_key_that_is_taken_back_holds_nothing(door: StandingDoor) -> None:
    question = Question(door)
    door.process.tell(door.inner.server_port, {})
    question.line.settimeout(PATIENCE)
    assert status_of(question.line) == 401
    assert len(door.inner.calls) == 1
    door.admit()
    until(lambda: door.status(door.silo.request()) == 200)


def test_a_question_that_is_too_long_is_not_held(door: StandingDoor) -> None:
    """Nothing long is kept in memory: it is passed on, and whatever Flower answers comes back at once."""
    door.inner.answers[PULL] = b""
    assert door.status(door.silo.request(PULL, bytes(5_000))) == 200


def test_a_node_that_begins_again(door: StandingDoor) -> None:
    """Its former life is ended first, where it has said goodbye; Flower would refuse the new one for a minute."""
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest

    activate, deactivate = "/v1/fleet/activate-node", "/v1/fleet/deactivate-node"
    assert door.status(door.silo.request(deactivate, b"goodbye")) == 200
    until(lambda: not door.is_connected())
    door.inner.calls.clear()
    door.inner.bodies.clear()
    door.heard.clear()
    asked = time.monotonic()
    assert door.status(door.silo.request(activate, b"begin")) == 200
    assert [path for path, _, _ in door.inner.calls] == [deactivate, activate]
    assert door.inner.bodies == [DeactivateNodeRequest(node_id=NUMBER).SerializeToString(), b"begin"]
    until(lambda: [words["begins"] for words in door.heard] == [door.silo.public.decode()], lambda: door.heard)
    assert asked <= float(door.heard[0]["since"]) <= time.monotonic()  # the coordinator's own clock
    assert (
        door.status(door.silo.request()) == 200
    )  # now it lives, and another one under its key is for Flower to refuse
    until(lambda: not door.is_connected())
    door.inner.calls.clear()
    assert door.status(door.silo.request(activate, b"begin")) == 200
    assert [path for path, _, _ in door.inner.calls] == [activate]  # the coordinator hears of it where Flower takes it
    until(
        lambda: [w["begins"] for w in door.heard if "begins" in w] == 2 * [door.silo.public.decode()],
        lambda: door.heard,
    )


def test_a_silent_node_may_begin_again_and_a_living_one_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A living node's heart beats every 4 s; asking to begin is no heartbeat."""
    now = 1000.0
    monkeypatch.setattr("covey.deploy.flower.door.time.monotonic", lambda: now)
    guests, key, tasks = Guests(), b"a key", cast(Any, ["the connection that asks", "an older one"])
    guests.nodes, guests.connections = {key: 7}, {key: tasks[:1]}
    assert guests.former_life(key) == 7  # never heard of
    guests.hear(key, "/v1/fleet/send-node-heartbeat")
    now += 14
    guests.hear(key, "/v1/fleet/activate-node")
    assert guests.former_life(key) is None
    now += 1
    assert guests.former_life(key) == 7
    guests.connections = {key: tasks}
    assert guests.former_life(key) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "0.0.0.0", "::1", "::"])
def test_where_it_listens(host: str) -> None:
    """Any address of this machine."""
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    listener = listening(host, 0)
    reach = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    with listener, socket.create_connection((reach, listener.getsockname()[1]), timeout=5):
        pass
    with pytest.raises(CoveyError, match="cannot be used"):
        listening("192.0.2.1", 0)  # of nobody's machine


def test_floods(door: StandingDoor) -> None:
    """Slow heads, lines that say nothing and 10,000 connections from another address: silos are served all the while, memory
    and handles stay bounded, and all of it is gone in the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 12_000), hard))
    resting = door.handles()
    slowest, most = 0.0, 0.0
    with ExitStack() as stack:
        slow = [stack.enter_context(door.dial("127.0.0.3")) for _ in range(30)]
        for line in slow:
            line.sendall(b"POST /v1/fleet/pull-me")
        kept = min(hard, 12_000) - 500
        lines: list[socket.socket] = []
        for n in range(10_000):
            line = socket.create_connection(("127.0.0.1", door.port), timeout=PATIENCE, source_address=("127.0.0.2", 0))
            lines.append(line)
            stack.callback(line.close)
            if len(lines) > kept:
                lines.pop(0).close()
            if n % 1000 == 999:
                begin = time.monotonic()
                assert door.status(door.silo.request()) == 200
                slowest = max(slowest, time.monotonic() - begin)
                most = max(most, door.megabytes())
        until(lambda: door.handles() < 128 + resting + 20, door.handles)  # what was hung up on is closed soon after
        for line in slow[:3]:  # one more byte does not help
            time.sleep(2)
            with suppress(OSError):
                line.sendall(b"s")
        assert {status_of(line) for line in slow} <= {0, 408}
    print(f"slowest answer {slowest:.2f} s, at most {most:.0f} MB")
    assert most < 200
    until(lambda: door.handles() <= resting + 2, door.handles)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (door.folder / "door.log").stat().st_size < 20_000
