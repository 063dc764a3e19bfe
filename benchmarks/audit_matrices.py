"""The stored audit matrices: all algorithms, 30 rounds, three seeds, on MNIST, Fashion-MNIST and the hearts of four hospitals.

    PYTHONPATH=src python benchmarks/audit_matrices.py run OUT --workers 16 --minutes 9   # again until it says "complete"
    PYTHONPATH=src python benchmarks/audit_matrices.py store OUT                          # then docs/results/audit-*

`run` makes the runs in a pool of processes under runs/matrices, stops in time, and goes on where it stopped; after every
combination OUT/NAME.json holds what is complete. Small federations in many processes keep 16 cores busier than one GPU, so it
computes on the CPU unless `--device cuda` is given. Encryption is left out: sealed lines are those of audit-matrix-digits. So the
lines of protocols that seal their sums say "undefended": their server is shown here what it would not see in the field. A machine
without numba or SEAL, which only sealed sums are computed with, gets stand-ins that refuse what is done with their results.
`--toy` tries it in small: two algorithms, two rounds, one seed, digits and hearts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from covey.algorithms import ALGORITHMS
from covey.audit.matrix import Audit
from covey.audit.runs import store
from covey.audit.surveys import survey
from covey.cli.options import typed
from covey.experiment.experiment import Experiment
from covey.experiment.presets import table_of
from covey.rounds.result import versions

RUNS = Path("runs/matrices")
SETS = [
    "clients=20",
    "partition.samples=100",
    "partition.public=100",
    "training.rounds=30",
    "training.epochs=2",
    "training.batch_size=20",
    "training.lr=0.05",
    "evaluation.every=10",
]
MATRICES: dict[str, tuple[str, list[str]]] = {  # name -> (preset, what is set)
    "audit-mnist": ("ifca-mnist", SETS),
    "audit-heart": ("heart", []),
    "audit-fashion": ("ifca-mnist", ["dataset=fashion_mnist", *SETS]),
}
TOY: dict[str, tuple[str, list[str]]] = {
    "audit-toy": ("ifca-digits", ["training.rounds=2", "clients=10"]),
    "audit-toy-heart": ("heart", ["training.rounds=2"]),
}


REFUSING = '''"""Stands in for a package that is not installed: whoever calls what it should offer is refused."""


class _Refused:
    def __init__(self, *arguments, **options):
        pass

    def __call__(self, *arguments, **options):  # as decorators do, when a module is read; who uses a result is refused
        return _Refused()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Refused()

    def __iter__(self):
        raise ImportError("a package is missing here: sealed sums cannot be computed")

    __len__ = __getitem__ = __add__ = __radd__ = __mul__ = __index__ = __float__ = __bool__ = __array__ = __iter__


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Refused()
'''
STAND_INS = {"numba": ("__init__", "extending"), "seal": ("__init__",)}


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def stand_in_for_missing() -> None:
    """For this process and those that it starts."""
    missing = [name for name in STAND_INS if not _installed(name)]
    folder = (RUNS / "stand-ins").resolve()
    for name in missing:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for module in STAND_INS[name]:
            (folder / name / f"{module}.py").write_text(REFUSING)
    if missing:
        sys.path.append(str(folder))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))
        importlib.invalidate_caches()
        print(f"not installed: {', '.join(missing)}; sealed runs are refused", flush=True)


def command(preset: str, sets: list[str], algorithms: list[str], seeds: int) -> str:
    words = [preset, *(f"--set={s}" for s in sets), "--matrix", f"--algorithms={','.join(algorithms)}"]
    return typed("covey audit", [*words, "--defences=none", f"--seeds={seeds}"])


def run(
    out: Path, matrices: dict[str, tuple[str, list[str]]], algorithms: list[str], seeds: int, engine: dict[str, Any]
) -> None:
    for name, (preset, sets) in matrices.items():
        table = table_of(preset, sets)
        experiment = replace(Experiment.of({**table, "engine": {**table.get("engine", {}), **engine}}), seeds=seeds)
        audits: list[Audit] = []
        began = time.monotonic()
        for audit in survey(experiment, RUNS / name, algorithms, ["none"], processes=True):
            audits.append(audit)
            content = {
                "schema": 1,
                "command": command(preset, sets, algorithms, seeds),
                "versions": versions(),
                "audits": [one.json() for one in audits],
            }
            (out / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")))
            problem = f" refused: {audit.problem}" if audit.problem else ""
            print(f"{name} {audit.algorithm} after {time.monotonic() - began:.0f} s{problem}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "store"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", default="", help="one or more matrices, by commas")
    parser.add_argument("--toy", action="store_true")
    chosen = parser.parse_args()
    matrices = TOY if chosen.toy else MATRICES
    if chosen.only:
        matrices = {name: matrices[name] for name in chosen.only.split(",")}
    if chosen.what == "store":
        for path in sorted(chosen.out.glob("audit-*.json")):
            content = json.loads(path.read_text())
            store([Audit.of(one) for one in content["audits"]], Path("docs"), path.stem, content["command"])
            print(f"docs/results/{path.stem}")
        return
    stand_in_for_missing()
    chosen.out.mkdir(parents=True, exist_ok=True)
    names = sorted(ALGORITHMS)
    algorithms = ["ifca", "mingledpie"] if chosen.toy else names
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 60 * chosen.minutes)
    try:
        run(
            chosen.out,
            matrices,
            algorithms,
            1 if chosen.toy else 3,
            {"workers": chosen.workers, "device": chosen.device},
        )
    except KeyboardInterrupt:
        print("stopped in time: the same command goes on", flush=True)
        return
    print("complete", flush=True)


if __name__ == "__main__":
    main()
