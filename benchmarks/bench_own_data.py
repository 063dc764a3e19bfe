"""How fast data of one's own are read: a CSV of a million rows, ten thousand natural clients, fingerprints of a mapped array.

    python benchmarks/bench_own_data.py [--rows 1000000]

Prints seconds of wall-clock and of CPU; needs covey[data].
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from covey import Federation
from covey.data.federation import check
from covey.data.fingerprint import digest, federation_parts
from covey.data.partitions.natural import Natural


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    value = work()
    return value, {"seconds": round(time.perf_counter() - wall, 2), "cpu_seconds": round(time.process_time() - cpu, 2)}


def write_csv(path: Path, rows: int, clients: int) -> None:
    """Ten numbers with a few gaps, two categories, a label and a client column."""
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, 10)).round(4), columns=[f"v{i}" for i in range(10)])
    frame.loc[rng.integers(0, rows, rows // 100), "v3"] = np.nan
    frame["colour"] = rng.choice(["red", "green", "blue"], rows)
    frame["region"] = rng.choice([f"r{i}" for i in range(20)], rows)
    frame["client"] = np.arange(rows) % clients
    frame["label"] = rng.choice(["yes", "no"], rows)
    frame.to_csv(path, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=10_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.csv"
        write_csv(path, asked.rows, asked.clients)
        federation, read = timed(lambda: Federation.from_path(str(path)))
        _, cut = timed(lambda: check(Natural().make(federation.dataset, 0, 0, 0)))
        _, marked = timed(lambda: federation_parts(federation))
        mapped = Path(folder) / "x.npy"
        np.save(mapped, np.zeros((2**28,), np.uint8))
        _, hashed = timed(lambda: digest(np.load(mapped, mmap_mode="r")))
        figures = {
            "rows": asked.rows,
            "clients": asked.clients,
            "megabytes": round(path.stat().st_size / 1e6, 1),
            "read_and_cut": read,
            "cut_and_check_alone": cut,
            "fingerprint": marked,
            "fingerprint_of_256_MiB_mapped": hashed,
        }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
