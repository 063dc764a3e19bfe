"""The parties of a federation, a wire for each silo, and how long they take to find each other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from chaos.wire import Wire
from covey import Experiment
from support.deployment import rehearsal
from support.processes import Processes, free_port

PATIENCE_SECONDS = 400.0


def experiment(rounds: int, silos: int = 3, **more: Any) -> Experiment:
    """With memory at the silos, so that a restart that forgets shows; and every round waits for all."""
    deployment = {"rehearsal": True, "missing": "wait", "min_silos": silos, "round_seconds": 3600.0}
    return rehearsal("scaffold", clients=silos, training={"rounds": rounds, "epochs": 1}, deployment=deployment, **more)


class Federation:
    """A server and silos, each of which reaches it over a wire of its own."""

    def __init__(self, folder: Path, what: Experiment) -> None:
        torch.set_num_threads(
            1
        )  # as the parties have it, also for the start models: sums over more have other last bits
        self.experiment, self.parties = what, Processes(folder, what, what.clients)
        self.names = list(self.parties.names)
        self.wires = {name: Wire(self.parties.port) for name in self.names}

    def begin(self) -> None:
        self.parties.serve()
        for name in self.names:
            self.join(name)
        self.rounds(3)

    def join(self, name: str) -> None:
        self.parties.join(name, self.wires[name].port)

    def rounds(self, more: int = 2, patience: float = PATIENCE_SECONDS) -> float:
        """Seconds until so many further rounds are done; every one of them needs all silos. The first may have been nearly
        done already, so the second says that all have found each other."""
        begin, done = time.monotonic(), len(self.parties.records())
        while len(self.parties.records()) < done + more:
            if time.monotonic() - begin > patience:
                raise TimeoutError(f"no further round in {patience:.0f} s: {self.last_words()}")
            if self.parties.running["server"].poll() is not None:
                raise RuntimeError(f"the server ended: {self.last_words()}")
            time.sleep(0.1)
        return time.monotonic() - begin

    def last_words(self) -> dict[str, str]:
        return {name: self.parties.log(name)[-500:] for name in ("server", *self.names)}

    def kill(self, name: str) -> None:
        self.parties.running[name].send_signal(signal.SIGKILL)
        self.parties.running[name].wait()

    def pids(self, name: str) -> list[int]:
        """Of a party and of all that it has started."""
        return [self.parties.running[name].pid, *children(self.parties.running[name].pid)]

    def found(self, command: str) -> list[int]:
        """The server's processes of this program: one, or none while it is being started again."""
        return [pid for pid in self.pids("server")[1:] if command in Path(f"/proc/{pid}/cmdline").read_text()]

    def move(self) -> None:
        """The server's new address; its name, which the wires stand for, leads there."""
        self.parties.port = free_port()
        for wire in self.wires.values():
            wire.target = self.parties.port

    def close(self) -> None:
        for name in self.parties.running:
            signalled(self.pids(name), signal.SIGCONT)
        for wire in self.wires.values():
            wire.close()
        self.parties.close()


def signalled(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def children(pid: int) -> list[int]:
    spoken = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    direct = [int(child) for child in spoken.split()]
    return [*direct, *(below for child in direct for below in children(child))]
