"""What noise by all clients inside a sealed sum costs: CPU seconds and bytes of one client, noise against a trusted server's.

And what canaries show of the ε that is claimed, with every trial sealed and opened.

    python benchmarks/bench_sealed_noise.py [--weights 159010] [--clusters 5] [--clients 8] [--trials 500] [--seeds 8]

Prints the tables of docs/guarantee_sealed.md. Trials take some 30 ms of CPU a round, two rounds each, for two questions and both
sources of noise; accuracies on digits some minutes (`--trials 0`, `--seeds 0`: without).
"""

import argparse
import math
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from covey import Experiment, run
from covey.algorithms.contract import Client, Server, Setting, make_keys, own_keys
from covey.audit.canaries import clients as canaries
from covey.audit.canaries.verdict import in_words
from covey.crypto.noise.shares import SharedNoise
from covey.crypto.noise.stream import Stream
from covey.defences.client_dp.clipping import Clipped
from covey.defences.client_dp.sealed import Circle
from covey.defences.contract import Terms
from covey.learn.work import Plan
from covey.messages import size
from covey.statistics import student_interval


def experiment(clients: int, clusters: int, encryption: str = "threshold", **more: Any) -> Experiment:
    defence = {"name": "client_dp", "epsilon": 4.0, "delta": 1e-3}
    return Experiment.of(
        algorithm="ifca",
        encryption=encryption,
        clients=clients,
        clusters=clusters,
        training={"rounds": 2},
        defence=defence | more,
    )


def costs(clients: int, clusters: int, weights: int, encryption: str) -> None:
    protected = experiment(clients, clusters, encryption).algorithm
    setting = Setting(
        0,
        clients,
        clusters,
        1,
        Plan(),
        torch.zeros(clusters, weights),
        torch.ones(weights, dtype=torch.bool),
        encryption,
    )
    keys = make_keys(protected, setting)
    members = {
        i: Client(i, 1, 0, 1, Plan(), setting, {}, own_keys(keys["clients"], i), data=lambda: None)  # type: ignore
        for i in range(clients)
    }
    change = torch.from_numpy(np.random.default_rng(0).normal(size=weights)).float()
    clipped = Clipped({1: change / change.norm()}, {1: 1.0}, -0.5, 1.0)
    spent: dict[str, list[float]] = {}

    def timed(name: str, work: Any) -> Any:
        begin = time.process_time()
        result = work()
        spent.setdefault(name, []).append(time.process_time() - begin)
        return result

    def consult(questions: Any, enough: int) -> dict[int, Any]:
        return {
            j: timed("help to open", lambda j=j: canaries.finished(protected.advise(members[j], questions[j])))
            for j in questions
        }

    summation = protected.summation
    shares = summation.shares(keys["server"]["sealing"])
    timed("warm up", lambda: shares.seal(np.zeros(1000), Stream()))
    timed("cut and noise", lambda: shares.seal(np.ones(clusters * (weights + 2)), Stream()))
    replies = {
        i: timed("cut, noise and seal", lambda me=me: canaries.finished(summation.reply(me, clipped, clusters)))
        for i, me in members.items()
    }
    untimed: Any = lambda phase: nullcontext()  # noqa: E731
    server = Server(1, 0, setting, keys["server"], None, untimed, consult=consult)  # type: ignore[arg-type]
    state = protected.start(setting)
    total = timed(
        "add up and open (server, with all help)", lambda: summation.total(server, state, iter(replies.items()))
    )
    noise = float(((total.changes[0]) / summation.amounts.changes).std())
    up = size(replies[0]) / 1e6
    print(
        f"{encryption}, {clients} clients, {clusters} blocks of {weights}: bits of a share {shares.bits}, up {up:.2f} MB"
    )
    for name, seconds in spent.items():
        if name != "warm up":
            print(f"  {name:42} {np.median(seconds):.4f} CPU s")
    print(f"  noise of the opened sum {noise:.3f}, of all shares {shares.agreed.deviation(clients):.3f}")


def overhead() -> None:
    print("clients  quorum  corrupted  in a sum  honest  noise against a trusted server's  bits  grid's part of ε")
    for clients in (4, 10, 100, 1000):
        for quorum, corrupted in ((0, -1), (-(-2 * clients // 3) + 1, clients // 3), (0, 1)):
            for survivors in (0.9, 1.0):
                circle = Circle.of(Terms(clients, 5, 1, encryption="threshold"), quorum, corrupted, survivors)
                agreed = SharedNoise(1.0, 1.0, circle.least, circle.corrupted)
                shares = agreed.fitting(_capacity(clients))
                print(
                    f"{clients:7} {circle.quorum:7} {circle.corrupted:10} {circle.least:9} {agreed.honest:7} "
                    f"{math.sqrt(clients / agreed.honest):10.2f} {shares.bits:26} {shares.grid(5 * 159_012):12.1e}"
                )


def _capacity(clients: int) -> int:
    from covey.crypto.openings.circle import draw_circle

    return draw_circle(1.0, clients, [bytes([1]) * 32, bytes([2]) * 32], 2).capacity


def accuracies(seeds: int) -> None:
    """IFCA on digits with 100 clients in two clusters, five rounds: mean accuracy of clients with its 95 % interval over seeds."""
    ways: dict[str, dict[str, Any]] = {
        "trusted server": {},
        "sealed, c = t - 1 = 50": {"encryption": "threshold"},
        "sealed, c = 1": {"encryption": "threshold", "corrupted": 1},
        "every client alone": {"noise": "local"},
        "trusted, random starts": {"told": False},
    }
    for epsilon in (4.0, 8.0, 16.0):
        for name, way in ways.items():
            settings = dict(way)
            encryption = settings.pop("encryption", "none")
            found = [_accuracy(seed, encryption, epsilon=epsilon, **settings) for seed in range(seeds)]
            low, high = student_interval(found)
            print(f"ε {epsilon:4g} {name:24} {np.mean(found):.3f} [{low:.3f}, {high:.3f}]", flush=True)
    plain = [_accuracy(seed, "none") for seed in range(seeds)]
    print(f"no defence {np.mean(plain):.3f}")
    print(f"no defence, random starts {np.mean([_accuracy(s, 'none', told=False) for s in range(seeds)]):.3f}")


def coalitions() -> None:
    """Which cluster the server guesses with so many clients' keys: 20 clients, 4 clusters, 11 of them open a sum."""
    for members in (1, 10, 11):
        vantage = "+".join(["server", *(f"client:{i}" for i in range(members))])
        table: dict[str, Any] = {
            "dataset": "digits",
            "algorithm": "ifca",
            "encryption": "threshold",
            "defence": {"name": "client_dp", "epsilon": 8.0},
            "clients": 20,
            "clusters": 4,
            "model": "softmax",
            "partition": {"name": "label_sets", "public": 20},
            "training": {"rounds": 3, "epochs": 3, "batch_size": 10, "lr": 0.1},
            "attacks": [{"name": "coalition", "vantage": vantage}],
        }
        (one,) = run(Experiment.of(table), quiet=True).attacks.values()
        value, low, high = (100 * one[key] for key in ("value", "low", "high"))
        print(
            f"server + {members:2}: {value:.1f} % [{low:.1f}, {high:.1f}] of clusters, chance 25; {one['verdict']}; {one['used']}"
        )


def _accuracy(seed: int, encryption: str, told: bool = True, **defence: Any) -> float:
    """`told`: models begin with public samples of their true clusters."""
    table: dict[str, Any] = {
        "dataset": "digits",
        "algorithm": "ifca",
        "encryption": encryption,
        "clients": 100,
        "clusters": 2,
        "model": "softmax",
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 5, "epochs": 2, "batch_size": 10, "lr": 0.1},
        "evaluation": {"every": 5},
        "seed": seed,
    }
    if not told:
        table["start"] = {"common": False, "pretrain_epochs": 0}
    if defence:
        table["defence"] = {"name": "client_dp", "delta": 1e-3, **defence}
    return float(run(Experiment.of(table), quiet=True).accuracy["client_mean"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=int, default=159_010)
    parser.add_argument("--clusters", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=8)
    o = parser.parse_args()
    for encryption in ("threshold", "secagg"):
        costs(o.clients, o.clusters, o.weights, encryption)
    overhead()
    coalitions()
    if o.seeds:
        accuracies(o.seeds)
    for deployed in (False, True) if o.trials else ():
        for test in canaries.tests(experiment(o.clients, o.clusters), o.trials, deployed):
            print(f"{test.method}: {in_words(test)}")


if __name__ == "__main__":
    main()
