"""`PYTHONPATH=tests python -m fuzz [target …] --minutes 60`: runs the targets and prints how many inputs each has had.

Faults are written to `fuzz-faults/<target>/` and make it end with 1. `--counts FILE` adds a line of JSON for each target.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from fuzz import guided
from fuzz.engine import Count, drive, forget_peak
from fuzz.readers import drop, scratch
from fuzz.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; none: all")
    parser.add_argument("--minutes", type=float, default=60.0, help="of CPU, for all targets together")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--counts", default="", help="a file that gets a line for each target")
    parser.add_argument(
        "--guided", default="", metavar="FOLDER", help="by libFuzzer (Atheris), which keeps its inputs there"
    )
    words = parser.parse_args()
    unknown = [name for name in words.targets if name not in TARGETS]
    if unknown:
        sys.exit(f"no target is called {unknown[0]}: {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in words.targets] or list(TARGETS.values())
    share = 60 * words.minutes / sum(target.weight for target in chosen)
    counts: list[Count] = []
    if words.guided and not guided.installed():
        sys.exit("--guided needs Atheris: pip install atheris==3.0.0")
    for number, target in enumerate(chosen):
        if words.guided:
            kept = Path(words.guided) / target.name
            counts.append(guided.drive(target, share * target.weight, words.seed + number, kept))
            print(counts[-1], *counts[-1].faults.values(), sep="\n", flush=True)
            continue
        folder = scratch()
        try:
            attempt = target.prepare(folder)
            forget_peak()
            counts.append(drive(target, attempt, share * target.weight, words.seed + number))
        finally:
            drop(folder)
        print(counts[-1], *counts[-1].faults.values(), sep="\n", flush=True)
        if words.counts:
            with open(words.counts, "a") as file:
                line = {"target": target.name, "inputs": counts[-1].inputs, "faults": len(counts[-1].faults)}
                file.write(json.dumps({"at": time.time(), "seed": words.seed, **line}) + "\n")
    print(
        f"{sum(c.inputs for c in counts):,} inputs in all, {sum(len(c.faults) for c in counts)} faults, seed {words.seed}"
    )
    sys.exit(any(count.faults for count in counts))


if __name__ == "__main__":
    main()
