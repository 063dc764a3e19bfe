"""Where the time of a paper's runs goes, before a table is run: one of its runs, for a few rounds, by phase and by kernel.

    PYTHONPATH=src python benchmarks/profile_table.py property_inference/tasks/lfw --with ifca,gender --rounds 60
    PYTHONPATH=src python benchmarks/profile_table.py afc_cfl/table2/cifar10 --with percentile --rounds 5 --arithmetic tf32

The first run is taken whose description and settings have all the words of `--with`. Its first rounds compile and capture, so a
second, equal run follows in the same process, and that one counts. Phases are the run's own seconds, kernels torch's profiler's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from covey.experiment.experiment import Experiment
from covey.papers import pool
from covey.papers.harness import Options, describe
from covey.papers.outcome import Outcome, completed
from covey.papers.rehearsal import asked
from covey.results.folder import RunFolder


def chosen(pattern: str, words: list[str]) -> Experiment:
    """The table's first run that has all these words."""
    (item,) = pool.chosen([pattern])
    runs = list(asked(item, Options(out=Path(tempfile.mkdtemp()))).runs.values())
    for one in runs:
        said = describe(one) + json.dumps(one.table(), default=str)
        if all(word in said for word in words):
            return one
    raise SystemExit(f"of {len(runs)} runs none has {', '.join(words)}; the first is: {describe(runs[0])}")


def shortened(one: Experiment, rounds: int, device: str, kernel: str, arithmetic: str) -> Experiment:
    engine = replace(one.engine, device=device, workers=1, checkpoint_every=10**6, checkpoint_minutes=1e6)
    return replace(
        one,
        engine=replace(engine, kernel=kernel, arithmetic=arithmetic),
        training=replace(one.training, rounds=rounds),
    )


def once(one: Experiment) -> tuple[float, dict[str, float]]:
    """Seconds by the clock, and by phase."""
    begin = time.perf_counter()
    ended = completed(one, RunFolder.named_by_hash(Path(tempfile.mkdtemp()), one), quiet=True, figures_only=True)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if not isinstance(ended, Outcome):
        raise SystemExit(f"the run diverged: {ended.why}")
    return time.perf_counter() - begin, ended.result["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="PAPER/TABLE/DATASET")
    parser.add_argument("--with", dest="words", default="", help="words that the run has, with commas between")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kernel", default="auto")
    parser.add_argument("--arithmetic", default="ieee")
    parser.add_argument("--rows", type=int, default=15, help="kernels shown")
    options = parser.parse_args()
    torch.set_num_threads(1)  # as in a pool
    gpu = torch.cuda.is_available()
    found = chosen(options.table, options.words.split(",") if options.words else [])
    one = shortened(found, options.rounds, "cuda" if gpu else "cpu", options.kernel, options.arithmetic)
    print(f"{options.table}, {describe(one)}, {options.kernel}, {options.arithmetic}", flush=True)
    first, _ = once(one)
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as seen:
        second, phases = once(one)
    print(f"{first:.1f} s, then {second:.1f} s: {json.dumps({name: round(s, 2) for name, s in phases.items()})}")
    if gpu:
        print(f"at most {torch.cuda.max_memory_allocated() / 1e9:.1f} GB of the GPU")
    order = "self_device_time_total" if gpu else "self_cpu_time_total"
    print(seen.key_averages().table(sort_by=order, row_limit=options.rows, max_name_column_width=90))


if __name__ == "__main__":
    main()
