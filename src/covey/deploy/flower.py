"""Flower as covey's post office: everything that touches `flwr` is in this file.

A SuperLink and SuperNodes (their own processes) carry sealed bytes between parties; TLS and node authentication are theirs.
Both are started with `--isolation process`, in which Flower leaves the running of app code to whoever asks for it. We ask, and
run *our own installed code*: the bundle that a run needs in Flower's books holds no code, and nothing that arrives over
the wire is ever imported or unpickled. So, unlike with stock Flower, the coordinator does not choose what a silo executes; and
there is no process per message: keys and data stay loaded.

The Runtime API that this takes is not a public one, hence the exact version in pyproject and `tests/test_flower.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

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
RETRY_SECONDS = 0.2


class FlowerEnded(CoveyError):
    """A process of Flower's ended by itself."""


@dataclass(frozen=True)
class Tls:
    """What a party needs to talk safely; None in its place means `--insecure`."""

    ca: Path
    certificate: Path | None = None  # the server's
    key: Path | None = None
    node_key: Path | None = None  # a node's, ECDSA P-384


def have_flower() -> None:
    """Refuses with the fix where flwr is missing."""
    try:
        import flwr.superlink.grid
        import flwr.supernode.runtime.run_clientapp  # noqa: F401
    except ImportError as e:
        raise CoveyError(f"deployment needs Flower: pip install 'covey[deploy]' ({e})") from e


def _environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def _quiet() -> None:
    """Flower's own lines go to its log files; ours tell the user what happens."""
    import logging

    os.environ.update({"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"})
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    logging.getLogger("httpx").setLevel(logging.WARNING)


@dataclass
class Process:
    """One of Flower's own processes, its log file, and the secret with which we ask it for work."""

    popen: subprocess.Popen[bytes]
    log: Path
    address: str  # of its Runtime API
    insecure: bool
    ca: bytes | None
    secret: bytes = field(repr=False)

    @classmethod
    def start(cls, command: list[str], home: Path, port: int, runtime_tls: Path | None) -> Process:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        secret, file = secrets.token_bytes(32), home / "runtime.secret"
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(secret)
        log = home / f"{command[0]}.log"
        command = [*command, "--isolation", "process", "--superexec-auth-secret-file", str(file)]
        with log.open("ab") as out:
            popen = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=_environment(home),
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        ca = runtime_tls.read_bytes() if runtime_tls else None
        return cls(popen, log, f"127.0.0.1:{port}", runtime_tls is None, ca, secret)

    def client(self, interceptors: Iterable[Any], patient: bool = True) -> Any:
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supercore.retry import make_simple_http_retry_invoker
        from flwr.supercore.runtime import RuntimeHttpClient

        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.insecure,
            root_certificates=self.ca,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="covey"), *interceptors],
            retry_invoker=make_simple_http_retry_invoker() if patient else None,
        )

    def tasks(self, kind: str) -> Iterator[str | None]:
        """Tokens of the tasks that Flower has for us; None while there is none."""
        import httpx
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

        guard = SuperExecAuthHttpInterceptor(
            master_secret=self.secret, protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"})
        )
        client = self.client([guard], patient=False)
        try:
            while True:
                self.alive()
                try:
                    answer = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
                except httpx.HTTPError:  # it is still starting, or busy
                    yield None
                    continue
                yield answer.token if answer.HasField("task") and answer.token else None
        finally:
            client.close()

    def alive(self) -> None:
        if self.popen.poll() is not None:
            raise FlowerEnded(f"Flower's process ended (exit {self.popen.returncode}): {last_words(self.log)}")

    def stop(self) -> None:
        if self.popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGTERM)
            try:
                self.popen.wait(timeout=8)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait(timeout=5)


class Link:
    """The coordinator's end: a SuperLink of its own, its nodes, and the messages to and from them."""

    def __init__(self, home: Path, host: str, port: int, tls: Tls | None, nodes: dict[str, bytes]) -> None:
        _quiet()
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

        (sent,) = self._grid.push_messages([Message(_record(data), node, "query", ttl=seconds)])
        return str(sent)

    def receive(self, ids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """The replies that have come for these messages: (id of the message, bytes, or None where a node failed)."""
        for message in self._grid.pull_messages(list(ids)):
            yield message.metadata.reply_to_message_id, _bytes(message)

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
        content = build_fab_from_disk(folder)
        bundle = Fab(hashlib.sha256(content).hexdigest(), content, {})
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


def answer_calls(
    home: Path,
    superlink: str,
    tls: Tls | None,
    handle: Callable[[bytes], bytes],
    ended: Callable[[], bool],
    say: Callable[[str], None] = print,
) -> None:
    """A node's life: a SuperNode of its own, whose messages `handle` answers, until `ended` says so.

    A SuperNode that ends is started again: the coordinator may be away, or may not have noticed yet that this node was
    (Flower refuses a second connection under one key until the first is forgotten, which takes up to a minute).
    """
    _quiet()
    told = False
    while not ended():
        try:
            _answer_calls(home, superlink, tls, handle, ended)
        except FlowerEnded as e:
            if not told:
                say(f"no connection to {superlink} yet, trying again: {e}")
            told = True
            time.sleep(5 * RETRY_SECONDS)


def _answer_calls(
    home: Path, superlink: str, tls: Tls | None, handle: Callable[[bytes], bytes], ended: Callable[[], bool]
) -> None:
    port = free_port()
    command = ["flower-supernode", "--superlink", superlink, "--host", "127.0.0.1", "--port", str(port)]
    if tls is None:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(tls.ca), "--auth-supernode-private-key", str(tls.node_key)]
    process = Process.start(command, home, port, None)
    try:
        for token in process.tasks("flwr-clientapp"):
            if token is not None:
                _answer(process, token, handle)
            elif ended():
                return
            else:
                time.sleep(RETRY_SECONDS)
    finally:
        process.stop()


def _answer(process: Process, token: str, handle: Callable[[bytes], bytes]) -> None:
    from flwr.app import Message
    from flwr.app.error import Error
    from flwr.common.constant import ErrorCode, SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    client = process.client([RuntimeTokenHttpInterceptor(token)])
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        message, context, _, _ = pull_task_input(client)
        data = _bytes(message)
        try:
            if data is None:
                raise CoveyError("a message without bytes")
            reply = Message(_record(handle(data)), reply_to=message)
        except CoveyError:  # said to the user by `handle`; the other side learns only that there is no answer
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "refused"), reply_to=message)
        push_message(client, reply, context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        heartbeat.stop()
        client.close()


def _record(data: bytes) -> Any:
    """Bytes as Flower carries them best: an array, which it cuts into chunks."""
    from flwr.app import Array, ArrayRecord, RecordDict

    return RecordDict({"covey": ArrayRecord({"bytes": Array(np.frombuffer(data, np.uint8))})})


def _bytes(message: Any) -> bytes | None:
    """What `_record` was given; None for an error or anything else."""
    if message.has_error():
        return None
    try:
        array = message.content["covey"]["bytes"]
        if array.stype != "numpy.ndarray" or array.dtype != "uint8" or len(array.shape) != 1:
            return None
        return bytes(array.numpy().tobytes())
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _first(tokens: Iterator[str | None], seconds: float) -> str | None:
    until = time.monotonic() + seconds
    for token in tokens:
        if token is not None or time.monotonic() > until:
            return token
        time.sleep(RETRY_SECONDS)
    return None


def _die_with_parent() -> None:
    """Linux sends this process SIGTERM when the one that started it is gone, however that ended: an orphaned SuperNode would
    keep its silo's place at the SuperLink, where the silo, started again, is then refused.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free_or_refuse(host: str, port: int) -> None:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as e:
        raise CoveyError(
            f"{host}:{port} cannot be used ({e.strerror}): stop what listens there or choose another --address"
        ) from e


def last_words(log: Path, lines: int = 2) -> str:
    """What Flower said last, errors first, without the colours of a terminal."""
    try:
        text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    except OSError:
        return f"see {log}"
    spoken = [" ".join(line.split()) for line in text.strip().splitlines()]
    errors = [line for line in spoken if line.startswith("ERROR") or "Error" in line]
    return " | ".join((errors or spoken)[-lines:]) + f" (all of it in {log})"
