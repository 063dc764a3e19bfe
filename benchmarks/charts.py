"""Charts and the table of goals of docs/benchmarks.md, from the stored figures: `python benchmarks/charts.py` writes
docs/figures/bench-*.svg and the table.

Dots are ratios or costs as the benchmarks stored them, whiskers the smallest and largest turn (no confidence interval), diamonds
the goals of the project's issues.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import goals
from covey.files import write_atomically
from covey.report.draw.standing import Line, Mark, Panel, Words, dots

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIGURES = ROOT / "docs" / "figures"
BEGIN, END = "<!-- goals, by benchmarks/charts.py -->", "<!-- end of goals -->"
TURNS = Words("median of turns", "smallest to largest turn", "goal")
ONE = Words("measured", "smallest to largest turn", "goal")


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def training() -> str:
    """How many times longer than covey a round takes with peers, on a CPU."""
    cases = [case for name in ("training-fcnn", "training-cnn") for case in read(name)["cases"]]
    peers = list(dict.fromkeys(peer for case in cases for peer in case["contenders"] if peer != "covey"))
    panels = []
    for case in cases:
        made = [(peers.index(peer), c) for peer, c in case["contenders"].items() if peer != "covey"]
        marks = [Mark(place, c["ratio"], (c["low"], c["high"]), c["goal"]) for place, c in made]
        epochs = f"{case['epochs']} local epoch{'s' if case['epochs'] > 1 else ''}"
        panels.append(Panel(f"{case['model'].upper()}, {epochs}", [Line("", marks)], share=False))
    return dots("Times longer than covey: training on a CPU", peers, panels, TURNS)


def training_gpu() -> str:
    """How many times faster than a research loop on the same GPU."""
    rows = read("training-gpu-h200")["speed"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    names = {"ieee": "exact float32", "tf32": "TF32 on both sides"}
    lines = []
    for precision, name in names.items():
        own = [row for row in rows if row["precision"] == precision]
        lines.append(Line(name, [Mark(models.index(r["model"]), r["ratio"], None, r.get("goal") or None) for r in own]))
    panel = Panel("times faster than the research loop, H200", lines, share=False, log=True)
    return dots("Training on a GPU", models, [panel], ONE)


def sealing() -> str:
    """Against TenSEAL's common default."""
    better = read("sealing")["times_better_than_tenseal"]
    names = {"aggregate_s": "aggregation", "seal_s": "sealing", "bytes": "bytes of a ciphertext"}
    goals = {"aggregate_s": 20.0, "seal_s": 4.0, "bytes": 4.0}
    lines = [
        Line(scheme.upper(), [Mark(n, known[key], None, goals[key]) for n, key in enumerate(names) if key in known])
        for scheme, known in better.items()
    ]
    return dots("Encryption", list(names.values()), [Panel("times better than TenSEAL", lines, False, True)], ONE)


def protections() -> str:
    """What a client pays for hidden sums, by scheme."""
    rows = read("secagg")
    known = {name: row for name, row in rows.items() if isinstance(row, dict) and "client_s" in row}
    seconds = [Mark(n, row["client_s"] + row["open_s"]) for n, row in enumerate(known.values())]
    up = [Mark(n, row["up"] / 1e6) for n, row in enumerate(known.values())]
    panels = [
        Panel("CPU seconds of a client a round", [Line("", seconds)], share=False),
        Panel("MB sent", [Line("", up)], share=False),
    ]
    return dots("What hidden sums cost a client", list(known), panels, Words("measured"))


def paillier() -> str:
    """Against `phe`."""
    rows = read("paillier")
    names = [f"{row['bits']} bit" for row in rows]
    panels = []
    for kind, title, goal in (("encrypt", "encryption", 300.0), ("decrypt", "decryption", 30.0)):
        marks = [
            Mark(n, r["ratio"][kind], tuple(r["ratio_range"][kind]), goal if r["bits"] == 2048 else None)
            for n, r in enumerate(rows)
        ]
        panels.append(Panel(f"{title}: times longer with phe", [Line("", marks)], share=False, log=True))
    return dots("Paillier", names, panels, TURNS)


CHARTS = {
    "training": training,
    "training-gpu": training_gpu,
    "sealing": sealing,
    "protections": protections,
    "paillier": paillier,
}


def with_goals(page: str) -> str:
    """docs/benchmarks.md with the table of goals as the stored figures have it."""
    head, rest = page.split(BEGIN)
    return head + BEGIN + "\n" + goals.table() + "\n" + END + rest.split(END)[1]


def main() -> None:
    FIGURES.mkdir(exist_ok=True)
    for name, draw in CHARTS.items():
        path = FIGURES / f"bench-{name}.svg"
        write_atomically(path, (draw() + "\n").encode())
        print(path.relative_to(ROOT))
    page = ROOT / "docs" / "benchmarks.md"
    write_atomically(page, with_goals(page.read_text(encoding="utf-8")).encode())
    print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
