"""Flower's own processes: how they are started, watched and stopped, and how we ask them for work."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covey.errors import CoveyError

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


def quiet() -> None:
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
