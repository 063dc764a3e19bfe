"""MingledPie (NDSS 2025): Fig. 3, Tables II to IX and Figs. 4 to 9, each by `covey reproduce mingledpie --table NAME`.

Texas100 and Purchase100 are not to be had here; Location-30 runs in their place under its own name.
"""

from __future__ import annotations

from functools import partial

from covey.papers.harness import Table
from covey.papers.mingledpie import accuracy, claims, cost, privacy

TITLE = "MingledPie: preference profiling in clustered federated learning (NDSS 2025)"
_ALL = ("mnist", "fashion_mnist", "cifar10", "cifar100", "location30")
_SOME = ("mnist", "fashion_mnist", "cifar10", "location30")

TABLES = {
    "fig3": Table(privacy.fig3, ("",), claims.fig3),
    "table2": Table(privacy.table2, _ALL, claims.table2),
    "table3": Table(accuracy.table3, _ALL, claims.table3),
    "fig4": Table(accuracy.fig4, _ALL, claims.fig4),
    "fig5": Table(accuracy.fig5, _SOME, partial(claims.influence, "more clusters", True)),
    "fig6": Table(accuracy.fig6, _SOME, partial(claims.influence, "240 clients", False)),
    "fig7": Table(accuracy.fig7, _SOME, partial(claims.influence, "p = 0.25", False)),
    "fig8": Table(accuracy.fig8, _SOME, partial(claims.influence, "T = 3", False)),
    "table4": Table(cost.table4, ("",), claims.table4),
    "table5": Table(accuracy.table5, _SOME, claims.table5),
    "table6": Table(accuracy.table6, ("cifar100",), claims.table6),
    "table7": Table(accuracy.table7, ("fashion_mnist", "mnist"), claims.table7),
    "table8": Table(accuracy.table8, ("mnist", "fashion_mnist"), claims.table8),
    "fig9": Table(accuracy.fig9, _ALL, claims.fig9),
    "table9": Table(cost.table9, ("",), claims.table9),
    "attackers": Table(privacy.attackers, ("digits",), claims.attackers),
}
