"""The stored audits: matrices of all algorithms, 30 rounds, three seeds, on MNIST, Fashion-MNIST and the hearts of four hospitals;
frontiers on MNIST; and the matrix of algorithms and defences on digits.

    PYTHONPATH=src python benchmarks/audit_matrices.py run OUT --workers 16 --minutes 9   # again until it says "complete"
    PYTHONPATH=src python benchmarks/audit_matrices.py store OUT                          # then docs/results/audit-*

`run` makes the runs in a pool of processes under runs/matrices, stops in time, and goes on where it stopped; after every
combination OUT/NAME.json holds what is complete. Small federations in many processes keep 16 cores busier than one GPU, so it
computes on the CPU unless `--device cuda` is given. Encryption is left out: sealed lines are those of audit-matrix-digits. So the
lines of protocols that seal their sums say "undefended": their server is shown here what it would not see in the field. A machine
without numba or SEAL, which only sealed sums are computed with, gets stand-ins that refuse what is done with their results.
`--sealed` makes the sealed lines, on a machine that has both; `store` takes both folders. `--toy` tries all in small.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from covey import files
from covey.algorithms import ALGORITHMS
from covey.audit.frontier import frontier, store_frontier
from covey.audit.frontier.frontier import Frontier
from covey.audit.matrix import Audit
from covey.audit.runs import store
from covey.audit.surveys import survey, surveyed
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
UNSEALED = ["none"]
SEALING = ["mingledpie", "routing", "fedcaprivacy"]


@dataclass(frozen=True)
class Matrix:
    preset: str
    sets: list[str]
    protections: list[str]
    algorithms: list[str] = field(default_factory=lambda: sorted(ALGORITHMS))
    seeds: int = 3

    @property
    def command(self) -> str:
        words = [self.preset, *(f"--set={s}" for s in self.sets), "--matrix"]
        words += [f"--algorithms={','.join(self.algorithms)}", f"--defences={','.join(self.protections)}"]
        return typed("covey audit", [*words, f"--seeds={self.seeds}"])


@dataclass(frozen=True)
class Sweep:
    preset: str
    sets: list[str]
    protections: list[str]
    seeds: int = 3

    @property
    def command(self) -> str:
        words = [self.preset, *(f"--set={s}" for s in self.sets), "--frontier", *self.protections]
        return typed("covey audit", [*words, f"--seeds={self.seeds}"])


DIGITS = ["training.rounds=30"]
SMALL = ["model=softmax", "training.rounds=10", "training.epochs=2"]  # many settings: each must be cheap
QUICK = ['attacks=[{name="category", subsets=300, rows=100}, {name="lira", shadows=8}, {name="rmia", shadows=8}]']
# Name of a stored result, or NAME.PART where its lines are made in several goes; the cheapest first.
MATRICES: dict[str, Matrix | Sweep] = {
    "audit-heart": Matrix("heart", [], UNSEALED),
    "audit-matrix-digits": Matrix("ifca-digits", DIGITS, UNSEALED),
    "audit-matrix-digits.defended": Matrix("ifca-digits", DIGITS, ["dp_sgd", "ldp", "afc"], surveyed()),
    "audit-matrix-digits.sealed": Matrix(
        "ifca-digits", DIGITS, ["ckks", "bfv", "threshold", "secagg"], ["fedavg", "ifca", *SEALING]
    ),
    "frontier-ifca-digits": Sweep("ifca-digits", [*SMALL, *QUICK], ["ldp", "adp", "afc", "dp_sgd", "client_dp"]),
    "frontier-mingledpie-digits": Sweep("mingledpie-audit", ["encryption=none"], ["mingledpie"]),
    "frontier-pqfed-digits": Sweep("ifca-digits", ["algorithm.name=pqfed", *SMALL, *QUICK], ["pqfed"]),
    "audit-mnist": Matrix("ifca-mnist", SETS, UNSEALED),
    "audit-fashion": Matrix("ifca-mnist", ["dataset=fashion_mnist", *SETS], UNSEALED),
    "frontier-ifca-mnist": Sweep("ifca-mnist", SETS, ["ldp", "adp", "afc", "dp_sgd", "randomised_response"]),
    "frontier-mingledpie-mnist": Sweep("ifca-mnist", ["algorithm.name=mingledpie", *SETS], ["mingledpie"]),
    "frontier-pqfed-mnist": Sweep("pqfed-mnist", ["partition.public=100", "evaluation.every=10"], ["pqfed"]),
}
TOY: dict[str, Matrix | Sweep] = {
    "audit-toy": Matrix("ifca-digits", ["training.rounds=2", "clients=10"], UNSEALED, ["ifca", "mingledpie"], 1),
    "audit-toy-heart": Matrix("heart", ["training.rounds=2"], UNSEALED, ["ifca", "mingledpie"], 1),
    "frontier-toy": Sweep("ifca-digits", ["training.rounds=2", "clients=10"], ["ldp=10,0.1"], 1),
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


def run(out: Path, name: str, one: Matrix | Sweep, engine: dict[str, Any]) -> None:
    table = table_of(one.preset, one.sets)
    whole = Experiment.of({**table, "engine": {**table.get("engine", {}), **engine}})
    experiment, began = replace(whole, seeds=one.seeds), time.monotonic()
    heading = {"schema": 1, "command": one.command, "versions": versions()}
    if isinstance(one, Sweep):
        result = frontier(experiment, RUNS / name, one.protections, processes=True)
        _write(out / f"{name}.json", {**heading, "frontier": result.json()})
        print(f"{name} after {time.monotonic() - began:.0f} s", flush=True)
        return
    audits: list[Audit] = []
    for audit in survey(experiment, RUNS / name, one.algorithms, one.protections, processes=True):
        audits.append(audit)
        _write(out / f"{name}.json", {**heading, "audits": [each.json() for each in audits]})
        problem = f" refused: {audit.problem}" if audit.problem else ""
        print(
            f"{name} {audit.algorithm} {audit.protection} after {time.monotonic() - began:.0f} s{problem}", flush=True
        )


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(files.finite(content), separators=(",", ":")))


def keep(folders: list[Path]) -> None:
    """Writes docs/results from what `run` left in these folders; lines of one matrix may lie in several of them."""
    paths = sorted({path.name for folder in folders for path in folder.glob("*.json")})
    for name in paths:
        contents = [json.loads((folder / name).read_text()) for folder in folders if (folder / name).is_file()]
        command, stem = "\n".join(content["command"] for content in contents), Path(name).stem
        if "frontier" in contents[0]:
            store_frontier(Frontier.of(contents[0]["frontier"]), Path("docs"), stem, command)
        else:
            audits = [Audit.of(audit) for content in contents for audit in content["audits"]]
            order = list(dict.fromkeys(audit.algorithm for audit in audits))
            store(sorted(audits, key=lambda audit: order.index(audit.algorithm)), Path("docs"), stem, command)
        print(f"docs/results/{stem}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "store"])
    parser.add_argument("out", type=Path, nargs="+", help="one folder to write to; several to store from")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", default="", help="some of them, by commas")
    parser.add_argument("--toy", action="store_true")
    chosen = parser.parse_args()
    if chosen.what == "store":
        keep(chosen.out)
        return
    asked = TOY if chosen.toy else MATRICES
    names = chosen.only.split(",") if chosen.only else list(asked)
    stand_in_for_missing()
    chosen.out[0].mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 60 * chosen.minutes)
    try:
        for name in names:
            run(chosen.out[0], name, asked[name], {"workers": chosen.workers, "device": chosen.device})
    except KeyboardInterrupt:
        print("stopped in time: the same command goes on", flush=True)
        return
    print("complete", flush=True)


if __name__ == "__main__":
    main()
