"""What a run was computed by: which code, on which device, in which arithmetic, when. Read from the run, never from who reads it.

A run's name (`folder.hash_of`) says what was asked for; two runs of one name can still differ by all of this. So each run keeps a
list of sittings, one for the process that began it and one for each that went on with it, and a table that is put together from
runs asks whether they differ in what can change a figure (`kinds`).
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from covey.learn.precision import IN_WORDS
from covey.version import __version__

SOURCES = Path(__file__).parents[1]
# Rooms that show figures, or run others, and compute none of a run's own: their code may differ between runs of a table.
SHOWN = frozenset(("audit", "cli", "deploy", "loggers.py", "notebook.py", "papers", "report", "sweep", "ui"))
MATTERS = ("code", "device", "arithmetic", "kernel", "torch")  # what a run's figures may change with
CHANGED = " with changes"  # after a commit that the sources are not those of
EXACT = "ieee float32"  # the arithmetic of a CPU, and of a GPU unless another is asked for
UNKNOWN = "not recorded"  # of runs from before this was kept
DATA = "data"  # of a sitting: `settle.data_line`; a table may be on several datasets, and not on two that have one name
MODEL = "model"  # of a run: a table may compare several, and each has the kernel that is fastest for it

Sitting = dict[str, Any]


def sitting(device: str, kernel: str, arithmetic: str, first_round: int, data: str = "") -> Sitting:
    """This process, as it begins to compute a run's rounds from `first_round` on, on these data (`settle.data_line`)."""
    gpu = device.startswith("cuda")
    known = {DATA: data} if data else {}
    return known | {
        "from_round": first_round,
        "begun": _now(),
        "commit": commit(),
        "code": code(),
        "device": torch.cuda.get_device_name() if gpu else f"cpu, {platform.machine()}",
        "arithmetic": arithmetic if gpu and arithmetic != "ieee" else EXACT,
        "kernel": kernel,
        "versions": versions(),
    }


def ended(sittings: Sequence[Sitting]) -> list[Sitting]:
    """With the time at which the last of them finished the run."""
    return [*sittings[:-1], sittings[-1] | {"ended": _now()}] if sittings else []


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@lru_cache(maxsize=1)
def commit() -> str:
    """Of the checkout that covey runs from, and whether its sources are other ones; empty where there is none, or no git."""
    with suppress(OSError, subprocess.SubprocessError):
        head, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", ".")
        return f"{head}{CHANGED}" if head and changes else head
    return ""


def _git(*words: str) -> str:
    asked = ["git", "-C", str(SOURCES), *words]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


@lru_cache(maxsize=1)
def code() -> str:
    """A fingerprint of covey's sources that compute figures: it tells edits apart that no commit does."""
    paths = [*SOURCES.rglob("*.py"), *SOURCES.rglob("*.cu")]
    return fingerprint({path.relative_to(SOURCES).as_posix(): path.read_bytes() for path in paths})


def fingerprint(sources: Mapping[str, bytes], shown: frozenset[str] = SHOWN) -> str:
    """Of the files that compute figures, by their places in the package; `shown`: rooms that do not."""
    digest = hashlib.blake2b(digest_size=8)
    for place in sorted(sources, key=lambda place: place.split("/")):
        if place.split("/")[0] not in shown:
            digest.update(f"{place}\0".encode() + sources[place])
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    installed = [("covey", __version__), ("python", platform.python_version())]
    for name in ("torch", "numpy", "scipy", "scikit-learn", "seal-python", "gmpy2", "dp-accounting"):
        with suppress(metadata.PackageNotFoundError):
            installed.append((name, metadata.version(name)))
    return tuple(installed)


def versions() -> dict[str, str]:
    """Of covey, Python and the packages that figures depend on."""
    return dict(_versions())


def kinds(runs: Iterable[Sequence[Sitting]]) -> dict[str, list[str]]:
    """Of each thing that matters, what these runs were computed by; several where they are mixed."""
    seen: dict[str, dict[str, None]] = {name: {} for name in (*MATTERS, DATA)}
    of_models: dict[str, None] = {}
    for sittings in runs:
        for one in sittings or [{}]:
            of_models[f"{one.get(MODEL, '')}: {one.get('kernel') or UNKNOWN}"] = None
            for name in MATTERS:
                value = one.get("versions", {}).get(name) if name == "torch" else one.get(name)
                seen[name][str(value or UNKNOWN)] = None
            if one.get(DATA):
                seen[DATA][one[DATA]] = None
    if len(seen["kernel"]) > 1 and not any(line.startswith(": ") for line in of_models):
        seen["kernel"] = of_models
    return {name: sorted(values) for name, values in seen.items()}


def differing(kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """What runs of one table were not computed alike in."""
    return [name for name in (*MATTERS, DATA) if len(kinds.get(name, ())) > 1 and not _of_several(name, kinds[name])]


def _of_several(name: str, lines: Sequence[str]) -> bool:
    """Each line is of another model, or of other data: `cnn: stacked`, `resnet18: streams`."""
    owners = {line.split(": ")[0] for line in lines if name in ("kernel", DATA) and ": " in line}
    return len(owners) == len(lines)


def mixed(kinds: Mapping[str, Sequence[str]]) -> str:
    """In words, what differs; empty: nothing that matters."""
    return "; ".join(f"{name}: {', '.join(kinds[name])}" for name in differing(kinds))


def summary(runs: Sequence[Sequence[Sitting]], seconds: float) -> dict[str, Any]:
    """Of the runs of a table: how many, by what, from when to when, how long in all."""
    every = [one for sittings in runs for one in sittings]
    times = sorted(t for one in every for t in (one.get("begun"), one.get("ended")) if t)
    return {
        "runs": len(runs),
        **kinds(runs),
        "commit": sorted({str(one.get("commit") or UNKNOWN) for one in every}) or [UNKNOWN],
        "from": times[0] if times else UNKNOWN,
        "to": times[-1] if times else UNKNOWN,
        "seconds": seconds,
    }


def in_words(summary: Mapping[str, Any]) -> str:
    """One line for a reader."""
    if not summary:
        return "Where the runs were made was not recorded."
    torch_version = ", ".join(summary["torch"])
    commits = ", ".join(c if c == UNKNOWN else c[:10] + CHANGED * c.endswith(CHANGED) for c in summary["commit"])
    arithmetic = ", ".join(IN_WORDS.get(name, name) for name in summary["arithmetic"])
    by = "; ".join([", ".join(summary["device"]), arithmetic, ", ".join(summary["kernel"])])
    hours = f"{summary['seconds'] / 3600:.1f} h" if summary["seconds"] > 3600 else f"{summary['seconds']:.0f} s"
    line = f"{summary['runs']} run{'s' * (summary['runs'] != 1)}, {hours} in all, from {summary['from']} to {summary['to']}: "
    samples = "".join(f"{data.rpartition(', ')[0]}; " for data in summary.get(DATA, ()))
    line += f"{samples}{by}; torch {torch_version}; commit {commits}."
    odd = mixed(summary)
    return line + (f" **Mixed** ({odd})." if odd else "")
