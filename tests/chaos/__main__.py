"""`PYTHONPATH=tests python -m chaos cases [NAME …]` or `python -m chaos storm --minutes 10 --seed 1`: see `chaos/__init__.py`."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from chaos.cases import CASES, GOAL_SECONDS
from chaos.federation import Federation, experiment
from chaos.soak import soak
from chaos.storm import storm


def cases(names: list[str], folder: Path) -> int:
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"no case is called {unknown[0]}: {', '.join(CASES)}")
    late = 0
    federation = Federation(folder, experiment(rounds=100_000))
    try:
        federation.begin()
        for name in names or CASES:
            try:
                seconds = CASES[name](federation)
            except (TimeoutError, RuntimeError) as e:
                print(f"{name}: never: {e}", flush=True)
                late += 1
                federation.close()
                federation = Federation(Path(tempfile.mkdtemp(dir=folder)), experiment(rounds=100_000))
                federation.begin()
                continue
            late += seconds > GOAL_SECONDS
            print(f"{time.strftime('%T')} {name}: {seconds:.1f} s ({(CASES[name].__doc__ or '').strip()})", flush=True)
    finally:
        federation.close()
    return late


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    kinds = parser.add_subparsers(dest="what", required=True)
    one = kinds.add_parser("cases", help="one trouble at a time")
    one.add_argument("names", nargs="*", help=f"of {', '.join(CASES)}; none: all")
    many = kinds.add_parser("storm", help="many, at random")
    many.add_argument("--minutes", type=float, default=10.0)
    many.add_argument("--seed", type=int, default=random.randrange(2**31))
    many.add_argument("--rounds", type=int, default=0, help="of the run; 0: as many as the storm lasts, about")
    long = kinds.add_parser("soak", help="a long run without any")
    long.add_argument("--rounds", type=int, default=1000)
    long.add_argument("--silos", type=int, default=10)
    words = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # parties are ended, too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells ignore for jobs in the background
    with tempfile.TemporaryDirectory() as folder:
        if words.what == "cases":
            sys.exit(cases(words.names, Path(folder)) > 0)
        if words.what == "soak":
            sys.exit(not soak(Path(folder), words.rounds, words.silos, say=partial(print, flush=True)))
        print(f"seed {words.seed}", flush=True)
        rounds = words.rounds or max(20, round(60 * words.minutes / 4))
        report = storm(Path(folder), words.minutes, words.seed, rounds, say=partial(print, flush=True))
        print(report)
        sys.exit(not report.equal)


if __name__ == "__main__":
    main()
