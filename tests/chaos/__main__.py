"""`PYTHONPATH=tests python -m chaos cases [NAME …]` or `python -m chaos storm --minutes 10 --seed 1`: see `chaos/__init__.py`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from chaos.cases import CASES, GOAL_SECONDS
from chaos.federation import Federation, experiment


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
    parser.add_argument("what", choices=["cases"])
    parser.add_argument("names", nargs="*", help=f"cases, of {', '.join(CASES)}; none: all")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(cases(words.names, Path(folder)) > 0)


if __name__ == "__main__":
    main()
