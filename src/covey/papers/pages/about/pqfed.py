"""What the page of this paper says and draws."""

from __future__ import annotations

from covey.papers.pages.shapes import About, Curves, Dots

ABOUT = About(
    label="PQFed",
    cites="PQFed: a privacy-preserving quality-controlled federated learning framework.",
    says="A target client trains with those whose data resemble its own. The server picks them from noised "
    "features before any "
    "training, at the accuracy of IFCA and at less cost.",
    differs=(
        "The sensitivity of features is that of the public images' range, or of the data's own: both are in Fig. 3.",
        "The paper's learning rate and layers are not stated; on CIFAR-10 levels differ, on MNIST they agree but under FedDyn, "
        "which reaches more here.",
        "Tests are on thousands of the target's samples, over several seeds.",
    ),
    breaks=(
        "At ε = 10, where the selection works, a likelihood ratio recognises most of a client's samples "
        "([membership](../../attacks/membership.md)); by the paper's own score it is 24 % over all clients on MNIST, 46 % of "
        "the target's and of its nearest (r up to .1), and 33 % at r = .2, which is chosen, too ([Fig. 6](fig6.md)).",
        "FedAvg with everybody comes within about a point of choosing, strictly or leniently; what that surely saves is "
        "communication. Choosing incrementally cost more of it than training with everybody in one of three seeds on MNIST "
        "([Table 6](table6.md)).",
        "The incremental strategy takes up to eleven times the rounds of the others: whether its gain is more than that of "
        "training longer is undecided ([what came out](../../algorithms/pqfed.md#what-came-out)).",
    ),
    drawings={
        "fig3": (
            Curves(
                "dissimilarity rate r",
                {"": r"r = (?P<x>[\d.]+) \| (?P<panel>\w+, Δ \w+), (?P<series>.+)"},
                shared=False,
            ),
        ),
        "fig4": (
            Curves("ε", {"power of the attack at 5 % false alarms": r"ε = (?P<x>[\d.]+) \| (?P<series>.+)"}, log=True),
        ),
        "fig5": (
            Curves("dissimilarity rate r", {"selections that take the client": r"r = (?P<x>[\d.]+) \| (?P<series>.+)"}),
        ),
        "fig6": (
            Curves(
                "dissimilarity rate r",
                {"power of the attack at 5 % false alarms": r"r = (?P<x>[\d.]+) \| (?P<series>ε = .+)"},
            ),
        ),
        "table4": (Curves("dissimilarity up to r", {"accuracy": r"\d+: r = 0 … (?P<x>[\d.]+) \| (?P<series>.+)"}),),
        "table6": (
            Dots(
                {
                    "accuracy": r"(?P<x>.+) \| accuracy",
                    "MB in all": r"(?P<x>.+) \| MB in all",
                    "passes over data": r"(?P<x>.+) \| passes over clients' data",
                }
            ),
        ),
        "table7": (
            Curves(
                "dissimilarity rate r of the client that joins",
                {"accuracy": r"\d+: r = (?P<x>[\d.]+) \| (?P<series>.+)"},
            ),
        ),
    },
)
