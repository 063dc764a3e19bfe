"""What FedCAPrivacy's cloud provider links and names, with and without mitigation, and what mitigations cost."""

from __future__ import annotations

from covey.papers.cells import Cell, cell
from covey.papers.fedcaprivacy.ablations import accuracies, made, one
from covey.papers.fedcaprivacy.claims import FEDAVG, LINKS
from covey.papers.fedcaprivacy.settings import MITIGATIONS, ROUNDS, experiment
from covey.papers.harness import Options, Reproduction

OURS = "fedcaprivacy"
LINKING = ("naming", "naming_histogram", *LINKS)
LINKED = 10  # rounds in which rows are linked
TOLD = 4  # rounds of those that one is told about
PHASES = ("blind", "open", "cluster", "average", "unblind")  # of the two servers


def linkage(options: Options) -> Reproduction:
    """What the cloud provider links and names, by mitigation, with what that costs; clustering in every round."""
    clients = 20 if options.quick else 50
    seeds = options.count(3)
    cells: list[Cell] = []
    for name, fields in MITIGATIONS.items():
        for share in (1.0, 0.5):
            table = experiment(options, OURS, 0.3, rounds=LINKED, **{"every": 1, **fields})
            table |= {"clients": clients, "attacks": list(LINKING), "participation": {"slowest": 0.2, "share": share}}
            table["evaluation"] = {"every": LINKED, "samples": 2000}
            outcomes = options.run(table, seeds)
            row = f"{name}, {share:.0%} present"
            values = {a: [o.attack(a)["value"] for o in outcomes] for a in LINKING}
            cells += [cell(row, a, v, trials=round(share * clients)) for a, v in values.items()]
            cells.append(cell(row, "chance", [o.attack("linkage")["chance"] for o in outcomes]))
            cells += accuracies(row, outcomes)
            cells.append(cell(row, "servers", [sum(o.seconds(p) for p in PHASES) for o in outcomes], unit="s a round"))
        if name == "rows once":  # sums or means of the same members: with all present, models are the same
            fields = {**fields, "mitigation": "none"}
        outcomes = one(options, **fields)
        cells += accuracies(f"{name}, paper's setting", outcomes)
    cells += accuracies(FEDAVG, options.run(experiment(options, "fedavg", 0.3), seeds))
    shown = {
        "clients": f"{clients}; 100 in the paper's setting",
        "rounds": f"{LINKED}, clustering in each; {ROUNDS[options.dataset]} in the paper's setting, α = .1",
        "participation": "as shown",
        "partition": "Dirichlet, β = .3",
    }
    notes = [
        "Attacks are the cloud provider's; the best of four that link is what counts against a mitigation. Without mitigation it "
        "sees rows in every round, with sketches only in those that cluster: here all do.",
        "Whoever clusters learns who is like whom: knowing no more than 5 lasting clusters of 50 links a tenth of them.",
        "'rows once' still shows one round's rows, and names can be put to them: with sketches in their place they cannot.",
        "Seconds are of models in the clear and of two machines: benchmarks/bench_fedcaprivacy.py has the cost under encryption.",
        "Points are on the clients' own distribution at the end of the paper's setting, where all take part and 'rows once' is run "
        "without its sums: the models are the same.",
    ]
    return made("linkage", "What the cloud provider can link", options, cells, notes, **shown)


def linkage_told(options: Options) -> Reproduction:
    """How much of who is who a round's distances hold: linkage by a provider that is told where all other rows belong."""
    clients, names = (
        (20 if options.quick else 50),
        [name for name in MITIGATIONS if name not in ("rearrange", "rows once")],
    )
    cells: list[Cell] = []
    for name in names:
        table = experiment(options, OURS, 0.3, rounds=TOLD, every=1, **MITIGATIONS[name])
        table |= {"clients": clients, "attacks": ["linkage_graph"], "evaluation": {"every": TOLD, "samples": 2000}}
        findings = [o.attack("linkage_graph") for o in options.run(table, options.count(3))]
        values = [f["details"]["told of all others"] for f in findings]
        cells.append(cell(name, "linkage_graph", [f["value"] for f in findings]))
        cells.append(cell(name, "told of all others", values))
        cells.append(cell(name, "chance", [f["chance"] for f in findings]))
    notes = [
        "Nobody is told this much in the protocol: it shows what there is to gain for better matchings and colluding participants."
    ]
    shown = {"clients": clients, "rounds": f"{TOLD}, clustering in each", "partition": "Dirichlet, β = .3"}
    return made("linkage_told", "What a round's distances hold", options, cells, notes, **shown)
