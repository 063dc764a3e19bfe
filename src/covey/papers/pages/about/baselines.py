"""What the page of the common setting says and draws."""

from __future__ import annotations

from covey.papers.pages.shapes import About, Dots

_PANELS = {
    "own distribution": r"(?P<x>.+) \| own distribution",
    "global test": r"(?P<x>.+) \| global test",
    "seconds a round": r"(?P<x>.+) \| seconds a round",
}

ABOUT = About(
    label="Common setting",
    cites="No paper prints this: every algorithm on the same splits, with the same model and the same steps.",
    says="What the authors of each method, and the project's issue, expect of it where nothing is tuned for it.",
    differs=("Learning rates are the same for all: a method that needs another one is at a disadvantage here.",),
    breaks=(
        "Under strong skew no method with one model for all, or one for each cluster, was shown above training alone on a client's "
        "own distribution; Ditto, FedPer, FedRep and APFL are, by about a point ([Dir(0.1)](dirichlet01.md), MNIST).",
    ),
    drawings={name: (Dots(_PANELS),) for name in ("dirichlet01", "dirichlet03", "label_sets")},
    labels={"dirichlet01": "Dir(0.1)", "dirichlet03": "Dir(0.3)"},
)
