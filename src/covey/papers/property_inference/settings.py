"""The experiments of the property-inference paper, and many of them at a time on one GPU.

    python -m covey.papers.property_inference.settings --tables table9,table4 --out DIR [--dataset D] [--processes 14] [--minutes 8]

runs what `covey reproduce property_inference --table … --out DIR` will ask for and packs it as DIR/runs.tar.gz: unpack that in
the `--out` folder elsewhere and reproduce there, from the finished runs. It needs torch, numpy and scikit-learn alone.

Ours: 500 rounds at lr 0.1 where the paper has 5,000 at 0.01 (the same lr × rounds; `paper = True` gives the paper's); a quick
run takes 200. The attacker subtracts its own upload, of which it knows everything but the share; the paper does not say that
it does, and the score without is beside. Unstated there and chosen here: Dirichlet β, clip C, δ, two clusters.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from covey import files
from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.papers.harness import Options, Outcome
from covey.results.folder import CONFIG, FEDERATION, METRICS, RESULT, RunFolder, hash_of

FILES = (RESULT, METRICS, CONFIG, FEDERATION)
BETA, CLUSTERS, CLIP, DELTA = 1.0, 2, 1.0, 1e-5
MILD = 10.0  # β of mild skew


@dataclass(frozen=True)
class Task:
    """A main task and the property that has nothing to do with it."""

    dataset: str  # with its label
    attribute: str
    value: int = 1
    model: str = "lfw_cnn"
    said: str = ""  # what a reader must know of the labels

    @property
    def words(self) -> str:
        return f"{self.dataset} → {self.attribute} = {self.value}"


NOISY = "no label for sunglasses exists here, so the property is glasses of any kind, by a classifier"
TASKS: dict[str, dict[str, Task]] = {
    "utkface": {"C": Task("utkface:gender", "black", said="in the paper on LFW; UTKFace's race labels come with it")},
    "lfw": {
        "A": Task("lfw:smile", "glasses", said=NOISY),
        "B": Task("lfw:race", "glasses", said=NOISY + ", and so is the race"),
        "C": Task("lfw:gender", "black", said="the property is what a classifier thought"),
    },
    "yelp-like": {
        "D": Task("yelp-like", "author", 1, "gru", "generated reviews with planted authors, a stand-in for Yelp"),
        "E": Task("yelp-like", "author", 2, "gru", "generated reviews with planted authors, a stand-in for Yelp"),
    },
}


@dataclass(frozen=True)
class Wanted:
    """One experiment of a table: what is put together, and where its AUC goes."""

    row: str
    column: str
    task: str
    table: dict[str, Any]
    paper: float | None = None


def experiment(
    task: Task,
    method: str,  # FL or CFL
    clients: int,
    *,
    quick: bool = False,
    gamma: float = 0.0,  # 0: passive
    defence: dict[str, Any] | None = None,
    beta: float = BETA,
    placebo: bool = False,
    paper: bool = False,  # the paper's rounds and learning rate
) -> dict[str, Any]:
    """The table of one experiment."""
    text = task.model == "gru"
    rounds = 5000 if paper and not text else 200 if quick else 500
    lr = 0.05 if text else 0.01 if paper else 0.1
    attack = {"name": "property", "rows": 1500, "remove_own": True}
    if gamma:
        attack |= {"name": "property_active", "gamma": gamma}
    return {
        "dataset": task.dataset,
        "model": task.model,
        "partition": {
            "name": "property",
            "attribute": task.attribute,
            "value": task.value,
            "beta": beta,
            "placebo": placebo,
        },
        "algorithm": {"name": "fedavg" if method == "FL" else "ifca", "weighting": "clients"},
        "clients": clients,
        "clusters": 1 if method == "FL" else min(CLUSTERS, clients),
        "start": {"common": False},
        "training": {"rounds": rounds, "steps": 1, "batch_size": 32, "lr": lr},
        "exposure": {"every": 5, "choose_on": "batch"},
        "evaluation": {"every": max(rounds // 4, 1)},
        "attacks": [attack],
        **({"defence": defence} if defence else {}),
    }


def private(sigma: float) -> dict[str, Any]:
    return {"name": "dp_sgd", "clip": CLIP, "noise": sigma, "delta": DELTA}


def auc(outcome: Outcome) -> float:
    return float(finding(outcome)["value"])


def kept(outcome: Outcome) -> float:
    """The AUC of the attack that leaves its own upload in, which is the paper's by its text."""
    value = finding(outcome)["details"]["own contribution kept"]
    return math.nan if value is None else float(value)


def finding(outcome: Outcome) -> dict[str, Any]:
    """The one attack's; an area that is undefined, since all rounds were of one kind, shows as such in every mean of it."""
    (entry,) = outcome.result["attacks"].values()
    undefined = {"value": math.nan} if entry["value"] is None else {}
    controls = {name: math.nan if value is None else value for name, value in entry["controls"].items()}
    return {**entry, **undefined, "controls": controls}


def prefetch(grid: Sequence[Wanted], seeds: int, options: Options, processes: int, minutes: float) -> int:
    """Runs experiments that are not there yet, several at a time; returns how many are missing when time is up."""
    wanted: dict[str, Experiment] = {}
    for one_of in grid:
        for seed in range(seeds):
            one = Experiment.of({**one_of.table, "seed": seed, "engine": {"device": options.device, "workers": 1}})
            wanted[hash_of(one)] = replace(
                one, engine=replace(one.engine, checkpoint_every=10**6, checkpoint_minutes=1e6)
            )
    missing = [
        (RunFolder.named_by_hash(options.out, one), one)
        for one in wanted.values()
        if not RunFolder.named_by_hash(options.out, one).finished
    ]
    # Partition by partition, so that what time allows is every cell with fewer partitions rather than fewer cells.
    missing.sort(key=lambda pair: pair[1].seed)
    deadline = time.time() + 60 * minutes
    jobs = [(folder.path, one.table(), deadline) for folder, one in missing]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        done = 0
        for said in pool.imap_unordered(_one, jobs, chunksize=1):
            done += bool(said)
            if said:
                options.say(f"[{done}/{len(jobs)}] {said}")
    return len(jobs) - done


def _one(job: tuple[Path, dict[str, Any], float]) -> str:
    """One run in a process of the pool; nothing is begun after the deadline."""
    folder, table, deadline = job
    if time.time() > deadline:
        return ""
    from covey.rounds.loop import run

    begin = time.perf_counter()
    one = Experiment.of(table)
    result = run(one, out=folder, quiet=True)
    files.remove_checkpoint(RunFolder(folder).checkpoint)
    (finding,) = result.findings
    return (
        f"{one.algorithm.name} K={one.clients} seed {one.seed} {one.defence.name if one.defence else ''}: "
        f"AUC {finding.value:.3f}, main {result.accuracy['global']:.3f}, {time.perf_counter() - begin:.0f} s"
    )


def pack(out: Path) -> Path:
    """The finished runs' small files in one archive."""
    path = out / "runs.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for folder in sorted((out / "runs").glob("*")):
            if RunFolder(folder).finished:
                for name in FILES:
                    if (folder / name).is_file():
                        archive.add(folder / name, f"runs/{folder.name}/{name}")
    return path


def main() -> None:
    from covey.papers.property_inference.grids import GRIDS

    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parse.add_argument("--tables", required=True, help=", ".join(GRIDS))
    parse.add_argument("--out", type=Path, required=True)
    parse.add_argument("--dataset", default="utkface")
    parse.add_argument("--seeds", type=int, default=10)
    parse.add_argument("--processes", type=int, default=14)
    parse.add_argument("--minutes", type=float, default=8.0)
    parse.add_argument("--device", default="cuda")
    parse.add_argument("--quick", action="store_true")
    asked = parse.parse_args()
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError as absent:
        raise SystemExit("scikit-learn is not installed here, and the attack's forest is its own") from absent
    options = Options(out=asked.out, dataset=asked.dataset, quick=asked.quick, device=asked.device)
    names = asked.tables.split(",")
    unknown = [name for name in names if name not in GRIDS]
    if unknown:
        raise SystemExit(f"there is no table '{unknown[0]}': choose of {', '.join(GRIDS)}")
    grid = [wanted for name in names for wanted in GRIDS[name](options)]
    try:
        missing = prefetch(grid, asked.seeds, options, asked.processes, asked.minutes)
    except CoveyError as error:
        raise SystemExit(str(error)) from error
    print(f"{missing} runs missing; packed as {pack(asked.out)}")


if __name__ == "__main__":
    main()
