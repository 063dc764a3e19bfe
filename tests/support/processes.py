"""The parties of a deployment as processes of their own, and a wire that counts."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covey import Experiment
from covey.deploy import keys
from covey.deploy.export import export
from covey.messages import decode
from support.deployment import NAMES

SUPPORT = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Processes:
    """A deployment's parties, each a process with a log of its own."""

    def __init__(self, folder: Path, experiment: Experiment, silos: int) -> None:
        self.folder, self.port = folder, free_port()
        self.names = NAMES[:silos]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        keys.make(experiment, self.names, ["localhost"], folder / "keys")
        export(experiment, folder / "data", NAMES[: experiment.clients])

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *command],
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        return self.running[name]

    def serve(self, *more: str) -> subprocess.Popen[bytes]:
        address = f"127.0.0.1:{self.port}"
        return self.start(
            "server", "-m", "covey", "serve", "--keys", self.at("keys/server"), "--address", address,
            "--out", self.at("run"), *more,
        )  # fmt: skip

    def join(self, name: str, port: int = 0, *more: str) -> subprocess.Popen[bytes]:
        return self.start(
            name, "-m", "covey", "join", self.at(f"keys/silos/{name}"), "--data", self.at(f"data/{name}"),
            "--superlink", f"localhost:{port or self.port}", "--state", self.at(f"state/{name}"), *more,
        )  # fmt: skip

    def rogue(self, mode: str, name: str) -> subprocess.Popen[bytes]:
        return self.start(
            name, str(SUPPORT / "rogue_silo.py"), mode, self.at(f"keys/silos/{name}"), self.at(f"data/{name}"),
            f"localhost:{self.port}", self.at(f"state/{name}"),
        )  # fmt: skip

    def at(self, path: str) -> str:
        return str(self.folder / path)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def wait(self, name: str, seconds: float = 240) -> None:
        code = self.running[name].wait(timeout=seconds)
        assert code == 0, f"{name} ended with {code}:\n{self.log(name)}"

    def until(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, {name: self.log(name)[-600:] for name in self.running}
            time.sleep(0.2)

    def records(self) -> list[dict[str, Any]]:
        path = self.folder / "run" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def events(self) -> list[dict[str, Any]]:
        path = self.folder / "run" / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def model(self, name: str) -> Any:
        return decode((self.folder / "state" / name / "model.bin").read_bytes())

    def close(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()
        for process in self.running.values():
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()


class Meter:
    """A wire between a silo and the coordinator that counts what passes; TLS goes through it unread."""

    def __init__(self, target: int) -> None:
        self.up = self.down = 0
        self.target = target
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self.server.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the coordinator has ended
                here.close()
                continue
            threading.Thread(target=self._pump, args=(here, there, "up"), daemon=True).start()
            threading.Thread(target=self._pump, args=(there, here, "down"), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while data := source.recv(1 << 16):
                setattr(self, way, getattr(self, way) + len(data))
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
