"""Which experiments each table of the property-inference paper wants, beside the figures that the paper prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from covey.papers.harness import Options
from covey.papers.property_inference import figures as printed
from covey.papers.property_inference.settings import MILD, TASKS, Task, Wanted, experiment, private

METHODS = ("FL", "CFL")
DEFENCES = {
    "dropout 0.1": {"name": "dropout", "rate": 0.1},
    "dropout 0.2": {"name": "dropout", "rate": 0.2},
    "L2 0.01": {"name": "l2", "weight_decay": 0.01},
    "L2 0.02": {"name": "l2", "weight_decay": 0.02},
}
FIVE = (5,)
Grid = Callable[[Options], list[Wanted]]


def passive(options: Options, counts: Iterable[int]) -> list[Wanted]:
    return [
        Wanted(
            f"{name}, {k} clients", m, name, experiment(task, m, k, quick=options.quick), printed.PASSIVE[name, m, k]
        )
        for name, task in TASKS[options.dataset].items()
        for k in counts
        for m in METHODS
    ]


def active(options: Options, counts: Iterable[int] = FIVE) -> list[Wanted]:
    kinds = [("FL", 1.0), ("CFL", 1.0), ("CFL", 5.0)] + (
        [] if options.quick else [("CFL", 10.0), ("FL", 5.0), ("FL", 10.0)]
    )
    wanted = [w for w in passive(options, counts) if not options.quick or w.column == "CFL"]
    for (name, task), k in product(TASKS[options.dataset].items(), counts):
        for m, gamma in kinds if not options.quick else kinds[1:]:
            column = f"{m} γ={gamma:g}"
            figure = printed.ACTIVE.get((name, column if gamma == 1 else "CFL scaled up" if m == "CFL" else "", k))
            table = experiment(task, m, k, quick=options.quick, gamma=gamma)
            wanted.append(Wanted(f"{name}, {k} clients", column, name, table, figure))
    return wanted


def regularised(options: Options, attack: str, counts: Iterable[int] = FIVE) -> list[Wanted]:
    gamma = 5.0 if attack == "active" else 0.0
    wanted = []
    for (name, task), k in product(TASKS[options.dataset].items(), counts):
        for m in ("CFL",) if gamma or options.quick else METHODS:
            for words, defence in [("none", None), *DEFENCES.items()][: 3 if options.quick else None]:
                bare = printed.ACTIVE.get((name, "CFL scaled up", k)) if gamma else printed.PASSIVE[name, "CFL", k]
                figure = printed.REGULARISED.get((attack, name, words, k)) if words != "none" else bare
                table = experiment(task, m, k, quick=options.quick, gamma=gamma, defence=defence)
                wanted.append(Wanted(f"{name}, {k} clients, {m}", words, name, table, figure if m == "CFL" else None))
    return wanted


def noised(options: Options, counts: Iterable[int] = FIVE) -> list[Wanted]:
    wanted = []
    for (name, task), k in product(TASKS[options.dataset].items(), counts):
        for attack, gamma in (("passive", 0.0), ("active", 5.0))[: 1 if options.quick else 2]:
            for m in METHODS:
                for sigma in (0.0, 0.2, 0.5):
                    defence = private(sigma) if sigma else None
                    table = experiment(task, m, k, quick=options.quick, gamma=gamma, defence=defence)
                    table["evaluation"] = {
                        **table["evaluation"],
                        "metrics": ["auc"],
                    }  # what Table 8 prints of the main task
                    figure = printed.NOISED.get((attack, name, m, sigma, k))
                    wanted.append(Wanted(f"{name}, {k} clients, {attack}", f"{m} σ={sigma:g}", name, table, figure))
    return wanted


def more(options: Options) -> tuple[int, ...]:
    """How many clients Tables 4 to 8 have beside five."""
    return printed.SOME[1:2] if options.quick else printed.SOME[1:]


def mild(options: Options) -> list[Wanted]:
    """K = 5 under mild skew, one task: undefended, with a placebo for a property, with DP-SGD."""
    name, task = _main_task(options)
    wanted = []
    for m in ("FL",) if options.quick else METHODS:
        for words, more in (
            ("undefended", {}),
            ("placebo", {"placebo": True}),
            ("DP-SGD σ=0.5", {"defence": private(0.5)}),
        ):
            table = experiment(task, m, 5, quick=options.quick, beta=MILD, **more)  # type: ignore[arg-type]
            wanted.append(Wanted(f"{name}, 5 clients, {m}", words, name, table))
    return wanted


def pictured(options: Options, clients: int = 5) -> list[Wanted]:
    """Task C (D on reviews): at the paper's rounds and learning rate, except in a quick run and on reviews."""
    name, task = _main_task(options)
    tables = [experiment(task, m, clients, quick=options.quick, paper=not options.quick) for m in METHODS]
    figures = [printed.PASSIVE.get((name, m, clients)) for m in METHODS]
    return [Wanted(f"{name}, {clients} clients", m, name, t, f) for m, t, f in zip(METHODS, tables, figures)]


def _main_task(options: Options) -> tuple[str, Task]:
    """Gender and race on faces, the first author of reviews."""
    name = "C" if "C" in TASKS[options.dataset] else "D"
    return name, TASKS[options.dataset][name]


GRIDS: dict[str, Grid] = {
    "table3": lambda o: passive(o, (5,) if o.quick else printed.SOME),
    "table4": active,
    "table5": lambda o: regularised(o, "passive"),
    "table6": lambda o: regularised(o, "active"),
    "table7": noised,
    "table8": noised,
    "table9": lambda o: passive(o, (3, 5) if o.quick else (3, 5, 10, 15, 20)),
    "table4_more": lambda o: active(o, more(o)),
    "table5_more": lambda o: regularised(o, "passive", more(o)),
    "table6_more": lambda o: regularised(o, "active", more(o)),
    "table7_more": lambda o: noised(o, more(o)),
    "table8_more": lambda o: noised(o, more(o)),
    "fig2": pictured,
    "fig3": lambda o: pictured(o, printed.LOW),
    "fig4": pictured,
    "mild": mild,
    "undefended": lambda o: [w for w in mild(o) if "DP" not in w.column and w.row.endswith(" FL")],
    "tasks": lambda o: passive(o, (5,)),
}
MORE = tuple(name for name in GRIDS if name.endswith("_more"))
PARTITIONS = {
    "table3": 10,
    "table9": 10,
    "mild": 10,
    **dict.fromkeys(("fig2", "fig3", "fig4"), 2),
    **dict.fromkeys(MORE, 3),
}  # of other tables: 5


def partitions(options: Options, table: str) -> int:
    """How many partitions a cell of this table is a mean over."""
    return options.count(PARTITIONS.get(table, 5))
