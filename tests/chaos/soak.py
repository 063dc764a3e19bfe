"""A long run in which nothing happens: memory, handles and disk of every party, every few rounds. All must stay flat."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from chaos.federation import Federation, experiment

EVERY = 20  # rounds between two looks, or a tenth of a shorter run
SLACK = 1.1  # from the fourth look to the last


def soak(folder: Path, rounds: int, silos: int, say: Callable[[str], None] = print) -> bool:
    """Whether memory and handles stayed flat; what is on disk grows by a few lines a round, and is said."""
    federation = Federation(folder, experiment(rounds, silos))
    marks: list[dict[str, tuple[float, int]]] = []
    begin = time.monotonic()
    try:
        federation.begin()
        while (done := len(federation.parties.records())) < rounds:
            if done >= (len(marks) + 1) * max(1, min(EVERY, rounds // 10)):
                marks.append({name: usage(federation, name) for name in ("server", *federation.names)})
                disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
                parties = ", ".join(
                    f"{name} {mb:.0f} MB {handles} handles" for name, (mb, handles) in marks[-1].items()
                )
                say(f"round {done}, {time.monotonic() - begin:.0f} s: {parties}; {disk:.1f} MB on disk")
            federation.rounds(1)
        for name in ("server", *federation.names):
            federation.parties.wait(name)
    finally:
        federation.close()
    first, last = marks[min(3, len(marks) - 1)], marks[-1]
    return all(last[name][0] <= SLACK * mb and last[name][1] <= handles + 8 for name, (mb, handles) in first.items())


def usage(federation: Federation, name: str) -> tuple[float, int]:
    """Resident megabytes, and open files, of a party and all that it has started."""
    memory, handles = 0, 0
    for pid in federation.pids(name):
        memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        handles += len(os.listdir(f"/proc/{pid}/fd"))
    return memory / 1e6, handles
