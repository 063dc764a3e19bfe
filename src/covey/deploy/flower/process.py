"""Flower's own processes: how they are started, watched and stopped, and how we ask them for work."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from covey.engines.orphans import die_with_parent
from covey.errors import CoveyError

RETRY_SECONDS = 0.2
PATIENCE_SECONDS = 20.0


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
        import flwr.supernode.fleet_http_client  # noqa: F401
    except ModuleNotFoundError as e:
        raise CoveyError(f"deployment needs Flower: pip install 'covey[deploy]' ({e})") from e


def environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def begin(command: list[str], variables: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """One of Flower's programs, in a session of its own; it ends with this process."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=variables,
            start_new_session=True,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )


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
    address: str  # of its Runtime API, on loopback and without TLS
    secret: bytes = field(repr=False)

    @classmethod
    def start(cls, command: list[str], home: Path, port: int) -> Process:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        secret, file = secrets.token_bytes(32), home / "runtime.secret"
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(secret)
        log = home / f"{command[0]}.log"
        command = [*command, "--isolation", "process", "--superexec-auth-secret-file", str(file)]
        return cls(begin(command, environment(home), log), log, f"127.0.0.1:{port}", secret)

    def client(self, interceptors: Iterable[Any], patient: bool = True) -> Any:
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supercore.runtime import RuntimeHttpClient

        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=True,
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="covey"), *interceptors],
            retry_invoker=self.patience() if patient else None,
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

    def patience(self) -> Any:
        """How calls to it are tried again. Flower's own patience has no end where a connection is refused, and sends *us* SIGINT
        where a token is not known any more.
        """
        import httpx
        from flwr.supercore.retry import RetryInvoker, exponential

        return RetryInvoker(
            lambda: exponential(max_delay=2),
            httpx.TransportError,
            max_tries=None,
            max_time=PATIENCE_SECONDS,
            should_giveup=lambda error: self.popen.poll() is not None,
        )

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


@dataclass
class DoorProcess:
    """`door.py`, which listens to the network for the SuperLink."""

    popen: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        listener: socket.socket,
        tls: Tls | None,
        home: Path,
        hear: Callable[[dict[str, str]], None] = lambda words: None,
    ) -> DoorProcess:
        """`hear` is called, in a thread of its own, with everything that the door says."""
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        command = [sys.executable, "-I", str(Path(__file__).with_name("door.py")), "--listener", str(listener.fileno())]
        if tls is not None:
            command += ["--certificate", str(tls.certificate), "--key", str(tls.key)]
        with (home / "door.log").open("ab") as out:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        threading.Thread(target=_listen, args=(popen.stdout, hear), daemon=True).start()
        return cls(popen)

    def alive(self) -> bool:
        return self.popen.poll() is None

    def tell(self, superlink: int, nodes: dict[bytes, int] | None, struck: Mapping[bytes, str] | None = None) -> None:
        """Where the SuperLink is, and who may pass, with the number of each node (None: everybody); and who may no more."""
        admitted = None if nodes is None else {k.decode(): n for k, n in sorted(nodes.items())}
        past = {k.decode(): why for k, why in (struck or {}).items()}
        self._write({"superlink": superlink, "nodes": admitted, "struck": past})

    def renew(self) -> None:
        """The certificate's files are others now."""
        self._write({"renewed": True})

    def posted(self, key: bytes) -> None:
        """A letter for the node of this key; of any, where there are none."""
        self._write({"posted": key.decode()})

    def _write(self, words: dict[str, Any]) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has just ended; the next call starts another
            self.popen.stdin.write(json.dumps(words).encode() + b"\n")
            self.popen.stdin.flush()

    def stop(self) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        try:
            self.popen.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(timeout=3)


def _listen(pipe: IO[bytes], hear: Callable[[dict[str, str]], None]) -> None:
    with pipe:
        for line in pipe:
            hear(json.loads(line))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there, IPv4 before IPv6 where a name has both; refuses with what is wrong."""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = min(places, key=lambda one: one[0] != socket.AF_INET)
        both = host == "::" and socket.has_dualstack_ipv6()  # all addresses of this machine
        return socket.create_server(place, family=family, backlog=512, dualstack_ipv6=both)
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
