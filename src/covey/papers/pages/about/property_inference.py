"""What the page of this paper says and draws."""

from __future__ import annotations

from covey.papers.pages.shapes import About, Curves, Dots

_SCORES = {
    "AUC of the attack": r"(?:C, )?(?P<x>.+) \| (?P<series>own upload subtracted|own upload left in|placebo control)",
    "main task, whole test set": r"(?:C, )?(?P<x>.+) \| main task, whole test set",
}
_CLIENTS = (
    Curves(
        "clients",
        {"": r"C, (?P<x>\d+) clients, (?P<series>FL|CFL) \| (?P<panel>own upload subtracted|own upload left in)"},
    ),
)

ABOUT = About(
    label="Property inference",
    cites="Property inference on clustered federated learning (Kim et al.), RAID 2023.",
    says="A client in a cluster learns whether others trained on data with a property that is nobody's task, and "
    "more so under "
    "clustered than under plain federated learning; scaling its own updates up helps it, dropout and L2 do "
    "not help reliably, DP-SGD "
    "does.",
    differs=(
        "500 rounds at a rate of 0.1 where the paper has 5,000 at 0.01, but in Figs. 2 and 4; UTKFace at 32 × 32 "
        "pixels where it has LFW, but in the tasks with five clients, in *Undefended* and in Figs. 2 and 4, which "
        "are on both.",
        "Generated reviews stand in for Yelp, in the tasks, in *Undefended* and in Figs. 3 and 4: 500 rounds at 0.05.",
        "*Left in* is the paper's attack; *subtracted* takes the attacker's own upload off first, which it always can.",
        "Every score stands beside a placebo: the same attack on a property that does not exist.",
    ),
    breaks=(
        "Against the attacker who subtracts its own upload no difference between clustering and plain federated learning could be "
        "shown.",
        "With few clients and strong skew part of the score is not the property: the placebo is above chance, too.",
        "Scaling up lowers the score of the paper's attack on clusters; L2 lowers it as well, dropout was not seen to. Under "
        "DP-SGD, with the own upload subtracted, none of eight is above chance by its interval; the active one on plain federated "
        "learning stays at .656 [.494 to .818] at σ = .2 and at .580 [.480 to .680] at .5, on clusters at .50 to .51 "
        "([Table 7](table7.md)).",
        "That clusters leak more holds on UTKFace for the paper's attack (+.063 [.037 to .088], [Table 3](table3.md)), from 10 and "
        "15 clients; the main task's loss under DP-SGD is not seen to be smaller there ([Table 8](table8.md)).",
    ),
    drawings={
        "table3": _CLIENTS,
        "table9": _CLIENTS,
        "table4": (Dots(_SCORES),),
        "table5": (Dots(_SCORES),),
        "table7": (Dots(_SCORES),),
        "table6": (Dots(_SCORES),),
        **{f"table{n}_more": (Dots(_SCORES),) for n in (4, 5, 6, 7)},
        **dict.fromkeys(
            ("table8", "table8_more"),
            (Dots({on: rf"(?P<x>.+) \| {on}" for on in ("main task's AUC", "whole test set", "clients' own data")}),),
        ),
        "tasks": (
            # Not their differences; task C is one of several here, and keeps its letter.
            Dots({k: v.replace("(?:C, )?(?P<x>.+)", "(?P<x>.+, C?FL)") for k, v in _SCORES.items()}),
        ),
        "mild": (Dots(_SCORES),),
        "undefended": (Dots(_SCORES),),
        **dict.fromkeys(("fig2", "fig3"), (Dots(_SCORES),)),
        "fig4": (
            Dots(
                {
                    "mean over rounds": r"(?P<x>.+), cosine \| (?P<series>FL|CFL)",
                    "deviation over rounds": r"(?P<x>.+), deviation \| (?P<series>FL|CFL)",
                }
            ),
            Dots(_SCORES),
        ),
        "acquisition": (Curves("colluders", {"cluster models obtained": r"(?P<x>\d+) colluders \| (?P<series>.+)"}),),
    },
    labels={
        "mild": "Mild skew",
        "undefended": "Undefended",
        **{f"table{n}_more": f"Table {n}, 10 to 20 clients" for n in (4, 5, 6, 7, 8)},
    },
)
