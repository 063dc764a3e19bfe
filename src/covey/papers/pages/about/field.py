"""What the pages of the field say and draw."""

from __future__ import annotations

from covey.papers.field.page import beside
from covey.papers.field.settings import SETTINGS
from covey.papers.pages.shapes import About, Curves, Dots, Theirs
from covey.report.draw.standing import Words

_PANELS = {
    "own test data": r"(?P<x>.+) \| own test data",
    "worst client": r"(?P<x>.+) \| worst client",
    "seconds a round, one core": r"(?P<x>.+) \| seconds a round, one core",
}

_ARRIVED = r"(?P<panel>.+), (?P<x>\d+) samples?: (?P<series>ifca|fedgroup|pacfl|flux|fedavg_ft|local) \| after 1 rounds"
_HOSPITALS = r"(?P<x>.+?) \| (?P<series>Cleveland|Hungary|Switzerland|Long Beach|mean of the four)"

ABOUT = About(
    label="The field",
    cites="No paper prints this: every algorithm in every setting, each tuned by the same rule. "
    "[The leaderboard over all of it](../../field.md).",
    says="Whether clusters pay, which reviewers ask first: against training alone and against FedAvg with fine-tuning.",
    differs=(
        "Eight trials for each method in each setting, on a seed that no figure uses: "
        "[the rule](../../../src/covey/papers/field/settings.py).",
    ),
    breaks=("Clients are few and small (20 of some 70 to 100 samples): what holds here need not hold of others.",),
    drawings={name: (Dots(_PANELS),) for name in SETTINGS}
    | {
        "wrong_k": (
            Curves("clusters that the method is told", {"": r"(?P<panel>.+), k = (?P<x>\d+) \| (?P<series>.+)"}),
        ),
        "newcomers": (Curves("samples", {"": _ARRIVED}, log=True),),
        "flamby": (Dots({"test accuracy": _HOSPITALS}, words=Words(printed="stored in FLamby's repository")),),
    },
    theirs={"flamby": Theirs("stored", "as FLamby's repository has it")},
    beside=beside,
    labels={name: setting.title for name, setting in SETTINGS.items()}
    | {
        "wrong_k": "A wrong number of clusters",
        "newcomers": "Newcomers",
        "rotated": "IFCA's rotated MNIST",
        "flamby": "FLamby's four hospitals",
    },
)
