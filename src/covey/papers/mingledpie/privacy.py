"""What MingledPie hides: Fig. 3, Table II, and the attackers that the paper leaves out."""

from __future__ import annotations

import itertools

import numpy as np

from covey.attacks.preference.identity_sets import hit, intersection, last_set
from covey.crypto import fmd
from covey.crypto.identity_math import Reading, guess_accuracy
from covey.papers.cells import Cell, cell
from covey.papers.harness import Options, Reproduction
from covey.papers.mingledpie.claims import TRUE_SIZES
from covey.papers.mingledpie.settings import NAMES, base, described, remarks, with_
from covey.papers.outcome import Outcome
from covey.randomness import generator
from covey.statistics import standard_error

TABLE2 = {  # dataset -> (MingledPie, IFCA) at epochs 1, 3, 5
    "mnist": ((27.8, 27.8, 27.8), (60.3, 97.2, 100.0)),
    "fashion_mnist": ((28.8, 28.8, 28.8), (86.7, 100.0, 100.0)),
    "cifar10": ((29.0, 29.0, 29.0), (98.8, 100.0, 100.0)),
    "cifar100": ((28.9, 28.9, 28.9), (81.7, 100.0, 100.0)),
}


def fig3(options: Options) -> Reproduction:
    """Preference profiling by a uniform guess in the shown set, over k, p and T: drawn sets against the closed form."""
    options.alone()
    draws = 400 if options.quick else 4000
    grid = dict.fromkeys(
        [
            *((k, p, 2) for k, p in itertools.product((5, 6, 8, 10), (0.5, 0.25, 0.125))),
            *((5, p, t) for p, t in itertools.product((0.5, 0.25), (1, 2, 3, 4))),
            *((k, 0.5, t) for k, t in itertools.product((5, 6, 8, 10), (2, 3, 4, 5))),
            (7, 0.3, 3),
        ]
    )
    cells: list[Cell] = []
    for n, (k, p, t) in enumerate(grid):
        options.say(f"[{n + 1}/{len(grid)}] k={k} p={p} T={t}")
        scores = [1.0 / len(shown) for shown in _drawn(k, p, t, [i % k for i in range(draws)])]
        expected = guess_accuracy(k, p, t)
        error = standard_error(scores)
        row = f"k={k} p={p} T={t}"
        printed = 0.306 if (k, p, t) == (5, 0.5, 2) else None
        cells += [cell(row, "uniform guess", [float(np.mean(scores))], printed)]
        cells += [cell(row, "closed form", [expected]), cell(row, "standard error", [error])]
        cells += [cell(row, "closed form, T false members", [guess_accuracy(k, p, t, "false")] if t < k else [])]
    one = 100 * guess_accuracy(5, 0.5, 2)
    other, six = 100 * guess_accuracy(5, 0.5, 2, "false"), 100 * guess_accuracy(6, 0.5, 2)
    return Reproduction(
        paper="mingledpie",
        table="fig3",
        title="Accuracy of guessing a client's cluster uniformly in its shown set",
        dataset="",
        settings={"draws per cell": draws, "group": "ristretto255", "reading of T": "set has at least T members"},
        cells=cells,
        notes=[
            "The paper prints one number of this figure: 30.6 % at k=5, p=0.5, T=2. Algorithm 1's text (the set has at "
            f"least T members) gives {one:.2f} %, its Eq. 9 and Table II (T false members) {other:.2f} %; "
            f"{six:.2f} % is the text's value at k=6."
        ],
    )


def table2(options: Options) -> Reproduction:
    """Profiling accuracy by round, MingledPie against IFCA."""
    dataset = options.dataset
    # All of three times 120 clients are not yet 99 % of them. On CIFAR a run costs minutes of a CPU.
    seeds = options.count(3 if dataset in ("cifar10", "cifar100") else 10)
    attack = [{"name": "a1", "target": "preference"}]
    start = with_(base(dataset, options), training={"rounds": 5}, evaluation={"every": 5}, attacks=attack)
    mingled = {"name": "mingledpie", "reading": "false"}  # the reading that Table II follows
    runs = {
        "MingledPie": options.run(with_(start, algorithm=mingled), seeds),
        "IFCA": options.run(with_(start, algorithm="ifca"), seeds),
    }
    printed = TABLE2.get(dataset, ((None,) * 3, (None,) * 3))
    cells = [
        cell(method, f"epoch {r}", _at(outcomes, r), None if p is None else p / 100, trials=start["clients"])
        for (method, outcomes), row in zip(runs.items(), printed)
        for r, p in zip((1, 3, 5), row)
    ]
    settings = described(start, seeds) | {"reading of T": "at least T false members, as Table II"}
    title = f"Profiling accuracy on {NAMES[dataset]}"
    right = np.mean([o.accuracy(metric="client_mean") for o in runs["IFCA"]])
    trained = (
        f"After five rounds IFCA's clients are right on {right:.1%} of the test samples of their own distribution."
    )
    return Reproduction("mingledpie", "table2", title, dataset, settings, cells, notes=[*remarks(dataset), trained])


def attackers(options: Options) -> Reproduction:
    """Attackers that the paper leaves out: cluster sizes, redrawn sets, plain models, one client's key. On the digits."""
    start = with_(
        _digits(),
        attacks=["a1", "a1_intersection", {"name": "a2", "rounds": [5]}, {"name": "coalition", "rounds": [5]}],
    )
    count = options.count(10)
    kept = options.run(with_(start, encryption="ckks"), count)
    plain = options.run(with_(start, algorithm="ifca"), count)
    options.alone()
    repeats = 20 if options.quick else 200
    sizes = (12, 12, 24, 36, 36)
    truth = [j for j, n in enumerate(sizes) for _ in range(n)]
    even = [i % 5 for i in range(120)]
    uniform, prior = [], []
    after = (1, 2, 3, 5, 10)
    redrawn: dict[int, list[float]] = {t: [] for t in after}
    for n in range(repeats):
        options.say(f"[{n + 1}/{repeats}]")
        sets = _drawn(5, 0.5, 2, truth, n)
        uniform.append(float(np.mean([hit(last_set([s], 5), j) for s, j in zip(sets, truth)])))
        weighted = [last_set([s], 5) * np.array(sizes) for s in sets]
        prior.append(float(np.mean([hit(w, j) for w, j in zip(weighted, truth)])))
        if n < repeats // 5:
            many = [_drawn(5, 0.5, 2, even, 1000 * n + t) for t in range(max(after))]
            for t in after:
                seen = [intersection([many[s][i] for s in range(t)], 5) for i in range(len(even))]
                redrawn[t].append(float(np.mean([hit(w, j) for w, j in zip(seen, even)])))
    cells = [
        cell(TRUE_SIZES, "uniform guess", uniform, trials=len(truth)),
        cell(TRUE_SIZES, "attack", prior, trials=len(truth)),
        *(
            cell(f"sets redrawn every round, intersection after {t}", "attack", scores, trials=len(even))
            for t, scores in redrawn.items()
        ),
    ]
    cells += [
        cell("remembered sets, intersection after 5", "attack", _values(kept, "a1_intersection"), trials=60),
        cell("remembered sets, intersection after 5", "uniform guess", _values(kept, "a1"), trials=60),
        cell("A2 on IFCA's plain models", "attack", _values(plain, "a2"), trials=60),
        cell("A2 under CKKS", "attack", _values(kept, "a2"), trials=60),
        cell("server and one client with the common key", "attack", _values(kept, "coalition"), trials=60),
    ]
    settings = {"sets drawn": f"{repeats} × 120 clients", "runs": f"{count} on digits, 60 clients, 5 rounds"}
    title = "Attackers that the paper leaves out"
    return Reproduction("mingledpie", "attackers", title, "digits", settings, cells)


def _digits() -> dict[str, object]:
    return {
        "dataset": "digits",
        "algorithm": "mingledpie",
        "clients": 60,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": 5, "epochs": 5, "batch_size": 10, "lr": 0.1},
    }


def _drawn(
    k: int, p: float, t: int, truth: list[int], stream: int = 0, reading: Reading = "members"
) -> list[list[int]]:
    """Sets as clients of these true clusters draw them."""
    random = generator("drawn sets", k, int(p * 1e6), t, stream)
    keys = fmd.generate_keys(k, p, random.bytes)
    return [fmd.draw_set(keys, j, t, reading, random.bytes) for j in truth]


def _at(outcomes: list[Outcome], epoch: int) -> list[float]:
    return [float(o.attack("a1")["details"]["by round"][str(epoch)]) for o in outcomes]


def _values(outcomes: list[Outcome], attack: str) -> list[float]:
    return [float(o.attack(attack)["value"]) for o in outcomes]
