"""The parties of a deployment as processes of their own, and a wire that counts."""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch

from covey import Experiment
from covey.deploy import keys
from covey.deploy.export import export
from covey.deploy.flower import process
from covey.files import read_state
from support import rogue_silo
from support.deployment import MANY
from support.patience import PATIENCE, until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["support.parties_read"])


@functools.cache
def begin_to_read() -> None:
    """Starts the process that parties are copied from. What it is to read first is looked for on PYTHONPATH alone (Python 3.11),
    and passed over where it is not.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        patched.setenv("FLWR_TELEMETRY_ENABLED", "0")  # is read with Flower's code
        forkserver.ensure_running()


class Party:
    """One party's process. It begins in a copy of a process that has read covey's code already: a party that starts from
    nothing computes for two seconds before its first word, and a deployment has four of them.
    """

    def __init__(self, run: Callable[..., None], words: Sequence[str], log: Path) -> None:
        begin_to_read()
        self._process = FORKED.Process(target=_live, args=(run, tuple(words), log, dict(os.environ)))
        self._process.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit code; None where it goes on."""
        self._process.join(seconds)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _live(run: Callable[..., None], words: Sequence[str], log: Path, environment: dict[str, str]) -> None:
    """A party's life, from the state that a command finds: its own streams, environment and signals."""
    os.environ.update(environment | {"OMP_NUM_THREADS": "1"})
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    run(*words)


def command(*words: str) -> None:
    """`covey WORDS`."""
    from covey.cli.main import main

    sys.exit(main(words))


def serving(*words: str) -> None:
    """`covey WORDS`, whose SuperLink begins in a copy, too: the program reads for more than a second of a processor."""
    # The process that this one was copied from answers; Python does not look for it, and would start another.
    forkserver.ForkServer.ensure_running = lambda self: None  # type: ignore[method-assign]
    process.begin = SuperLinkCopy  # type: ignore[assignment]
    command(*words)


class SuperLinkCopy:
    """Flower's SuperLink in a copy of a process that has read its code. Of a `Popen`, what covey uses."""

    def __init__(self, words: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        self._process = FORKED.Process(target=_link, args=(tuple(words), log, dict(variables)), daemon=True)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("flower-superlink", timeout or 0.0)
        return code


def _link(words: Sequence[str], log: Path, variables: dict[str, str]) -> None:
    """A SuperLink's life, in a session of its own; it ends with the coordinator."""
    os.setsid()
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()

    def link() -> None:
        from flwr.superlink.cli import flower_superlink

        sys.argv = list(words)
        flower_superlink()

    _live(link, (), log, variables)


def _end_with(parent: Any) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


class Processes:
    """A deployment's parties, each a process with a log of its own.

    `program`: Flower's SuperLink is as users start it, a child of the coordinator that has a command line of its own.
    """

    def __init__(self, folder: Path, experiment: Experiment, silos: int, program: bool = True) -> None:
        self.folder, self.port, self.program = folder, free_port(), program
        self.names = MANY[:silos]
        self.running: dict[str, Party] = {}
        keys.make(experiment, self.names, ["localhost"], folder / "keys")
        export(experiment, folder / "data", MANY[: experiment.clients])

    def start(self, name: str, run: Callable[..., None], *words: str) -> Party:
        log = self.folder / f"{name}.log"
        log.touch()  # it may be read before the process has begun
        self.running[name] = Party(run, words, log)
        return self.running[name]

    def serve(self, *more: str) -> Party:
        address = f"127.0.0.1:{self.port}"
        return self.start(
            "server", command if self.program else serving, "serve", "--keys", self.at("keys/server"), "--address", address,
            "--out", self.at("run"), *more,
        )  # fmt: skip

    def join(self, name: str, port: int = 0, *more: str) -> Party:
        return self.start(
            name, command, "join", self.at(f"keys/silos/{name}"), "--data", self.at(f"data/{name}"),
            "--superlink", f"localhost:{port or self.port}", "--state", self.at(f"state/{name}"), *more,
        )  # fmt: skip

    def rogue(self, mode: str, name: str) -> Party:
        return self.start(
            name, rogue_silo.join, mode, self.at(f"keys/silos/{name}"), self.at(f"data/{name}"),
            f"localhost:{self.port}", self.at(f"state/{name}"),
        )  # fmt: skip

    def is_asleep(self, name: str) -> bool:
        """A rogue that waits to be told to go on."""
        return (self.folder / "state" / name / "asleep").exists()

    def wake(self, name: str) -> None:
        (self.folder / "state" / name / "go on").touch()

    def at(self, path: str) -> str:
        return str(self.folder / path)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def wait(self, name: str, seconds: float = PATIENCE) -> None:
        code = self.running[name].wait(seconds)
        assert code == 0, f"{name} ended with {code}:\n{self.log(name)}"

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, lambda: {name: self.log(name)[-600:] for name in self.running})

    def records(self) -> list[dict[str, Any]]:
        path = self.folder / "run" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def absences(self) -> tuple[tuple[int, int], ...]:
        """(round, silo) of those whose upload did not come. On a busy machine that is not only who was killed: a round with
        enough silos begins without one that starts late.
        """
        lines = [json.loads(text) for text in (self.folder / "run" / "transcript.jsonl").read_text().splitlines()]
        came = {(said["round"], said["from"]) for said in lines}
        rounds = range(1, len(self.records()) + 1)
        return tuple((r, i) for r in rounds for i in range(len(self.names)) if (r, f"client:{i}") not in came)

    def events(self) -> list[dict[str, Any]]:
        path = self.folder / "run" / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def model(self, name: str) -> Any:
        return read_state(self.folder / "state" / name / "model.bin")

    def close(self) -> None:
        for party in self.running.values():
            if party.poll() is None:
                party.send_signal(signal.SIGTERM)
        for party in self.running.values():
            if party.wait(30) is None:
                party.send_signal(signal.SIGKILL)
                party.wait()


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
