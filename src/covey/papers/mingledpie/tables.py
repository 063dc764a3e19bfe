"""MingledPie (NDSS 2025): Fig. 3, Tables II to IX and Figs. 4 to 8, each by `covey reproduce mingledpie --table NAME`.

Texas100 and Purchase100 are not to be had here; Location-30 runs in their place under its own name.
"""

from __future__ import annotations

from covey.papers.harness import Table
from covey.papers.mingledpie import accuracy, cost, privacy

TITLE = "MingledPie: preference profiling in clustered federated learning (NDSS 2025)"
_ALL = ("mnist", "fashion_mnist", "cifar10", "cifar100", "location30")
_SOME = ("mnist", "fashion_mnist", "cifar10", "location30")

TABLES = {
    "fig3": Table(privacy.fig3, ("",)),
    "table2": Table(privacy.table2, _ALL),
    "table3": Table(accuracy.table3, _ALL),
    "fig4": Table(accuracy.fig4, _ALL),
    "fig5": Table(accuracy.fig5, _SOME),
    "fig6": Table(accuracy.fig6, _SOME),
    "fig7": Table(accuracy.fig7, _SOME),
    "fig8": Table(accuracy.fig8, _SOME),
    "table4": Table(cost.table4, ("",)),
    "table5": Table(accuracy.table5, _SOME),
    "table6": Table(accuracy.table6, ("cifar100",)),
    "table7": Table(accuracy.table7, ("fashion_mnist", "mnist")),
    "table8": Table(accuracy.table8, ("mnist", "fashion_mnist")),
    "table9": Table(cost.table9, ("",)),
    "attackers": Table(privacy.attackers, ("digits",)),
}
