"""Where MingledPie's rebuild fails: by how much it magnifies what members differ by, and what that costs.

    python benchmarks/map_rebuild.py gain                  the gain over k, p, T and clients: seconds
    python benchmarks/map_rebuild.py accuracy --seeds 3    Location-30 beside IFCA, plain and steady: some 90 s of a core a seed
    python benchmarks/map_rebuild.py work --processes 8   the same over local epochs, and with a rate that falls
    python benchmarks/map_rebuild.py turns --seeds 10      turns beside every rebuild, with attackers: 25 s of a core a run; resumes
    python benchmarks/map_rebuild.py hidden                secret weights that change each round: gain, and what stays of it: 20 s
    python benchmarks/map_rebuild.py starts --seeds 5      clients that find their true cluster, by what the models began with

`accuracy` needs COVEY_DATA (docs/your_own_data.md). No figure here is a paper's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from covey import Experiment, run
from covey.algorithms import rebuild
from covey.crypto.identity_math import false_counts, pairing
from covey.statistics import student

GRID = {
    "clients": [(40, 5, 0.5, 2), (60, 5, 0.5, 2), (120, 5, 0.5, 2), (240, 5, 0.5, 2), (1000, 5, 0.5, 2)],
    "k": [(120, 2, 0.5, 1), (120, 3, 0.5, 2), (120, 5, 0.5, 2), (120, 8, 0.5, 2), (120, 10, 0.5, 2)],
    "p": [(120, 5, 0.125, 2), (120, 5, 0.25, 2), (120, 5, 0.5, 2), (120, 5, 0.75, 2)],
    "T": [(120, 5, 0.5, 1), (120, 5, 0.5, 2), (120, 5, 0.5, 3), (120, 5, 0.5, 4)],
    "held out": [(83, 6, 0.4, 3)],
}
HELD_OUT: dict[str, Any] = {
    "dataset": "location30",
    "model": "mlp",
    "clients": 83,
    "clusters": 6,
    "partition": "label_sets",
    "encryption": "none",
    "training": {"rounds": 40, "lr": 0.1, "batch_size": 10},
    "evaluation": {"every": 4},
    "engine": {"workers": 1},
    "attacks": ["a1"],
}
MINGLED = {"name": "mingledpie", "rate": 0.4, "threshold": 3}
METHODS: dict[str, Any] = {
    "IFCA": "ifca",
    "counts": MINGLED,
    "steady": MINGLED | {"rebuild": "steady"},
    "counts, sets redrawn": MINGLED | {"remember": "never"},
}
TURNS: dict[str, Any] = {
    "IFCA": "ifca",
    "turns, `steady`": MINGLED | {"turns": True, "rebuild": "steady"},
    "turns, `counts`": MINGLED | {"turns": True},
    "`steady`": MINGLED | {"rebuild": "steady"},
    "`counts` (the paper's)": MINGLED,
    "turns, `steady`, T = 6: every cluster": MINGLED | {"turns": True, "rebuild": "steady", "threshold": 6},
}
HIDDEN: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "1, the paper's": lambda rng, n: np.ones(n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "1 or 0, one in two": lambda rng, n: (rng.random(n) < 0.5).astype(float),
    "1 or 0, one in five": lambda rng, n: (rng.random(n) < 0.2).astype(float),
    "1 or −1": lambda rng, n: rng.choice([-1.0, 1.0], n),
}
WATCHING = ("a1", "a1_intersection", "isolation")
WORK: dict[str, dict[str, Any]] = {
    "1 epoch": {"epochs": 1},
    "2 epochs": {"epochs": 2},
    "5 epochs": {"epochs": 5},
    "10 epochs": {"epochs": 10},
    "5 epochs, rate falls by 5 % a round": {"epochs": 5, "lr_decay": 0.95},
}
DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": "ifca",
    "clients": 60,
    "clusters": 5,
    "partition": {"name": "label_sets", "public": 20},
    "training": {"rounds": 10, "epochs": 5, "batch_size": 10, "lr": 0.1},
    "engine": {"workers": 1},
}
STARTS = {
    "public samples of the true cluster": {"common": True, "pretrain_epochs": 1},
    "different random starts": {"common": False, "pretrain_epochs": 0},
    "one common start": {"common": True, "pretrain_epochs": 0},
}


def gain(draws: int) -> None:
    print("| changed | clients, k, p, T | gain, median | tenth highest of a hundred |\n| --- | --- | --- | --- |")
    for name, settings in GRID.items():
        for clients, k, rate, threshold in settings:
            gains = sorted(_gains(clients, k, rate, threshold, draws))
            high = gains[int(0.9 * len(gains))]
            print(f"| {name} | {clients}, {k}, {rate:g}, {threshold} | {np.median(gains):.1f} | {high:.1f} |")


def _gains(clients: int, k: int, rate: float, threshold: int, draws: int) -> Iterator[float]:
    for seed in range(draws):
        shows, members = _sets(clients, k, rate, threshold, np.random.default_rng(seed))
        yield rebuild.noise_gain(shows @ members, pairing(k, rate, threshold))


def _sets(clients: int, k: int, rate: float, threshold: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """(A [k, n] who shows what, [n, k] who is of which cluster), clusters of equal size."""
    members = np.eye(k)[np.arange(clients) % k]
    sizes = rng.choice(k, clients, p=false_counts(k, rate, threshold))
    shows = members.T.copy()
    for i, false in enumerate(sizes):
        shows[rng.choice(np.delete(np.arange(k), i % k), false, replace=False), i] = 1
    return shows, members


def hidden(draws: int, rounds: int = 1000) -> None:
    """W = H⁻¹ A diag(r) over rounds of fresh secret weights r: how far one is from the plain mean, and how far their mean is.

    Rounds count by the inverse of their variance, as a client that sees H would weight them.
    """
    print("| secret weights | gain of a round, median | gain of all rounds together |\n| --- | --- | --- |")
    clients, k, rate, threshold = GRID["held out"][0]
    for law, weights in HIDDEN.items():
        once, lasting = [], []
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            shows, members = _sets(clients, k, rate, threshold, rng)
            plain = (members / members.sum(0)).T
            scaled = (shows * weights(rng, clients) for _ in range(rounds))
            solved = np.stack([np.linalg.pinv(a @ members) @ a for a in scaled if np.linalg.cond(a @ members) < 1e3])
            off = ((solved - plain) ** 2).sum(2) * members.sum(0)  # [rounds, k]
            mean = (solved / off[:, :, None]).sum(0) / (1 / off).sum(0)[:, None]
            once.append(np.sqrt(np.median(off)))
            lasting.append(np.sqrt((((mean - plain) ** 2).sum(1) * members.sum(0)).mean()))
        print(f"| {law} | {np.mean(once):.1f} | {np.mean(lasting):.1f} |", flush=True)


def accuracy(seeds: int) -> None:
    print("| method | seed | accuracy at rounds 4, 8, … | gain | A1 |\n| --- | --- | --- | --- | --- |")
    ends: dict[str, list[float]] = {}
    for method, algorithm in METHODS.items():
        for seed in range(3, 3 + seeds):
            result = run(Experiment.of(HELD_OUT, algorithm=algorithm, seed=seed), quiet=True)
            curve = [r["accuracy"]["client_mean"] for r in result.records if r["accuracy"]]
            gains = [r["extra"]["noise_gain"] for r in result.records if "noise_gain" in r["extra"]]
            ends.setdefault(method, []).append(curve[-1])
            shown = " ".join(f"{v:.3f}".lstrip("0") for v in curve)
            told = f"{np.median(gains):.1f}" if gains else "–"
            print(f"| {method} | {seed} | {shown} | {told} | {result.attacks['a1']['value']:.3f} |", flush=True)
    for method, values in ends.items():
        gap = student([100 * (v - i) for v, i in zip(values, ends["IFCA"], strict=True)])
        print(f"{method} − IFCA at the end: {gap.value:+.2f} ± {gap.half:.2f} points, {gap.n} seeds", flush=True)


def work(seeds: int, processes: int, minutes: float, lines: Path) -> None:
    """A line per run in `lines`, whose finished ones are not repeated; the first seeds first. Then the table of what is there."""
    known = _read(lines)
    methods = [m for m in METHODS if m != "counts, sets redrawn"]
    jobs = [(name, m, s) for s in range(3, 3 + seeds) for name in WORK for m in methods if (name, m, s) not in known]
    deadline = time.monotonic() + 60 * minutes
    with multiprocessing.get_context("spawn").Pool(processes) as pool, lines.open("a", encoding="utf-8") as out:
        ends = [pool.apply_async(_ended, (*job,)) for job in jobs]
        for job, end in zip(jobs, ends, strict=True):
            end.wait(max(0.0, deadline - time.monotonic()))
            if end.ready():
                print(json.dumps([*job, *end.get()]), file=out, flush=True)
    _print_work(_read(lines))


def turns(seeds: int, minutes: float, lines: Path) -> None:
    """A line per run in `lines`, whose finished ones are not repeated; then the table of what is there."""
    deadline = time.monotonic() + 60 * minutes
    for method, algorithm in TURNS.items():
        for seed in range(seeds):
            if time.monotonic() < deadline and (method, seed) not in _read_turns(lines):
                result = run(Experiment.of(HELD_OUT, algorithm=algorithm, seed=seed, attacks=WATCHING), quiet=True)
                curve = [r["accuracy"]["client_mean"] for r in result.records if r["accuracy"]]
                gains = [r["extra"][g] for r in result.records for g in ("noise_gain", "turn_gain") if g in r["extra"]]
                attacked = {name: result.attacks[name]["value"] for name in WATCHING}
                row = [method, seed, curve, float(np.median(gains)) if gains else None, attacked]
                with lines.open("a", encoding="utf-8") as out:
                    print(json.dumps(row), file=out, flush=True)
                print(method, seed, f"{curve[-1]:.4f}", flush=True)
    known = _read_turns(lines)
    print(
        "| clients, rebuild | points from IFCA at round 20 | at round 40 | gain | A1 | intersection | isolation | seeds |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for method in TURNS:
        both = sorted(s for m, s in known if m == method and ("IFCA", s) in known)
        if both:
            print(_turns_row(method, [known[method, s] for s in both], [known["IFCA", s] for s in both]))


def _turns_row(method: str, rows: list[Any], ifca: list[Any]) -> str:
    gaps = [student([100 * (a[0][at] - b[0][at]) for a, b in zip(rows, ifca, strict=True)]) for at in (4, -1)]
    level = [f"{100 * np.mean([r[0][at] for r in rows]):.1f} %" for at in (4, -1)]
    shown = level if method == "IFCA" else [f"{gap.value:+.2f} ± {gap.half:.2f}" for gap in gaps]
    gain = "–" if rows[0][1] is None else f"{np.median([r[1] for r in rows]):.1f}"
    leaks = [f"{100 * np.mean([r[2][name] for r in rows]):.0f} %" for name in WATCHING]
    return f"| {method} | {' | '.join([*shown, gain, *leaks])} | {len(rows)} |"


def _read_turns(lines: Path) -> dict[tuple[str, int], Any]:
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()] if lines.is_file() else []
    return {(method, seed): values for method, seed, *values in rows}


def _ended(name: str, method: str, seed: int) -> tuple[float, float]:
    """Accuracy after the last round, and the median gain (0: none) of one run."""
    training = HELD_OUT["training"] | WORK[name]
    once = HELD_OUT | {"training": training, "attacks": [], "evaluation": {"every": 40}}
    result = run(Experiment.of(once, algorithm=METHODS[method], seed=seed), quiet=True)
    gains = [r["extra"]["noise_gain"] for r in result.records if "noise_gain" in r["extra"]]
    return float(result.accuracy["client_mean"]), float(np.median(gains)) if gains else 0.0


def _read(lines: Path) -> dict[tuple[str, str, int], tuple[float, float]]:
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()] if lines.is_file() else []
    return {(name, method, seed): (end, gain) for name, method, seed, end, gain in rows}


def _print_work(known: dict[tuple[str, str, int], tuple[float, float]]) -> None:
    print(
        "| local work | IFCA | `counts`, points from IFCA | `steady`, points from IFCA | seeds |\n| --- | --- | --- | --- | --- |"
    )
    for name in WORK:
        seeds = sorted(s for n, m, s in known if n == name and m == "IFCA")
        seeds = [s for s in seeds if all((name, m, s) in known for m in ("counts", "steady"))]
        ends = {m: [100 * known[name, m, s][0] for s in seeds] for m in ("IFCA", "counts", "steady")}
        if not seeds:
            continue
        gaps = [student([a - b for a, b in zip(ends[m], ends["IFCA"], strict=True)]) for m in ("counts", "steady")]
        shown = " | ".join(f"{gap.value:+.1f} ± {gap.half:.1f}" for gap in gaps)
        print(f"| {name} | {np.mean(ends['IFCA']):.1f} % | {shown} | {len(seeds)} |")


def starts(seeds: int) -> None:
    print("| models begin with | clients in their true cluster | accuracy |\n| --- | --- | --- |")
    for name, start in STARTS.items():
        results = [run(Experiment.of(DIGITS, start=start, seed=seed), quiet=True) for seed in range(seeds)]
        placed = [100 * (r.clustering or {})["accuracy"] for r in results]
        reached = student([100 * r.accuracy["client_mean"] for r in results])
        shown = ", ".join(f"{p:.0f}" for p in placed)
        print(f"| {name} | {shown} % | {reached.value:.1f} ± {reached.half:.1f} % |", flush=True)


def main() -> None:
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parse.add_argument("what", choices=("gain", "accuracy", "work", "turns", "hidden", "starts"))
    parse.add_argument("--seeds", type=int, default=3)
    parse.add_argument("--draws", type=int, default=100)
    parse.add_argument("--processes", type=int, default=2)
    parse.add_argument("--minutes", type=float, default=60.0)
    parse.add_argument(
        "--lines", type=Path, default=Path("map_work.jsonl"), help="where runs of `work`, `turns` are kept"
    )
    asked = parse.parse_args()
    if asked.what == "gain":
        gain(asked.draws)
    elif asked.what == "hidden":
        hidden(min(asked.draws, 5))
    elif asked.what == "work":
        work(asked.seeds, asked.processes, asked.minutes, asked.lines)
    elif asked.what == "turns":
        turns(asked.seeds, asked.minutes, asked.lines)
    else:
        {"accuracy": accuracy, "starts": starts}[asked.what](asked.seeds)


if __name__ == "__main__":
    main()
