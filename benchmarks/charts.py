"""Charts and tables of docs/benchmarks.md and docs/simulation_at_scale.md, from the stored figures: `python benchmarks/charts.py`
writes docs/figures/bench-*.svg and, in these pages, what stands between `<!-- NAME, by … -->` and `<!-- end of NAME -->`.

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
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("benchmarks", "simulation_at_scale")]
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


def training_table() -> str:
    """Rounds of the FCNN with peers: the clock's ratios, with the smallest and the largest turn."""
    known = read("training-fcnn")
    one, five = ({case["epochs"]: case for case in known["cases"]}[epochs]["contenders"] for epochs in (1, 5))
    alone = read("training-fedjax")
    one |= {name: c for name, c in alone["cases"][0]["contenders"].items() if name != "covey"}
    flower, pfl, fedjax = known["versions"]["flwr"], known["versions"]["pfl"], alone["versions"]["fedjax"]
    names = {
        "research loop": "research loop (deepcopy, DataLoader, optim.SGD)",
        "flower as it comes": f"Flower {flower} simulation as it comes",
        "flower": "Flower, one actor per core",
        "pfl": f"Apple's pfl {pfl}",
        "fedjax": f"FedJAX {fedjax}",
    }
    return _table(
        ["peer", "1 local epoch", "in core-seconds", "goal", "5 local epochs", "goal"],
        [
            [title, _turns(one[peer]), f"{one[peer]['core_ratio']:.2g}", _goal(one[peer])]
            + ([_turns(five[peer]), _goal(five[peer])] if peer in five else ["", ""])
            for peer, title in names.items()
        ],
    )


def state_table() -> str:
    """Rounds of algorithms whose clients remember something over FedAvg's, core-seconds; above the goal in bold."""
    cases = sorted(read("state")["cases"], key=lambda case: case["epochs"])
    names = {"scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fedprox": "FedProx"}
    heads = [f"{case['epochs']} local epoch{'s' * (case['epochs'] > 1)}" for case in cases]
    ratios = {name: [case["algorithms"][name]["core_ratio"] for case in cases] for name in names}
    marked = {n: [f"**{ratio:.2f}**" if ratio > 1.15 else f"{ratio:.2f}" for ratio in row] for n, row in ratios.items()}
    return _table(["", *heads], [[names[n], *row] for n, row in marked.items()])


def million_table() -> str:
    """What a million clients take."""
    heads = "clients, take part, engine µs each, training µs each, last round with evaluation s, before and after the rounds s"
    more = "memory beside the data MB, of it per client kB, data MB, checkpoint kB, metrics.jsonl kB"
    rows = []
    for row in read("million")["rows"]:
        beside = row["peak_mb"] - row["data_mb"]
        seconds = [f"{row[name]:.2f}" for name in ("last_round_s", "once_s")]
        engine, memory = [row["engine_us"], row["train_us"]], [beside, 1024 * beside / row["clients"]]
        whole = [row["data_mb"], row["checkpoint_kb"], row["metrics_kb"]]
        counts = [f"{row[name]:,}" for name in ("clients", "participants")]
        rows.append([*counts, *map(_short, engine), *seconds, *map(_short, memory), *map(_short, whole)])
    return _table([*heads.split(", "), *more.split(", ")], rows)


def _turns(contender: dict[str, Any]) -> str:
    return f"{contender['ratio']:.2g} ({contender['low']:.2g}–{contender['high']:.2g})"


def _goal(contender: dict[str, Any]) -> str:
    return f"{contender['goal']:g}" if contender["goal"] else ""


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


TABLES = {"goals": goals.table, "training": training_table, "state": state_table, "million": million_table}


def with_tables(page: str) -> str:
    """A page with its tables as the stored figures have them."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}, by benchmarks/charts.py -->", f"<!-- end of {name} -->"
        if begin in page:
            head, rest = page.split(begin)
            page = head + begin + "\n" + table() + "\n" + end + rest.split(end)[1]
    return page


def main() -> None:
    FIGURES.mkdir(exist_ok=True)
    for name, draw in CHARTS.items():
        path = FIGURES / f"bench-{name}.svg"
        write_atomically(path, (draw() + "\n").encode())
        print(path.relative_to(ROOT))
    for page in PAGES:
        write_atomically(page, with_tables(page.read_text(encoding="utf-8")).encode())
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
