"""Speed against the project's goals: one table from the stored figures, and the CPU figures measured again.

    python benchmarks/goals.py                        the table, from benchmarks/results
    python benchmarks/goals.py --measure [--minutes 4]    first measures what two quiet cores can tell, in that time

`--measure` writes benchmarks/results; peers that are not installed are left out of the training figures (`make bench` installs
them), whose stored file then stays. `python benchmarks/charts.py` puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


@dataclass(frozen=True)
class Row:
    what: str
    figure: float
    goal: float
    least: bool = False  # the goal is a lower bound; else an upper one
    unit: str = "×"

    @property
    def met(self) -> bool:
        return self.figure >= self.goal if self.least else self.figure <= self.goal


def read(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def state(content: Any) -> Iterator[Row]:
    case = next(case for case in content["cases"] if case["epochs"] == 1)
    for name, title in (("scaffold", "SCAFFOLD"), ("feddyn", "FedDyn")):
        figure = case["algorithms"][name]["core_ratio"]
        yield Row(f"{title}'s round over FedAvg's, one local epoch, core-seconds", figure, 1.15)


def training(content: Any) -> Iterator[Row]:
    goals = {
        ("fcnn", "flower as it comes"): ("FCNN: Flower's simulation as it comes over covey", 8.0),
        ("fcnn", "flower"): ("FCNN: Flower, one actor per core, over covey", 5.0),
        ("fcnn", "pfl"): ("FCNN: Apple's pfl over covey", 1.7),
        ("cnn", "research loop"): ("CNN: the research loop over covey", 2.5),
    }
    for case in content["cases"]:
        for (model, peer), (title, goal) in goals.items():
            if case["epochs"] == 1 and case["model"] == model and peer in case["contenders"]:
                yield Row(f"{title}, one local epoch", case["contenders"][peer]["ratio"], goal, least=True)


def million(content: Any) -> Iterator[Row]:
    rows = {row["clients"]: row for row in content["rows"]}
    beside = {clients: row["peak_mb"] - row["data_mb"] for clients, row in rows.items()}
    gpu = content["arguments"].get("device", "cpu") == "cuda"
    where, goal = ("H200: ", 25.0) if gpu else ("", 60.0)
    yield Row(f"{where}memory of 10⁶ clients beside the data, over that of 10⁴", beside[10**6] / beside[10**4], 1.3)
    engine = max(row["engine_us"] for clients, row in rows.items() if clients >= 10**4)
    yield Row(f"{where}engine time of a client that takes part, of 10⁶", engine, goal, unit="µs")


def rounds(content: Any) -> Iterator[Row]:
    rows = {(row["algorithm"], row["clients"], row["evaluated"]): row for row in content["rows"]}
    for clients, goal in ((120, 10.0), (1000, 35.0)):
        figure = rows["fedavg", clients, False]["round_ms"]
        yield Row(f"H200: FedAvg round, FCNN, {clients:,} clients", figure, goal, unit="ms")
    for clients in (120, 1000):
        worst = max(
            row["round_ms"] / row["kernels_ms"]
            for (_, n, evaluated), row in rows.items()
            if n == clients and not evaluated
        )
        yield Row(f"H200: rounds over their kernels, slowest of five algorithms, {clients:,} clients", worst, 1.5)
    for clients in (120, 1000):
        row = rows["fedavg", clients, True]
        more = row["round_ms"] / row.get("plain_ms", rows["fedavg", clients, False]["round_ms"])  # rounds in turns
        yield Row(f"H200: evaluation after every round, {clients:,} clients", more, 1.3)


def start(content: Any) -> Iterator[Row]:
    fastest = min(run["whole_s"] for run in content["runs"])
    yield Row(f"H200: `covey run {content['preset']}` from start to report", fastest, 10.0, unit="s")


def kernels(content: Any) -> Iterator[Row]:
    words = {"ieee": "exact float32", "tf32": "TF32", "torch": "torch's arithmetic"}
    ratios = {(row["model"], row["precision"]): row["ratio"] for row in content["speed"]}
    goals = (
        ("fcnn", "FCNN", ("ieee",), 600.0),
        ("fcnn", "FCNN", ("tf32",), 900.0),
        ("cnn", "CNN", ("torch", "tf32"), 90.0),
        ("resnet18", "ResNet-18", ("torch", "tf32"), 6.0),
    )
    for model, title, modes, goal in goals:
        mode = next((mode for mode in modes if (model, mode) in ratios), None)
        if mode:
            what = f"H200: the research loop over covey, {title}, {words[mode]}"
            yield Row(what, ratios[model, mode], goal, least=True)


def own_models(content: Any) -> Iterator[Row]:
    for row in content["rows"]:
        if row["model"] == "vit":
            yield Row("H200: the research loop over covey, ViT, exact float32", row["ratio"], 20.0, least=True)


def mingledpie(content: Any) -> Iterator[Row]:
    yield Row("MingledPie's round under CKKS over the same without", content["mingledpie ckks"]["ratio"], 1.4)


def deployment(content: Any) -> Iterator[Row]:
    yield Row("deployed round of three silos beyond their work", content["overhead"]["median"], 2.0, unit="s")


SOURCES: dict[str, Callable[[Any], Iterator[Row]]] = {
    "training-fcnn": training,
    "training-cnn": training,
    "state": state,
    "mingledpie": mingledpie,
    "million": million,
    "deployment": deployment,
    "rounds-h200": rounds,
    "start-h200": start,
    "training-gpu-h200": kernels,
    "own-models-h200": own_models,
    "million-h200": million,
}


def table() -> str:
    """Markdown, from what is stored."""
    lines = ["| | measured | goal | | figures |", "| --- | --- | --- | --- | --- |"]
    for name, rows in SOURCES.items():
        for row in rows(content) if (content := read(name)) else ():
            bound = "at least" if row.least else "at most"
            verdict = "met" if row.met else "**missed**"
            source = f"[{name}.json](../benchmarks/results/{name}.json)"
            unit = f" {row.unit}"
            lines.append(
                f"| {row.what} | {_short(row.figure)}{unit} | {bound} {row.goal:g}{unit} | {verdict} | {source} |"
            )
    return "\n".join(lines)


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def measure(minutes: float) -> None:
    """The CPU figures, as many as the time allows, those first that take the least."""
    until = time.monotonic() + 60 * minutes
    peers = all(importlib.util.find_spec(name) for name in ("flwr", "pfl"))
    commands = {
        "state": ["bench_state.py", "--repeats", "5"],
        "training-fcnn": ["bench_training.py", "--models", "fcnn", "--epochs", "1", "--repeats", "4"] if peers else [],
        "mingledpie": ["bench_mingledpie.py", "--schemes", "ckks,bfv"],
        "training-cnn": ["bench_training.py", "--models", "cnn", "--epochs", "1", "--repeats", "2"] if peers else [],
        "million": ["bench_million.py"],
        "sealing": ["bench_sealing.py"] if importlib.util.find_spec("tenseal") else [],
    }
    for name, command in commands.items():
        left = until - time.monotonic()
        if not command or left < 15:
            print(f"== {name}: {'peers are not installed' if not command else 'no time left'}", flush=True)
            continue
        part = RESULTS / f".{name}.part"
        print(f"== {name}: {' '.join(command)}", flush=True)
        process = subprocess.Popen(
            [sys.executable, str(HERE / command[0]), *command[1:], "--json", str(part)], start_new_session=True
        )
        try:
            if process.wait(timeout=left) == 0 and part.is_file():
                store(part, RESULTS / f"{name}.json")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and the contenders that it has started
            process.wait()
            print("   stopped in time", flush=True)
        part.unlink(missing_ok=True)


def store(part: Path, path: Path) -> None:
    """Puts new figures in the place of the stored ones of the same cases; cases that were not measured again stay."""
    new = json.loads(part.read_text(encoding="utf-8"))
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    part.write_text(json.dumps(merged(new, old), indent=1), encoding="utf-8")
    part.replace(path)


def merged(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """New figures, and of the old ones those of other cases, each with what was known of the machine when it was measured."""
    if "cases" not in new:
        return old | new
    again = {_case(case) for case in new["cases"]}
    then = {name: value for name, value in old.items() if name != "cases"}
    kept = [then | case for case in old.get("cases", []) if _case(case) not in again]
    return new | {"cases": [*new["cases"], *kept]}


def _case(case: dict[str, Any]) -> tuple[Any, Any]:
    return case.get("model"), case["epochs"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--minutes", type=float, default=4.0)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.minutes)
    print(table())


if __name__ == "__main__":
    main()
