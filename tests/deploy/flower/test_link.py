"""The coordinator's end of the line, with a real SuperLink, nodes whose owner is this test, and silos that misbehave."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from covey.deploy.flower import process
from covey.deploy.flower.clock import Clock
from covey.deploy.flower.link import Link
from covey.deploy.flower.node import answer_calls
from covey.deploy.flower.process import Tls, free_port
from covey.deploy.membership import certificates
from covey.errors import CoveyError
from support.patience import until
from support.processes import SuperLinkCopy, begin_to_read

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'covey[deploy]'")


class Line:
    """A link, a node that answers with what it is asked, in capitals, and the key of another."""

    def __init__(self, folder: Path) -> None:
        authority = self.authority = certificates.make_authority()
        server = certificates.issue_server(authority, ["localhost"])
        nodes = {name: certificates.make_node() for name in ("north", "south")}
        paths = {"ca.crt": authority.public, "server.crt": server.public, "server.key": server.private}
        for name, text in {**paths, **{f"{name}.key": node.private for name, node in nodes.items()}}.items():
            (folder / name).write_bytes(text)
            (folder / name).chmod(0o600)
        self.folder, self.port, self.ended = folder, free_port(), False
        self.said: list[str] = []
        tls = Tls(folder / "ca.crt", folder / "server.crt", folder / "server.key")
        keys = {name: certificates.registered(node.public) for name, node in nodes.items()}
        self.link = Link(folder / "link", "127.0.0.1", self.port, tls, keys, self.said.append)

    def join(self) -> None:
        tls = Tls(self.folder / "ca.crt", node_key=self.folder / "north.key")
        words: tuple[Any, ...] = (self.folder / "node", f"localhost:{self.port}", tls, bytes.upper, lambda: self.ended)
        threading.Thread(target=answer_calls, args=(*words, lambda text: None), daemon=True).start()

    def until(self, condition: Callable[[], bool]) -> float:
        """How long it took, in seconds."""
        begin = time.monotonic()
        until(condition, lambda: self.said)
        return time.monotonic() - begin

    def asked(self, name: str = "north") -> bytes | None:
        """What the node answers to a question, which is put again as a coordinator does: one to a life that ends is lost."""
        answers: dict[str, bytes | None] = {}
        asked: dict[str, float] = {}

        def is_answered() -> bool:
            if not asked or time.monotonic() > max(asked.values()) + 5:
                asked[self.link.send(self.link.nodes[name], b"who is there", 60)] = time.monotonic()
            answers.update(self.link.receive(list(asked)))
            return bool(answers)

        self.until(is_answered)
        return next(iter(answers.values()))

    def here(self, name: str = "north") -> bool:
        return self.link.nodes.get(name) in self.link.present()


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """One for all: every test leaves it as it was. Its SuperLink is the program; those that take its place begin in copies."""
    line = Line(tmp_path_factory.mktemp("line"))
    line.join()
    with pytest.MonkeyPatch.context() as patched:
        begin_to_read()
        patched.setattr(process, "begin", SuperLinkCopy)
        yield line
        line.ended = True
        line.link.close()


def node(line: Line, home: str, **given: Any) -> tuple[threading.Thread, list[str], list[CoveyError]]:
    """Another node's life in a thread: what it says, and how it ends."""
    said: list[str] = []
    ends: list[CoveyError] = []
    folder = line.folder
    given = {"ca": folder / "ca.crt", "node_key": folder / "south.key", "clock": None, "port": line.port} | given
    tls = Tls(given["ca"], node_key=given["node_key"])

    def live() -> None:
        try:
            clock = given["clock"] and given["clock"](said.append)
            answer_calls(
                folder / home, f"localhost:{given['port']}", tls, bytes.upper, lambda: line.ended or "stop" in said,
                said.append, clock,
            )  # fmt: skip
        except CoveyError as e:
            ends.append(e)

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    return thread, said, ends


def test_what_waiting_does_not_mend_ends_a_node(line: Line) -> None:
    """Before it has ever been connected: another federation's server, no TLS there, no key of its own."""
    other, nowhere = line.folder / "other.crt", line.folder / "nowhere.key"
    other.write_bytes(certificates.make_authority().public)
    for given, words in {
        "foreign": ({"ca": other}, "another authority than this party's ca.crt"),
        "without": ({"node_key": nowhere}, "nowhere.key cannot be read \\(No such file"),
        "nonsense": ({"node_key": other}, "no private key in OpenSSH's form"),
        "no-ca": ({"ca": nowhere}, "nowhere.key cannot be read as a certificate"),
    }.items():
        thread, _, ends = node(line, given, **words[0])  # type: ignore[arg-type]
        thread.join(30)
        assert ends and re.search(words[1], str(ends[0])), (given, ends)


def test_a_clock_that_is_ten_minutes_off(line: Line) -> None:
    """A silo keeps the coordinator's time, and says by how much its own is another."""
    thread, said, ends = node(line, "late", clock=lambda say: Clock(say, lambda: time.time() - 600))
    line.until(lambda: line.here("south"))
    assert line.asked("south") == b"WHO IS THERE"
    assert any("clock is 10 minutes behind the coordinator's" in text for text in said) and not ends
    said.append("stop")
    line.link.send(line.link.nodes["south"], b"the last one", 60)
    thread.join(30)


def test_a_key_that_is_not_admitted_waits_and_says_so(line: Line) -> None:
    """It may be added while the server runs."""
    unknown = line.folder / "unknown.key"
    unknown.write_bytes(certificates.make_node().private)
    thread, said, ends = node(line, "unknown", node_key=unknown)
    line.until(lambda: any("does not know this party's node key" in text for text in said))
    said.append("stop")
    thread.join(30)
    assert not ends and len(said) == 2


def test_a_proxy_on_the_way_out_is_taken_from_the_environment(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes TLS through unread, as a hospital's does."""
    line.until(line.here)
    with socket.create_server(("127.0.0.1", 0)) as proxy, monkeypatch.context() as hospital:
        threading.Thread(target=_connect_for_others, args=(proxy,), daemon=True).start()
        hospital.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        hospital.setenv("NO_PROXY", "")
        thread, said, ends = node(line, "behind", port=line.port)
        line.until(lambda: line.here("south"))
        assert line.asked("south") == b"WHO IS THERE" and {f"localhost:{line.port}"} == PROXIED and not ends
        said.append("stop")
        line.link.send(line.link.nodes["south"], b"the last one", 60)
        thread.join(60)


PROXIED: set[str] = set()  # whom a proxy was asked for


def _connect_for_others(proxy: socket.socket) -> None:
    """CONNECT, and nothing else."""
    while True:
        try:
            here, _ = proxy.accept()
        except OSError:
            return
        head = b""
        while b"\r\n\r\n" not in head and (part := here.recv(4096)):
            head += part
        host, port = head.split()[1].decode().rsplit(":", 1)
        PROXIED.add(f"{host}:{port}")
        there = socket.create_connection((host, int(port)))
        here.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for source, sink in ((here, there), (there, here)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_a_certificate_is_renewed_while_all_run(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is connected stays so; who comes is shown the new one, and reminded that it ends soon."""
    line.until(line.here)
    monkeypatch.setattr(certificates, "SERVER_YEARS", 0.05)
    soon, before = certificates.issue_server(line.authority, ["localhost"]), len(line.said)

    def take(files: dict[str, bytes]) -> None:
        for name, text in files.items():
            (line.folder / name).write_bytes(text)
            line.here()  # between the two they do not belong together
        line.until(lambda: any("was renewed, and is shown from now on" in text for text in line.said[before:]))

    kept = {name: (line.folder / name).read_bytes() for name in ("server.key", "server.crt")}
    take({"server.key": soon.private, "server.crt": soon.public})
    thread, said, ends = node(line, "shown")
    line.until(lambda: any("the server's certificate ends on" in text for text in said))
    assert any("in 18 days: its owner makes another one with `covey keys renew`" in text for text in said) and not ends
    assert line.asked() == b"WHO IS THERE"
    line.until(lambda: line.here("south"))
    said.append("stop")
    line.link.send(line.link.nodes["south"], b"the last one", 60)
    thread.join(60)
    before = len(line.said)
    take(kept)


def test_a_key_that_is_revoked_ends_its_node_at_once(line: Line) -> None:
    """Also one that is waiting for letters; and its party comes back with another key under the same name."""
    kept, keys = dict(line.link._keys), {}
    for name in ("old", "new", "third", "fourth"):
        pair = certificates.make_node()
        keys[name] = certificates.registered(pair.public)
        (line.folder / f"{name}.key").write_bytes(pair.private)
    line.link.admit("west", keys["old"])
    thread, said, ends = node(line, "old", node_key=line.folder / "old.key")
    line.until(lambda: line.here("west"))
    assert line.asked("west") == b"WHO IS THERE"
    line.link.strike({keys["old"]: "revoked 2026-11-16T03:04:05Z"}, kept)
    thread.join(60)
    assert str(ends[0]).startswith("revoked by the coordinator on 2026-11-16T03:04:05Z: this party takes part no more")
    assert not line.here("west") and not said
    line.link.admit("west", keys["new"])
    thread, said, ends = node(line, "new", node_key=line.folder / "new.key")
    line.until(lambda: line.here("west"))
    line.link.strike({keys["old"]: "revoked 2026-11-16T03:04:05Z", keys["new"]: "replaced now"}, kept)
    thread.join(60)
    assert "keys were replaced on now: accept the invitation" in str(ends[0])
    line.link.admit("west", keys["third"])
    former = line.link.nodes["west"]
    line.link.strike(
        {}, {**kept, "west": keys["fourth"]}
    )  # replaced by an authority elsewhere, which leaves no record here
    line.link.admit("west", keys["fourth"])
    assert line.link._keys["west"] == keys["fourth"] and line.link.nodes["west"] != former
    line.link.strike({}, kept)


def test_a_node_that_was_struck_off_comes_back(line: Line) -> None:
    """Flower never takes such a key again; nobody has to do anything."""
    from flwr.proto.control_pb2 import UnregisterNodeRequest

    line.until(line.here)
    assert line.asked() == b"WHO IS THERE"
    superlink = line.link._superlink
    assert superlink is not None
    superlink._control.UnregisterNode(UnregisterNodeRequest(node_id=line.link.nodes["north"]))
    line.until(lambda: not line.here())
    print(f"back after {line.until(line.here):.1f} s")
    assert line.asked() == b"WHO IS THERE"
    assert any("struck off north" in text for text in line.said)


def test_the_superlink_and_the_door_are_killed(line: Line) -> None:
    line.until(line.here)
    superlink, door = line.link._superlink, line.link._door
    assert superlink is not None and door is not None
    lost = line.link.send(line.link.nodes["north"], b"a letter that is lost", 60)
    os.killpg(superlink.process.popen.pid, signal.SIGKILL)
    door.popen.kill()
    line.until(lambda: not line.here())
    print(f"back after {line.until(line.here):.1f} s")
    assert line.asked() == b"WHO IS THERE"
    assert list(line.link.receive([lost])) == []  # never answered, and no error either


def test_a_run_that_was_stopped(line: Line) -> None:
    """As after a pause of this machine, when Flower has given up on us."""
    from flwr.proto.control_pb2 import StopRunRequest

    line.until(line.here)
    superlink = line.link._superlink
    assert superlink is not None
    superlink._control.StopRun(StopRunRequest(run_id=superlink._grid.run.run_id))
    print(f"back after {line.until(lambda: line.here() and line.link._superlink is not superlink):.1f} s")
    assert line.asked() == b"WHO IS THERE"


def test_replies_that_nobody_can_read(line: Line) -> None:
    """A node with a good key that speaks Fleet itself: replies of nonsense and of nothing, and one that is announced and never
    sent. None of them ends anything or holds up an honest one."""
    from support.fleet import Node

    node = Node(line.port, line.folder / "ca.crt", line.folder / "south.key")
    link, number = line.link, line.link.nodes["south"]
    line.until(lambda: line.here("south"))
    ids = [link.send(number, f"question {n}".encode(), 60) for n in range(4)]
    questions = {question.metadata.message_id: question for question in [node.pull() for _ in ids]}
    node.reply(questions[ids[0]], b"31 bytes of nonsense, and more.")
    node.reply(questions[ids[1]], b"")
    node.reply(questions[ids[2]], b"announced", announce_only=True)
    node.answer(questions[ids[3]], b"an honest answer")
    answers: dict[str, bytes | None] = {}
    line.until(lambda: bool(answers.update(link.receive(ids)) or len(answers) == 3))
    assert answers == {ids[0]: None, ids[1]: None, ids[3]: b"an honest answer"}
    node.close()
