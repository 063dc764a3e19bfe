"""The stored audits: matrices of all algorithms, 30 rounds, three seeds, on the hearts of four hospitals, digits, MNIST and
Fashion-MNIST; frontiers on digits and MNIST.

    PYTHONPATH=src python benchmarks/audit_matrices.py run OUT --workers 16 --minutes 9   # again until it says "complete"
    PYTHONPATH=src python benchmarks/audit_matrices.py store OUT                          # then docs/results/audit-*

`run` makes the runs in a pool of processes under runs/matrices, stops in time, and goes on where it stopped; after every
combination OUT/NAME.json holds what is complete, and what stands there is not made again: carry it to another machine. Nine
processes on one H200 (`--device cuda`, with MPS) made 26 algorithms of Fashion-MNIST in 390 s, nine on as many cores 11 of MNIST.
Without encryption the lines of protocols that seal their sums say "undefended": their server is shown what it would not see in
the field; audit-digits.sealed has them sealed.

What a machine must have: torch, numpy, scipy, scikit-learn; rbcl for MingledPie, and with it barriers, which rbcl imports (its
wheel carries libsodium inside and writes it to the folder for temporary files, which must allow that libraries are loaded from
it); POT for PQFed; dp-accounting where a defence claims an ε; numba, seal-python, gmpy2 and cryptography for what is sealed;
jinja2, rich, typer and pillow. Where one is missing, the lines that need it say so in one sentence, and the others are made.
`--toy` tries all in small.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Mapping
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
from covey.results.provenance import versions

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
# Its default ε drowns the features of 70 samples, and it says so: a weaker promise, so that there is something to audit.
PQFED = ["algorithm.name=pqfed", "algorithm.epsilon=50"]
FEW = [
    "clients=10",
    "algorithm.name=pqfed",
    "algorithm.components=10",
]  # stronger noise is bearable with more samples each
OTHERS = [name for name in sorted(ALGORITHMS) if name != "pqfed"]
SMALL = ["model=softmax", "training.rounds=10", "training.epochs=2"]  # many settings: each must be cheap
QUICK = ['attacks=[{name="category", subsets=300, rows=100}, {name="lira", shadows=8}, {name="rmia", shadows=8}]']
# Name of a stored result, or NAME.PART where its lines are made in several goes; the cheapest first.
MATRICES: dict[str, Matrix | Sweep] = {
    "audit-heart": Matrix("heart", [], UNSEALED),
    "audit-digits": Matrix("ifca-digits", DIGITS, UNSEALED, OTHERS),
    "audit-digits.pqfed": Matrix("ifca-digits", [*DIGITS, *PQFED], UNSEALED, ["pqfed"]),
    "audit-digits.defended": Matrix("ifca-digits", DIGITS, ["dp_sgd", "ldp", "afc"], surveyed()),
    "audit-digits.sealed": Matrix(
        "ifca-digits", DIGITS, ["ckks", "bfv", "threshold", "secagg"], ["fedavg", "ifca", *SEALING]
    ),
    "frontier-ifca-digits": Sweep("ifca-digits", [*SMALL, *QUICK], ["ldp", "adp", "afc", "dp_sgd", "client_dp"]),
    "frontier-mingledpie-digits": Sweep("mingledpie-audit", ["encryption=none"], ["mingledpie"]),
    "frontier-pqfed-digits": Sweep("ifca-digits", [*FEW, *SMALL, *QUICK], ["pqfed=inf,100,30,20,10,7,5"]),
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
    path, audits = out / f"{name}.json", dict[Combination, Audit]()
    if path.is_file():
        stored = [Audit.of(audit) for audit in json.loads(path.read_text())["audits"]]
        audits = {(audit.algorithm, audit.protection): audit for audit in stored if not audit.problem}
    for protections, algorithms in _missing(one, audits).items():
        for audit in survey(experiment, RUNS / name, algorithms, protections, processes=True):
            audits[audit.algorithm, audit.protection] = audit
            order = [a for a in sorted(ALGORITHMS) if a in {algorithm for algorithm, _ in audits}]
            kept = sorted(audits.values(), key=lambda each: order.index(each.algorithm))
            command = replace(one, algorithms=order).command  # of what is there
            _write(path, {**heading, "command": command, "audits": [each.json() for each in kept]})
            problem = f" refused: {audit.problem}" if audit.problem else ""
            said = f"{name} {audit.algorithm} {audit.protection} after {time.monotonic() - began:.0f} s{problem}"
            print(said, flush=True)


Combination = tuple[str, str]  # algorithm, protection


def _missing(one: Matrix, audits: Mapping[Combination, Audit]) -> dict[tuple[str, ...], list[str]]:
    """Protections -> the algorithms that lack just these: what OUT has, be it from another machine, is not made again."""
    left: dict[tuple[str, ...], list[str]] = {}
    for algorithm in one.algorithms:
        protections = tuple(word for word in one.protections if (algorithm, word) not in audits)
        if protections:
            left.setdefault(protections, []).append(algorithm)
    return left


def _narrowed(one: Matrix | Sweep, algorithms: str, protections: str) -> Matrix | Sweep:
    if protections:
        one = replace(one, protections=protections.split(","))
    if not algorithms or not isinstance(one, Matrix):
        return one
    return replace(one, algorithms=[name for name in algorithms.split(",") if name in one.algorithms])


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(files.finite(content), separators=(",", ":")))


def keep(folder: Path) -> None:
    """Writes docs/results from what `run` left here; the parts of one matrix (NAME.json, NAME.PART.json) as one."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json"), key=lambda path: (path.name.split(".")[0], path.name.count("."))):
        parts.setdefault(path.name.split(".")[0], []).append(json.loads(path.read_text()))
    for name, contents in parts.items():
        command = "\n".join(content["command"] for content in contents)
        if "frontier" in contents[0]:
            store_frontier(Frontier.of(contents[0]["frontier"]), Path("docs"), name, command)
        else:
            audits = [Audit.of(audit) for content in contents for audit in content["audits"]]
            order = list(dict.fromkeys(audit.algorithm for audit in audits))
            ordered = sorted(audits, key=lambda audit: order.index(audit.algorithm))
            store(ordered, Path("docs"), name, command)
        print(f"docs/results/{name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "store"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--only", default="", help="some of them, by commas")
    parser.add_argument("--algorithms", default="", help="of matrices, these, in this order")
    parser.add_argument("--protections", default="", help="these only")
    parser.add_argument("--toy", action="store_true")
    chosen = parser.parse_args()
    if chosen.what == "store":
        keep(chosen.out)
        return
    asked = TOY if chosen.toy else MATRICES
    names = chosen.only.split(",") if chosen.only else list(asked)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for ends in (signal.SIGALRM, signal.SIGTERM):  # so that runs under way write their checkpoints, and end
        signal.signal(ends, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 60 * chosen.minutes)
    try:
        for name in names:
            one = _narrowed(asked[name], chosen.algorithms, chosen.protections)
            run(chosen.out, name, one, {"workers": chosen.workers, "device": chosen.device})
    except KeyboardInterrupt:
        print("stopped in time: the same command goes on", flush=True)
        return
    print("complete", flush=True)


if __name__ == "__main__":
    main()
