"""Which of covey's tables stand for what the papers print, and for what the project asked for beside it; the rest is beyond both.

A paper's item lists the datasets that the paper has it on, or that the project's issue names for it, and nothing else: a table of
covey that can be made on more of them is counted apart. So what is missing here is missing of the papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAPER, ASKED = "in the paper", "asked for beside it"
STANDS_IN = "UTKFace stands in for LFW's task C"
MORE_CLIENTS = "10 to 20 clients"  # a table of its own beside that of five
PARTITIONS = f"five partitions with 5 clients, three with 10, 15 and 20; {STANDS_IN}"


@dataclass(frozen=True)
class Named:
    """An item, and the tables by dataset that it is made of."""

    paper: str
    label: str
    table: str
    datasets: tuple[str, ...]
    whose: str = PAPER
    limits: str = ""  # what the tables leave out of it, whatever is run
    further: tuple[tuple[str, str], ...] = ()  # tables that hold the rest of it, on the same datasets, and what that is

    @property
    def tables(self) -> list[str]:
        names = [self.table, *(table for table, _ in self.further)]
        return [
            f"{self.paper}/{table}/{dataset}" if dataset else self._alone
            for table in names
            for dataset in self.datasets
        ]

    def words(self, table: str) -> str:
        """What one of its tables holds beside the first; empty of the first itself."""
        return dict(self.further).get(table.split("/")[1], "")

    @property
    def _alone(self) -> str:
        return f"{self.paper}/{self.table}"


_MNISTS, _CIFARS, _NONE = ("mnist", "fashion_mnist"), ("cifar10", "cifar100"), ("",)
_FOUR = (*_MNISTS, "cifar10", "location30")
_FIVE = (*_MNISTS, *_CIFARS, "location30")
_FACES, _TASKS = ("lfw", "utkface"), ("lfw", "yelp-like", "utkface")
_AFC = ("mnist", "emnist_bymerge47", "cifar10")
_PQFED = ("mnist", "cifar10")
_FEDEM = "the paper's FedEM cannot be rebuilt from what it says"


def _mingledpie(label: str, table: str, datasets: Sequence[str], limits: str = "", whose: str = PAPER) -> Named:
    return Named("mingledpie", label, table, tuple(datasets), whose, limits)


def _property(label: str, table: str, datasets: Sequence[str], limits: str = "", whose: str = PAPER) -> Named:
    return Named("property_inference", label, table, tuple(datasets), whose, limits)


ITEMS: tuple[Named, ...] = (
    _mingledpie("Fig. 3", "fig3", _NONE),
    _mingledpie("Table II", "table2", _FIVE),
    _mingledpie("Table III", "table3", _FIVE, _FEDEM),
    _mingledpie("Fig. 4", "fig4", _FIVE, _FEDEM),
    *(_mingledpie(f"Fig. {n}", f"fig{n}", _FOUR) for n in (5, 6, 7, 8)),
    _mingledpie("Table IV", "table4", _NONE),
    _mingledpie("Table V", "table5", _FOUR),
    _mingledpie("Table VI", "table6", ("cifar100",)),
    _mingledpie("Table VII", "table7", ("fashion_mnist",)),
    _mingledpie("Table VIII", "table8", ("mnist",)),
    _mingledpie("Fig. 9", "fig9", _FIVE),
    _mingledpie("Table IX", "table9", _NONE),
    _mingledpie("Attackers in full", "attackers", ("digits",), whose=ASKED),
    _property("Table 3, and tasks A to E", "table3", _TASKS, STANDS_IN),
    _property("Tasks A to E with 5 clients", "tasks", _TASKS, "a column of Table 3", ASKED),
    *(
        Named(
            "property_inference",
            f"Table {n}",
            f"table{n}",
            _FACES,
            limits=PARTITIONS,
            further=((f"table{n}_more", MORE_CLIENTS),),
        )
        for n in (4, 5, 6, 7, 8)
    ),
    _property("Table 9", "table9", _TASKS, f"3, 5, 10, 15 and 20 clients of the paper's 3 to 20; {STANDS_IN}"),
    _property("Fig. 2", "fig2", _FACES, f"250 updates of each map; {STANDS_IN}"),
    _property(
        "Fig. 3", "fig3", ("yelp-like",), "250 updates of each map; 500 rounds; generated reviews stand in for Yelp's"
    ),
    _property("Fig. 4", "fig4", _FACES, STANDS_IN),
    _property("Appendix, acquisition", "acquisition", ("digits",), "the paper describes it without figures"),
    *(
        Named("fedcaprivacy", label, table, datasets)
        for label, table, datasets in (
            ("Table I", "table1", (*_MNISTS, *_CIFARS)),
            ("Table II", "table2", (*_MNISTS, *_CIFARS)),
            ("Fig. 2", "fig2", ("fashion_mnist",)),
            ("Fig. 3", "fig3", ("fashion_mnist",)),
            ("Fig. 4", "fig4", (*_MNISTS, *_CIFARS)),
            ("Fig. 5", "fig5", (*_MNISTS, *_CIFARS)),
        )
    ),
    *(
        Named("fedcaprivacy", label, table, datasets, ASKED)
        for label, table, datasets in (
            ("Table I at three times the rate", "table1_fast", _MNISTS),
            ("Table I with plain SGD", "table1_sgd", _MNISTS),
            ("Rates tuned by one rule", "tuning", (*_MNISTS, *_CIFARS)),
            ("Table I, tuned", "table1_tuned", (*_MNISTS, *_CIFARS)),
            ("Table II, tuned", "table2_tuned", (*_MNISTS, *_CIFARS)),
            ("Linkage", "linkage", _MNISTS),
        )
    ),
    Named("afc_cfl", "Table 1, five settings", "table1", _AFC),
    Named("afc_cfl", "Table 2", "table2", _AFC),
    Named("afc_cfl", "Fig. 2", "fig2", _AFC),
    Named("afc_cfl", "Choices", "choices", _AFC, ASKED),
    Named("afc_cfl", "Readings of local work", "local_work", _AFC, ASKED),
    *(
        Named("pqfed", label, table, datasets)
        for label, table, datasets in (
            ("Table II", "table2", _PQFED),
            ("Table IV", "table4", ("cifar10",)),
            ("Table V, with FedProx and FedDyn", "table4", ("mnist",)),
            ("Table VI", "table6", _PQFED),
            ("Table VII", "table7", ("cifar10",)),
            ("Table VIII, with FedProx and FedDyn", "table7", ("mnist",)),
            *((f"Fig. {n}", f"fig{n}", _PQFED) for n in (3, 4, 5, 6)),
        )
    ),
)
