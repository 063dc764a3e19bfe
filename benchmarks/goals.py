"""Speed against the project's goals: one table from the stored figures, and the CPU figures measured again.

    python benchmarks/goals.py                        the table, from benchmarks/results
    python benchmarks/goals.py --measure [--minutes 9] [--parts state,million]    first measures what two quiet cores can tell

`--measure` writes benchmarks/results, and when, how and beside what load to results/measured.json; peers that are not installed are
left out of the training figures (`make bench` installs them), whose stored file then stays. `python benchmarks/charts.py` puts the
table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
BUSY = 0.2  # cores that others use, from which on a figure is marked


@dataclass(frozen=True)
class Row:
    what: str
    figure: float
    goal: float | None  # None: a peer beside whom no issue sets one
    least: bool = False  # the goal is a lower bound; else an upper one
    unit: str = "×"
    at: str = ""  # when it was measured, where a file has figures of several times

    @property
    def bound(self) -> str:
        if self.goal is None:
            return "none set"
        return f"{'at least' if self.least else 'at most'} {self.goal:g} {self.unit}"

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "met" if (self.figure >= self.goal if self.least else self.figure <= self.goal) else "**missed**"


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
        ("fcnn", "research loop"): ("FCNN: the research loop over covey", 3.0),
        ("fcnn", "flower as it comes"): ("FCNN: Flower's simulation as it comes over covey", 8.0),
        ("fcnn", "flower"): ("FCNN: Flower, one actor per core, over covey", 5.0),
        ("fcnn", "pfl"): ("FCNN: Apple's pfl over covey", 1.7),
        ("fcnn", "fedjax"): ("FCNN: FedJAX over covey", None),
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
    if not gpu:
        checkpoint = rows[10**6]["checkpoint_kb"] / rows[10**4]["checkpoint_kb"]
        yield Row("checkpoint of 10⁶ clients, 10⁴ of whom took part, over that of 10⁴", checkpoint, 1.3)
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
    rows = {(row["model"], row["precision"]): row for row in content["speed"]}
    goals = (
        ("fcnn", "FCNN", ("ieee",), 600.0),
        ("fcnn", "FCNN", ("tf32",), 900.0),
        ("cnn", "CNN", ("torch", "tf32"), 90.0),
        ("resnet18", "ResNet-18", ("torch", "tf32"), 6.0),
    )
    for model, title, modes, goal in goals:
        mode = next((mode for mode in modes if (model, mode) in rows), None)
        if mode:
            what = f"H200: the research loop over covey, {title}, {words[mode]}"
            yield Row(what, rows[model, mode]["ratio"], goal, least=True, at=rows[model, mode].get("at", ""))


def own_models(content: Any) -> Iterator[Row]:
    for row in content["rows"]:
        if row["model"] == "vit":
            yield Row("H200: the research loop over covey, ViT, exact float32", row["ratio"], 20.0, least=True)


def mingledpie(content: Any) -> Iterator[Row]:
    yield Row("MingledPie's round under CKKS over the same without", content["mingledpie ckks"]["ratio"], 1.4)


def scale(content: Any) -> Iterator[Row]:
    yield Row("memory of a round of 10⁴ clients beside the data, over that of 10³", content["ratio"], 1.3)


def ray(content: Any) -> Iterator[Row]:
    assert content["equal_to_the_bit"]
    yield Row("a round on Ray workers over forked ones, replies equal to the bit", content["ratio"]["median"], None)


def sealing(content: Any) -> Iterator[Row]:
    better = content["times_better_than_tenseal"].values()
    for key, title, goal in (
        ("aggregate_s", "aggregation", 20.0),
        ("seal_s", "sealing", 4.0),
        ("bytes", "ciphertexts", 4.0),
    ):
        yield Row(
            f"TenSEAL over covey, {title}, the worse of CKKS and BFV", min(b[key] for b in better), goal, least=True
        )


def paillier(content: Any) -> Iterator[Row]:
    case = next(case for case in content if case["bits"] == 2048 and not case["key"]["fast_decryption"])
    for key, goal in (("encrypt", 300.0), ("decrypt", 30.0)):
        yield Row(f"phe over covey, Paillier {key}ion of a model, 2048 bit", case["ratio"][key], goal, least=True)


def fedcaprivacy(content: Any) -> Iterator[Row]:
    """Where a round under Paillier is too long, BFV is at hand: docs/algorithms/fedcaprivacy.md has what it assumes."""
    cpu = {case["case"]: case["round_cpu_s"] for case in content}
    yield Row("FedCAPrivacy's round under Paillier over BFV, all CPU", cpu["paillier, none"] / cpu["bfv, none"], None)


def dp(content: Any) -> Iterator[Row]:
    ratios = content["ratio_to_plain"]
    yield Row("clipped gradients over plain SGD", ratios["clipped"][0], 2.0)
    if "opacus" in ratios:
        steps = content["milliseconds_a_step"]
        yield Row("Opacus' hooks over covey's clipped gradients", steps["opacus"] / steps["clipped"], None)


def deployment(content: Any) -> Iterator[Row]:
    yield Row("deployed round of three silos beyond their work", content["overhead"]["median"], 2.0, unit="s")


RIVALS = "'research loop,flower,flower as it comes,pfl'"
# By stored file: its rows, and the command that makes it.
SOURCES: dict[str, tuple[Callable[[Any], Iterator[Row]], str]] = {
    "training-fcnn": (training, f"bench_training.py --models fcnn --epochs 1 --repeats 4 --rivals {RIVALS}"),
    "training-fedjax": (training, "bench_training.py --models fcnn --epochs 1 --repeats 4 --rivals fedjax"),
    "training-cnn": (training, f"bench_training.py --models cnn --epochs 1 --repeats 5 --rivals {RIVALS}"),
    "state": (state, "bench_state.py --epochs 1 --repeats 25"),
    "mingledpie": (mingledpie, "bench_mingledpie.py --schemes ckks --quick"),
    "million": (million, "bench_million.py"),
    "scale": (scale, "bench_scale.py"),
    "ray": (ray, "bench_ray.py --repeats 9"),
    "sealing": (sealing, "bench_sealing.py"),
    "paillier": (paillier, "bench_paillier.py"),
    "fedcaprivacy": (fedcaprivacy, "bench_fedcaprivacy.py --cases paillier,none paillier,sketch bfv,none bfv,sketch"),
    "dp": (dp, "bench_dp.py"),
    "deployment": (deployment, "bench_deployment.py"),
    "rounds-h200": (rounds, "gpu.sh"),
    "start-h200": (start, "gpu.sh"),
    "training-gpu-h200": (kernels, "gpu.sh"),
    "own-models-h200": (own_models, "bench_own_models.py"),
    "million-h200": (million, "gpu.sh"),
}
# What `--measure` measures, in this order: what no time is left for keeps its stored figures.
QUICK = ("state", "training-fcnn", "mingledpie", "million", "sealing", "training-fedjax", "training-cnn")
ON_MNIST = ("training-fcnn", "training-fedjax", "training-cnn", "deployment")  # on noise the peers' ratios are others
PEERS = {
    "training-fcnn": ("flwr", "pfl"),
    "training-cnn": ("flwr", "pfl"),
    "training-fedjax": ("fedjax",),
    "sealing": ("tenseal",),
}


def table() -> str:
    """Markdown, from what is stored."""
    lines = ["| | measured | goal | | when | figures, command |", "| --- | --- | --- | --- | --- | --- |"]
    known = read("measured") or {}
    for name, (rows, command) in SOURCES.items():
        when, source = _when(known.get(name)), f"[{name}.json](../benchmarks/results/{name}.json)"
        for row in rows(content) if (content := read(name)) else ():
            figure = f"{_short(row.figure)} {row.unit}"
            lines.append(
                f"| {row.what} | {figure} | {row.bound} | {row.verdict} | {row.at or when} | {source}, `{command}` |"
            )
    return "\n".join(lines)


def _when(known: dict[str, Any] | None) -> str:
    if known is None:
        return "unknown"
    return known["at"] + {True: ", **busy**", False: "", None: ", load unknown"}[known["busy"]]


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def measure(minutes: float, parts: Sequence[str] = QUICK) -> None:
    """These CPU figures, as many as the time allows."""
    until = time.monotonic() + 60 * minutes
    before = used_by_others()
    for name in parts:
        script, *options = shlex.split(SOURCES[name][1])
        left = until - time.monotonic()
        missing = [peer for peer in PEERS.get(name, ()) if importlib.util.find_spec(peer) is None]
        no_data = name in ON_MNIST and not os.environ.get("COVEY_DATA")
        if missing or no_data or left < 15:
            why = f"{', '.join(missing)} not installed (`make bench` installs peers)" if missing else "no time left"
            why = "on MNIST alone, and COVEY_DATA is not set" if no_data else why
            print(f"== {name}: {why}; what is stored stays", flush=True)
            continue
        part = RESULTS / f".{name}.part"
        print(f"== {name}: {SOURCES[name][1]}", flush=True)
        command = [sys.executable, str(HERE / script), *options, "--json", str(part)]
        begin = time.monotonic()
        process = subprocess.Popen(command, start_new_session=True)
        try:
            if process.wait(timeout=left) == 0 and part.is_file():
                after = used_by_others()
                store(part, RESULTS / f"{name}.json")
                note(name, max(before, after))
                before = after
                print(f"   {time.monotonic() - begin:.0f} s", flush=True)
            else:
                print(f"   failed (exit {process.returncode}); what is stored stays", flush=True)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and the contenders that it has started
            process.wait()
            print("   stopped in time; what is stored stays", flush=True)
        part.unlink(missing_ok=True)


def used_by_others(seconds: float = 1.5) -> float:
    """Cores that are in use while nothing of ours runs; what a benchmark has started may need a moment to end."""
    time.sleep(seconds)

    def busy() -> int:
        user, nice, system, _idle, _waiting, *rest = map(
            int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        )
        return user + nice + system + sum(rest)

    first, begin = busy(), time.monotonic()
    time.sleep(seconds)
    return (busy() - first) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)


def note(name: str, beside: float, when: float | None = None) -> None:
    """When these figures were measured (None: now), and how many cores others used before or after."""
    known = read("measured") or {}
    known[name] = {
        "at": minute(when),
        "busy": beside >= BUSY,
        "cores used by others": round(beside, 2),
        "processor": processor(),
    }
    (RESULTS / "measured.json").write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def processor() -> str:
    told = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").is_file() else []
    return next((line.partition(":")[2].strip() for line in told if line.startswith("model name")), "unknown")


def minute(when: float | None = None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(when))


def store(part: Path, path: Path) -> None:
    """Puts new figures in the place of the stored ones of the same cases; cases that were not measured again stay."""
    new = json.loads(part.read_text(encoding="utf-8"))
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    part.write_text(json.dumps(merged(new, old), indent=1), encoding="utf-8")
    part.replace(path)


def merged(new: Any, old: Any) -> Any:
    """New figures, and of the old ones those of other cases, each with what was known of the machine when it was measured."""
    if not isinstance(new, dict):  # a list of all that was measured
        return new
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
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--parts", default=",".join(QUICK), help="what to measure, by the name of its file in results")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.minutes, arguments.parts.split(","))
    print(table())


if __name__ == "__main__":
    main()
