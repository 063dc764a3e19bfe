"""One life of Flower's SuperLink, on loopback: its process, the nodes in its books, our run in it, and the messages of that run.

What it holds is in memory and ends with it. Anything here may raise; `Link` decides what that means.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.deploy.flower.payload import content, record
from covey.deploy.flower.process import RETRY_SECONDS, Process, free_port, last_words
from covey.errors import CoveyError

START_SECONDS = 60.0
UPLOAD_SECONDS = 120.0  # without a further piece of a reply that was announced
GIVEN_UP = (3, 4, 5)  # Flower's own errors, in a node's name: message, reply or node unavailable
BUNDLE = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "covey-run"
version = "1.0.0"
description = "Holds no code: every party runs its own installed covey."
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "covey"

[tool.flwr.app.components]
serverapp = "nothing:app"
clientapp = "nothing:app"
"""


@dataclass
class Arrival:
    """A reply that was announced, and the pieces of it that are here."""

    message: str  # its own id
    missing: list[str]
    pieces: dict[str, bytes] = field(default_factory=dict)
    last: float = field(default_factory=time.monotonic)


class SuperLink:
    """See the module's docstring."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self.lost = threading.Event()  # Flower has forgotten our run
        self._arrivals: dict[str, Arrival] = {}  # id of the message that is answered -> the reply
        self.undelivered: deque[str] = deque(maxlen=10_000)  # given up by Flower: their node was not there, or too late
        self._heartbeat: Any = None
        self._grid: Any = None
        self._control: Any = None
        # Without TLS and without `--enable-supernode-auth`, which needs it: the door has done both. Flower checks every Fleet
        # call's signature and node number all the same; the two calls that this flag would forbid do not pass the door.
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--insecure"]
        self.process = Process.start([*command, "--disable-runtime-dependency-installation"], home, self.port)
        try:
            bundle = _bundle(
                home
            )  # meanwhile: it takes half a second of a processor, and a start keeps everybody waiting
            self._control = self._connected()
            self._begin_run(bundle)
        except BaseException:
            self.close()
            raise

    def register(self, name: str, public: bytes) -> int:
        """The node number that only this key gets."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        return int(self._control.RegisterNode(RegisterNodeRequest(public_key=public, name=name)).node_id)

    def registered(self) -> set[int]:
        from flwr.proto.control_pb2 import ListNodesRequest
        from flwr.supercore.constant import NodeStatus

        nodes = self._control.ListNodes(ListNodesRequest()).nodes_info
        return {int(n.node_id) for n in nodes if n.status != NodeStatus.UNREGISTERED}

    def online(self) -> set[int]:
        """Node ids that Flower believes to be there; one that was killed stays for up to a minute."""
        return {int(n) for n in self._grid.get_node_ids()}

    def push(self, node: int, data: bytes, seconds: float) -> str:
        from flwr.app import Message
        from flwr.supercore.task_identity import TaskIdentity

        # Flower reads the sender from a variable of the process, in which a node may have written since.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = self._identity
        (sent,) = self._grid.push_messages([Message(record(data), node, "query", ttl=seconds)])
        return str(sent)

    def replies(self, ids: list[str]) -> Iterator[tuple[str, bytes | None]]:
        """What has come in full for these messages: (id of the message, bytes, or None for what is no reply of ours).

        Not `HttpGrid.pull_messages`: it waits up to two hours for a reply that was announced and is not sent, and one reply
        that cannot be read takes along all that come with it.
        """
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

        waiting = [id for id in ids if id not in self._arrivals]
        if waiting:
            answer = self._runtime.PullMessages(PullAppMessagesRequest(message_ids=waiting))
            for reply, tree in zip(answer.messages_list, answer.message_object_trees):
                pieces, id = [part.object_id for part in iterate_object_tree(tree)], reply.metadata.reply_to_message_id
                if id in waiting and reply.error.code in GIVEN_UP:
                    self.undelivered.append(id)
                elif id in waiting:
                    self._arrivals[id] = Arrival(reply.metadata.message_id, pieces)
        for id in [id for id in ids if id in self._arrivals]:
            arrival = self._arrivals[id]
            if self._fetched(arrival):
                del self._arrivals[id]
                yield id, self._read(arrival)
            elif time.monotonic() - arrival.last > UPLOAD_SECONDS:
                del self._arrivals[id]
                yield id, None

    def _fetched(self, arrival: Arrival) -> bool:
        """Takes the pieces that have been uploaded; whether these are all."""
        from flwr.proto.message_pb2 import PullObjectRequest

        while arrival.missing:
            piece = arrival.missing[-1]
            request = PullObjectRequest(node=self._grid.node, run_id=self._grid.run.run_id, object_id=piece)
            answer = self._runtime.PullObject(request)
            if answer.object_found and not answer.object_available:
                return False
            arrival.pieces[piece] = answer.object_content  # empty where it was not found: reading it fails
            arrival.missing.pop()
            arrival.last = time.monotonic()
        return True

    def _read(self, arrival: Arrival) -> bytes | None:
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        self._runtime.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self._grid.node, run_id=self._grid.run.run_id, message_object_id=arrival.message
            )
        )
        try:
            return content(inflate_object_from_contents(arrival.message, arrival.pieces))
        except Exception:  # a silo writes these bytes, and Flower's reader raises whatever they make it raise
            return None

    def close(self) -> None:
        if self._heartbeat is not None and self._heartbeat.is_running:
            self._heartbeat.stop()
        if self._grid is not None:
            with contextlib.suppress(Exception):  # it may be gone already
                self._finish()
            self._grid.close()
        if self._control is not None:
            self._control.close()
        self.process.stop()

    def _connected(self) -> Any:
        import httpx
        from flwr.proto.control_pb2 import ListNodesRequest
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        client = ControlHttpClient.from_server_address(
            server_address=self.process.address,
            insecure=True,
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="covey")],
        )
        until = time.monotonic() + START_SECONDS
        while True:
            self.process.alive()
            try:
                client.ListNodes(ListNodesRequest())
                return client
            except httpx.HTTPError as e:
                if time.monotonic() > until:
                    raise CoveyError(f"the SuperLink does not answer ({e}): {last_words(self.process.log)}") from e
                time.sleep(RETRY_SECONDS)

    def _begin_run(self, bundle: Any) -> None:
        """A run in Flower's books, and us as the one who executes its server side."""
        from flwr.common.serde import fab_to_proto, run_from_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.proto.runtime_pb2 import PullTaskInputRequest
        from flwr.supercore.heartbeat import HeartbeatSender
        from flwr.superlink.grid import HttpGrid

        self._control.StartRun(StartRunRequest(fab=fab_to_proto(bundle)))
        token = _first(self.process.tasks("flwr-serverapp"), START_SECONDS)
        if token is None:
            raise CoveyError(f"Flower gave its run to nobody: {last_words(self.process.log)}")
        self._grid = HttpGrid(runtime_api_address=self.process.address, insecure=True, token=token)
        self._grid._retry_invoker = self.process.patience()
        self._runtime = self._grid._runtime_client
        task = self._runtime.PullTaskInput(PullTaskInputRequest())
        self._identity = (task.task_id, task.run.run_id, task.context.node_id)
        self._grid.set_run(run_from_proto(task.run))
        self._heartbeat = HeartbeatSender(self._beat)
        self._heartbeat.start()

    def _beat(self) -> bool:
        """Flower's own heartbeat would send this process SIGINT, or die with a traceback, once its run is forgotten."""
        import httpx
        from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

        try:
            if not self._runtime.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success:
                self.lost.set()
        except httpx.TransportError:
            return False
        except Exception:
            self.lost.set()
        return True

    def _finish(self) -> None:
        from flwr.common.constant import SubStatus
        from flwr.proto.runtime_pb2 import PushTaskOutputRequest

        self._grid._retry_invoker.max_tries = 1
        self._runtime.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details=""))


def _bundle(home: Path) -> Any:
    """What Flower wants to be given for a run, without any code in it; and all of Flower's own code that a run needs is read."""
    import flwr.superlink.grid  # noqa: F401
    from flwr.cli.build import build_fab_from_disk
    from flwr.supercore.fab import Fab

    folder = home / "bundle"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(BUNDLE)
    (folder / "nothing.py").write_text('"""No code travels."""\n\napp = None\n')
    packed = build_fab_from_disk(folder)
    return Fab(hashlib.sha256(packed).hexdigest(), packed, {})


def _first(tokens: Iterator[str | None], seconds: float) -> str | None:
    until = time.monotonic() + seconds
    for token in tokens:
        if token is not None or time.monotonic() > until:
            return token
        time.sleep(RETRY_SECONDS)
    return None
