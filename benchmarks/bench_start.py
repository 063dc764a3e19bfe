"""A whole command, from start to report, as a user has it: `covey run` of a preset, the process and its imports included.

    PYTHONPATH=src COVEY_DATA=FOLDER python benchmarks/bench_start.py [--device cuda] [--repeats 2] [--json FILE]

The first run of a machine may compile kernels, whose results Triton keeps on disk for the next ones; all are reported.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL = 10.0  # seconds, of ifca-mnist on a GPU


def seconds(preset: str, device: str, more: list[str]) -> dict[str, float]:
    """Of the whole command, and of its rounds as the command says them."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"engine.device={device}", *more]
        options = [word for setting in settings for word in ("--set", setting)]
        command = [sys.executable, "-m", "covey", "run", preset, *options, "--out", str(Path(folder) / "run")]
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        whole = time.perf_counter() - begin
    said = done.stdout + done.stderr
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    took = re.findall(r"took (?:([\d.]+) min )?([\d.]+) (ms|s)", said)
    minutes, amount, unit = took[-1] if took else ("0", "nan", "s")
    return {"whole_s": whole, "rounds_s": 60 * float(minutes or 0) + float(amount) * (1e-3 if unit == "ms" else 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="ifca-mnist")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="further settings, as of covey run")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    runs = []
    for number in range(options.repeats):
        runs.append(seconds(options.preset, options.device, options.set))
        whole, rounds = runs[-1]["whole_s"], runs[-1]["rounds_s"]
        print(
            f"{options.preset}, run {number + 1}: {whole:.1f} s, of them rounds {rounds:.1f} s (goal {GOAL:g})",
            flush=True,
        )
    if options.json:
        content = {"preset": options.preset, "device": options.device, "runs": runs}
        Path(options.json).write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
