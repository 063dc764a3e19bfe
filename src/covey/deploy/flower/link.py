"""The coordinator's end of the line."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from covey.deploy.flower.payload import content, record
from covey.deploy.flower.process import RETRY_SECONDS, Process, Tls, free_or_refuse, last_words, quiet
from covey.errors import CoveyError

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


class Link:
    """The coordinator's end: a SuperLink of its own, its nodes, and the messages to and from them."""

    def __init__(self, home: Path, host: str, port: int, tls: Tls | None, nodes: dict[str, bytes]) -> None:
        quiet()
        free_or_refuse(host, port)
        command = ["flower-superlink", "--host", host, "--port", str(port), "--disable-runtime-dependency-installation"]
        if tls is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-ca-certfile", str(tls.ca), "--ssl-certfile", str(tls.certificate)]
            command += ["--ssl-keyfile", str(tls.key), "--enable-supernode-auth"]
        self.process = Process.start(command, home, port, tls.ca if tls else None)
        self.authenticated = tls is not None
        self.home = home
        self.nodes: dict[str, int] = {}  # name -> Flower's node id
        self._heartbeat: Any = None
        self._grid: Any = None
        try:
            self._control = self._connected()
            for name, public in nodes.items():
                self.admit(name, public)
            self._begin_run()
        except BaseException:
            self.process.stop()
            raise

    def admit(self, name: str, public: bytes) -> None:
        """Registers a node's public key: from now on Flower lets it in, under a number that only this key gets."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        if self.authenticated and name not in self.nodes:
            self.nodes[name] = self._control.RegisterNode(RegisterNodeRequest(public_key=public, name=name)).node_id

    def present(self) -> set[int]:
        """Node ids that Flower believes to be there; one that was killed stays for up to a minute."""
        return {int(n) for n in self._grid.get_node_ids()}

    def send(self, node: int, data: bytes, seconds: float) -> str:
        """Posts bytes to a node; the id by which its reply is found."""
        from flwr.app import Message

        (sent,) = self._grid.push_messages([Message(record(data), node, "query", ttl=seconds)])
        return str(sent)

    def receive(self, ids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """The replies that have come for these messages: (id of the message, bytes, or None where a node failed)."""
        for message in self._grid.pull_messages(list(ids)):
            yield message.metadata.reply_to_message_id, content(message)

    def close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._grid is not None:
            self._finish()
            self._grid.close()
        self._control.close()
        self.process.stop()

    def _connected(self) -> Any:
        import httpx
        from flwr.proto.control_pb2 import ListNodesRequest
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        client = ControlHttpClient.from_server_address(
            server_address=self.process.address,
            insecure=self.process.insecure,
            root_certificates=self.process.ca,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="covey")],
        )
        until = time.monotonic() + 60
        while True:
            self.process.alive()
            try:
                client.ListNodes(ListNodesRequest())
                return client
            except httpx.HTTPError as e:
                if time.monotonic() > until:
                    raise CoveyError(f"the SuperLink does not answer ({e}): {last_words(self.process.log)}") from e
                time.sleep(RETRY_SECONDS)

    def _begin_run(self) -> None:
        """A run in Flower's books, and us as the one who executes its server side."""
        from flwr.cli.build import build_fab_from_disk
        from flwr.common.serde import fab_to_proto, run_from_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.proto.runtime_pb2 import PullTaskInputRequest
        from flwr.supercore.fab import Fab
        from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
        from flwr.supercore.task_identity import TaskIdentity
        from flwr.superlink.grid import HttpGrid

        folder = self.home / "bundle"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(BUNDLE)
        (folder / "nothing.py").write_text('"""No code travels."""\n\napp = None\n')
        packed = build_fab_from_disk(folder)
        bundle = Fab(hashlib.sha256(packed).hexdigest(), packed, {})
        self._control.StartRun(StartRunRequest(fab=fab_to_proto(bundle)))
        token = _first(self.process.tasks("flwr-serverapp"), 60)
        if token is None:
            raise CoveyError(f"Flower gave its run to nobody: {last_words(self.process.log)}")
        self._grid = HttpGrid(
            runtime_api_address=self.process.address,
            insecure=self.process.insecure,
            root_certificates=self.process.ca,
            token=token,
        )
        task = self._grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        self._grid.set_run(run_from_proto(task.run))
        self._heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(self._grid._runtime_client))
        self._heartbeat.start()

    def _finish(self) -> None:
        import httpx
        from flwr.common.constant import SubStatus
        from flwr.proto.runtime_pb2 import PushTaskOutputRequest

        self._grid._retry_invoker.max_tries = 1
        with contextlib.suppress(httpx.HTTPError, Exception):
            self._grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details=""))


def _first(tokens: Iterator[str | None], seconds: float) -> str | None:
    until = time.monotonic() + seconds
    for token in tokens:
        if token is not None or time.monotonic() > until:
            return token
        time.sleep(RETRY_SECONDS)
    return None
