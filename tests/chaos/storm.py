"""Troubles at random, by a seed, one or two at a time; then the run goes on to its end, and its models must be the undisturbed."""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from chaos.federation import PATIENCE_SECONDS, Federation, experiment, signalled
from covey import Experiment
from covey.files import read_state
from support.deployment import Deployment

LONGEST_SECONDS = 45.0  # that a trouble lasts
CALM_SECONDS = 8.0  # at most, between troubles
LAST_ROUNDS = 8  # which are left in peace: who has ended cannot be disturbed
Mend = Callable[[], object]


@dataclass
class Report:
    """What a storm has come to."""

    rounds: int
    seconds: float = 0.0
    back: list[float] = field(default_factory=list)  # seconds from the end of each trouble to the second further round
    equal: bool = False

    def __str__(self) -> str:
        late = sum(s > 30 for s in self.back)
        times = f"median {statistics.median(self.back):.1f} s, at most {max(self.back):.1f} s" if self.back else "none"
        models = "the same, bit for bit" if self.equal else "OTHERS"
        return (
            f"{self.rounds} rounds in {self.seconds:.0f} s, {len(self.back)} troubles; back after: {times}, "
            f"{late} later than 30 s; models of all silos against an undisturbed run: {models}"
        )


def killed(federation: Federation, choice: random.Random) -> tuple[str, Mend]:
    name = choice.choice(["server", *federation.names])
    federation.kill(name)
    begin = federation.parties.serve if name == "server" else partial(federation.join, name)
    return f"{name} killed", begin


def moved(federation: Federation, choice: random.Random) -> tuple[str, Mend]:
    federation.kill("server")
    federation.move()
    return "server killed, and begun again elsewhere", federation.parties.serve


def flower_killed(federation: Federation, choice: random.Random) -> tuple[str, Mend]:
    name = choice.choice(["flower-superlink", "door.py"])
    signalled(federation.found(name), signal.SIGKILL)
    return f"{name} killed", lambda: None


def stopped(federation: Federation, choice: random.Random) -> tuple[str, Mend]:
    name = choice.choice(["server", "server", *federation.names])
    pids = federation.pids(name)
    if name == "server" and choice.random() < 0.5:
        pids = choice.sample(pids, 1)
    signalled(pids, signal.SIGSTOP)
    return f"{len(pids)} of {name}'s processes stand still", lambda: signalled(pids, signal.SIGCONT)


def cut(federation: Federation, choice: random.Random) -> tuple[str, Mend]:
    names = choice.sample(federation.names, choice.randint(1, len(federation.names)))
    wires = [federation.wires[name] for name in names]
    for wire in wires:
        wire.cut()
    return f"{', '.join(names)} cut off", lambda: [wire.mend() for wire in wires]


def swallowed(federation: Federation, choice: random.Random) -> tuple[str, Mend]:
    name, forget = choice.choice(federation.names), choice.random() < 0.5
    federation.wires[name].swallow()
    return (
        f"{name}'s bytes are lost{', its connections forgotten' if forget else ''}",
        lambda: federation.wires[name].mend(forget=forget),
    )


def slowed(federation: Federation, choice: random.Random) -> tuple[str, Mend]:
    name = choice.choice(federation.names)
    federation.wires[name].delay = choice.uniform(0.05, 0.5)

    def mend() -> None:
        federation.wires[name].delay = 0.0

    return f"{name} slow", mend


def undisturbed(folder: Path, what: Experiment) -> dict[str, torch.Tensor]:
    """The silos' models where nothing happens: the same parties, in one process."""
    folder.mkdir()
    deployment = Deployment(folder, what)
    deployment.coordinator().run()
    return {name: read_state(folder / "state" / name / "model.bin").models for name in deployment.names}


TROUBLES = (killed, moved, flower_killed, stopped, cut, swallowed, slowed)


def storm(
    folder: Path,
    minutes: float,
    seed: int,
    rounds: int,
    longest: float = LONGEST_SECONDS,
    say: Callable[[str], None] = print,
) -> Report:
    """Raises where the parties do not find each other again at all."""
    choice, what = random.Random(seed), experiment(rounds)
    report, federation = Report(rounds), Federation(folder, what)
    begin = time.monotonic()
    try:
        federation.begin()
        while time.monotonic() - begin < 60 * minutes and len(federation.parties.records()) < rounds - LAST_ROUNDS:
            time.sleep(choice.uniform(0, CALM_SECONDS))
            if len(federation.parties.records()) >= rounds - LAST_ROUNDS:
                break
            chosen = [choice.choice(TROUBLES)]
            if choice.random() < 0.3:  # two at a time, of which not both end a process that the other one handles
                chosen.append(choice.choice([trouble for trouble in (cut, swallowed, slowed) if trouble not in chosen]))
            troubles = [trouble(federation, choice) for trouble in chosen]
            seconds = choice.uniform(0.2, longest)
            time.sleep(seconds)
            for _, mend in troubles:
                mend()
            back = federation.rounds(min(2, rounds - len(federation.parties.records())))
            report.back.append(back)
            names = " and ".join(name for name, _ in troubles)
            say(f"{time.strftime('%T')} {names}, for {seconds:.0f} s: back after {back:.1f} s")
        for name in ("server", *federation.names):
            federation.parties.wait(name, PATIENCE_SECONDS + 5.0 * rounds)
        report.seconds = time.monotonic() - begin
        alone = [r["round"] for r in federation.parties.records() if r["participants"] < len(federation.names)]
        if alone:
            say(f"rounds {alone} went on without a silo: {federation.parties.events()}")
        models = undisturbed(folder / "undisturbed", what)
        report.equal = all(torch.equal(federation.parties.model(name).models, model) for name, model in models.items())
    finally:
        federation.close()
    return report
