"""What a server learns of clients' clusters with 1, t − 1 and t clients on its side, where sums are opened together.

    python benchmarks/bench_coalition.py [--clients 40] [--quorum 21] [--rounds 5]

The attack `coalition`, and A1 beside it, on MingledPie with digits: share of clients whose cluster is guessed right in the last
round, with its 95 % interval, chance and the strongest control. The last lines are the shared key. Fewer than t clients guess from
the sets shown only: what the sums that they open tell them beyond is not used (`bench_counts.py` uses it), so these lines are a
lower bound of what they know.
"""

import argparse
from typing import Any

from covey import Experiment, run


def watched(clients: int, rounds: int, members: int, **more: Any) -> dict[str, Any]:
    vantage = "+".join(["server", *(f"client:{i}" for i in range(members))])
    table: dict[str, Any] = {
        "dataset": "digits",
        "model": "softmax",
        "clients": clients,
        "clusters": 5,
        "partition": {"name": "label_sets", "public": 20},
        "training": {"rounds": rounds, "epochs": 3, "batch_size": 10, "lr": 0.1},
        "evaluation": {"every": rounds},
        "attacks": ["a1", {"name": "coalition", "vantage": vantage}],
    }
    return run(Experiment.of(table, **more), quiet=True).attacks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--quorum", type=int, default=21)
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    together = {"algorithm": {"name": "mingledpie", "quorum": o.quorum}, "encryption": "threshold"}
    shared = {"algorithm": "mingledpie", "encryption": "bfv"}
    for members, settings in ((1, together), (o.quorum - 1, together), (o.quorum, together), (1, shared)):
        for name, one in watched(o.clients, o.rounds, members, **settings).items():
            control = max(one["controls"].values())
            value, low, high, chance = (100 * one[key] for key in ("value", "low", "high", "chance"))
            print(
                f"{settings['encryption']:9} server + {members:3} {name:10} {value:5.1f} % [{low:.1f}, {high:.1f}]  "
                f"chance {chance:.1f}, control {100 * control:.1f}  {one['verdict']}"
            )


if __name__ == "__main__":
    main()
