"""One full encrypted round of FedCAPrivacy, split by phase and party, for each scheme and mitigation, in one run.

    python benchmarks/bench_fedcaprivacy.py [--participants 20] [--weights 178110] [--bits 2048] [--json FILE]

Models are random (training is measured elsewhere); everything else is the real protocol: sealing, signing, checking, blinding,
opening, clustering, averaging, resealing, unblinding, opening by the participants. Every phase is measured in seconds
of wall clock and of CPU: machines are shared, and CPU seconds do not grow with the neighbours' load. A round of everybody on
two cores is all CPU seconds, participants' and servers', over two: the work that weighs is parallel. Rows are
`scheme, mitigation`; the ratio is to Paillier without mitigation, the paper's protocol. `paillier` is the share of the CPU
seconds that go into sealing and opening.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covey.algorithms.contract import Server, Setting, own_keys
from covey.algorithms.fedcaprivacy.envelopes import open_package, pad_model, seal_model
from covey.algorithms.fedcaprivacy.fedcaprivacy import FedCAPrivacy
from covey.learn.work import Plan

Spent = NDArray[np.float64]  # [2] seconds of wall clock and of CPU
SERVERS = ("check", "blind", "open", "cluster", "average", "unblind", "sign")
CASES = (("paillier", "none"), ("paillier", "rearrange"), ("paillier", "sketch"), ("bfv", "none"), ("bfv", "sketch"))


def measure(
    scheme: str, mitigation: str, participants: int, weights: int, bits: int, threads: int, fast: bool
) -> dict[str, Any]:
    algorithm = FedCAPrivacy(mitigation=mitigation, bits=bits, threads=threads, fast_opening=fast)
    start = torch.zeros(5, weights)
    setting = Setting(0, participants, 5, 1, Plan(), start, torch.ones(weights, dtype=torch.bool), scheme)
    spent: dict[str, Spent] = defaultdict(lambda: np.zeros(2))

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        begin = _now()
        yield
        spent[name] += _now() - begin

    with phase("keys"):
        keys = algorithm.keys(setting)
    random = np.random.default_rng(0)
    centres = random.normal(0, 0.05, (5, weights))[np.arange(participants) % 5]
    models = centres + random.normal(0, 0.002, (participants, weights))
    uploads = []
    seal_model(own_keys(keys["clients"], 0), 0, 1, models[0][:100])  # tables of powers, once per key
    for i, model in enumerate(models):
        with phase("seal and sign"):
            mine = own_keys(keys["clients"], i)
            if mitigation == "rearrange":
                model = pad_model(mine, model, np.zeros(weights), random)
            uploads.append((i, seal_model(mine, i, 1, model)))
    bytes_up = float(np.mean([len(u.payload) for _, u in uploads]))
    csp = Server(1, 0, setting, keys["csp"], ask=lambda party, question: None, phase=phase)
    server = Server(1, 0, setting, keys["bs"], ask=lambda party, question: algorithm.answer(csp, question), phase=phase)
    with phase("aggregate"):
        state = algorithm.aggregate(server, algorithm.start(setting), iter(uploads))
    inside = [spent[p] for p in SERVERS if p in spent]
    spent["check"] = spent.pop("aggregate") - np.sum(inside, axis=0)
    package = algorithm.broadcast(state, 0)
    with phase("open and verify"):
        found = open_package(own_keys(keys["clients"], 0), package, 1)[:weights]
    members = [[i for i, own in state.memberships.items() if k in own] for k in package.clusters]
    expected = np.mean([models[some].mean(0) for some in members], axis=0)
    assert np.abs(found - expected).max() < 1e-6
    everybody = {name: spent[name] for name in SERVERS if name in spent}
    everybody |= {"seal and sign": spent["seal and sign"], "open and verify": spent["open and verify"] * participants}
    total = float(sum(cpu for _, cpu in everybody.values()))
    sealing = sum(
        everybody[name][1] for name in ("seal and sign", "open", "average", "open and verify") if name in everybody
    )
    return {
        "case": f"{scheme}, {mitigation}" + (", fast opening" if fast else ""),
        "columns": ["wall_s", "cpu_s"],
        "participant": {
            "seal and sign": (spent["seal and sign"] / participants).tolist(),
            "open and verify": spent["open and verify"].tolist(),
            "models": len(package.clusters),
            "bytes up": bytes_up,
        },
        "servers": {name: spent[name].tolist() for name in SERVERS if name in spent},
        "servers_cpu_s": float(sum(spent[name][1] for name in SERVERS if name in spent)),
        "round_cpu_s": total,
        "round_on_2_cores_s": total / 2,
        "share_of_sealing_and_opening": float(sealing / total),
        "keys": spent["keys"].tolist(),
    }


def _now() -> Spent:
    return np.array([time.perf_counter(), time.process_time()])


def _both(spent: list[float]) -> str:
    return f"{spent[1]:.2f} s CPU ({spent[0]:.2f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--participants", type=int, default=20)
    parser.add_argument("--weights", type=int, default=178_110)
    parser.add_argument("--bits", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2, help="of the cloud provider when it opens rows")
    parser.add_argument("--fast-opening", action="store_true", help="Paillier keys with a hidden subgroup")
    parser.add_argument("--cases", nargs="+", default=[f"{s},{m}" for s, m in CASES], help="scheme,mitigation ...")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    results = []
    print(f"{options.participants} participants, {options.weights:,} weights, Paillier of {options.bits} bits")
    for case in options.cases:
        scheme, mitigation = case.split(",")
        sizes = (options.participants, options.weights, options.bits, options.threads)
        result = measure(scheme, mitigation, *sizes, options.fast_opening)
        results.append(result)
        own = result["participant"]
        first = results[0]["round_cpu_s"]
        print(f"{result['case']}: {result['round_cpu_s']:.0f} CPU seconds for everybody, ", end="")
        print(f"{result['round_on_2_cores_s']:.0f} s on two cores ({first / result['round_cpu_s']:.1f}x of ", end="")
        print(f"{results[0]['case']}); sealing and opening {result['share_of_sealing_and_opening']:.0%}")
        print(
            f"  each participant: seal and sign {_both(own['seal and sign'])}, {own['bytes up'] / 1e6:.1f} MB up",
            end="",
        )
        print(f", open and verify {own['models']} models {_both(own['open and verify'])}")
        print("  servers: " + ", ".join(f"{p} {_both(s)}" for p, s in result["servers"].items()), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
