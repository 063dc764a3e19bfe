"""A long run in which nothing happens: memory, handles, processor time and disk of every party, every few rounds. Memory and
handles must stay flat.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.federation import Federation, experiment

EVERY = 20  # rounds between two looks, or a tenth of a shorter run
LOOK_SECONDS = 1.0  # whoever looks must cost less than those whom it looks at
PATIENCE_SECONDS = 400.0  # for a round
SLACK = 1.1  # from the fourth look and the two after it to the last three
FLOWER, DOOR = "flower-superlink", "door.py"


@dataclass(frozen=True)
class Usage:
    """Of one process."""

    megabytes: float
    handles: int
    seconds: float  # of a processor, since it began


def soak(folder: Path, rounds: int, silos: int, say: Callable[[str], None] = print) -> bool:
    """Whether memory and handles stayed flat; what is on disk grows by a few lines a round, and is said."""
    federation = Federation(folder, experiment(rounds, silos, model="softmax"))
    marks: list[dict[str, Usage]] = []
    begin = last = time.monotonic()
    done = 0
    try:
        federation.begin()
        while done < rounds:
            before, done = done, len(federation.parties.records())
            last = time.monotonic() if done > before else last
            if done < rounds and done >= (len(marks) + 1) * max(1, min(EVERY, rounds // 10)):
                marks.append(usages(federation))
                disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
                said = f"{_said(marks[-1])}; {disk:.1f} MB on disk, {in_all(federation):,.0f} MB of memory in all"
                say(f"round {done}, {time.monotonic() - begin:.0f} s: {said}")
            if time.monotonic() - last > PATIENCE_SECONDS or federation.parties.running["server"].poll():
                raise TimeoutError(f"no further round after {done}: {federation.last_words()}")
            time.sleep(LOOK_SECONDS)
        for name in ("server", *federation.names):
            federation.parties.wait(name)
    finally:
        federation.close()
    first, final = marks[3:6] or marks, marks[-3:]
    return all(
        _least(final, name).megabytes <= SLACK * _least(first, name).megabytes
        and _least(final, name).handles <= _least(first, name).handles + 8
        for name in marks[0]
    )


def _least(marks: list[dict[str, Usage]], name: str) -> Usage:
    """Of a few looks: calls that are under way hold a handle each, of which there are as many as silos at times; a leak shows in
    the least, too.
    """
    return Usage(
        min(mark[name].megabytes for mark in marks),
        min(mark[name].handles for mark in marks),
        min(mark[name].seconds for mark in marks),
    )


def usages(federation: Federation) -> dict[str, Usage]:
    """Of the coordinator, its SuperLink, its door, and each silo."""
    server = {"coordinator": federation.parties.running["server"].pid}
    server |= {"SuperLink": federation.found(FLOWER)[0], "door": federation.found(DOOR)[0]}
    silos = {name: federation.parties.running[name].pid for name in federation.names}
    return {name: usage(pid) for name, pid in {**server, **silos}.items()}


def in_all(federation: Federation) -> float:
    """Megabytes that the parties take together, what they share counted once."""
    total = 0
    for name in ("server", *federation.names):
        for pid in federation.pids(name):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def usage(pid: int) -> Usage:
    process = Path(f"/proc/{pid}")
    pages = int((process / "statm").read_text().split()[1])
    ticks = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return Usage(
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        len(os.listdir(process / "fd")),
        sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
    )


def _said(mark: dict[str, Usage]) -> str:
    """The server's processes one by one, the silos from the least to the most."""
    silos = [one for name, one in mark.items() if name not in ("coordinator", "SuperLink", "door")]
    parts = [
        f"{name} {one.megabytes:.0f} MB {one.handles} handles {one.seconds:.0f} s CPU"
        for name, one in mark.items()
        if one not in silos
    ]
    memory, handles = [one.megabytes for one in silos], [one.handles for one in silos]
    seconds = sum(one.seconds for one in silos)
    parts.append(f"silos {min(memory):.0f}–{max(memory):.0f} MB {max(handles)} handles {seconds:.0f} s CPU in all")
    return ", ".join(parts)
