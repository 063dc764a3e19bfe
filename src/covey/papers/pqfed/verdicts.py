"""What PQFed's tables are judged by: paired differences over seeds, and what a run cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from covey.papers.harness import Claim, Outcome, claim
from covey.statistics import paired_difference


def targets(outcomes: Sequence[Outcome]) -> list[float]:
    """The target's accuracy at the end of each run."""
    return [o.accuracy(metric="target") for o in outcomes]


def megabytes(outcome: Outcome) -> float:
    """Sent and received by all clients over all rounds."""
    sent = sum(
        round((r["bytes"]["up"] + r["bytes"]["down"]) * r["participants"]) for r in outcome.records
    )  # whole bytes
    return float(sent) / 1e6


def passes(outcome: Outcome, models: int) -> float:
    """Forward passes over a client's samples, in all: 3 for each training pass, 1 for each model tried."""
    selection = 1 if outcome.result["algorithm"] == "pqfed" else 0  # features cost less than any pass of a network
    return float(sum(r["participants"] for r in outcome.records[selection:]) * (3 + models))


def until_the_drop(outcome: Outcome) -> Outcome:
    """A run of the incremental strategy that tried everybody for the table's sake, cut where the strategy would have stopped."""
    best = 0.0
    for number, record in enumerate(outcome.records, 1):
        judged = record["extra"].get("validation")
        if judged is not None and judged < best:
            return Outcome(outcome.result, outcome.records[:number])
        best = best if judged is None else judged
    return outcome


def steps_kept(outcome: Outcome) -> int:
    """Clients that the incremental strategy trained with before the first drop."""
    tried = until_the_drop(outcome)
    judged = [r["extra"]["validation"] for r in tried.records if "validation" in r["extra"]]
    return len(judged) - (len(judged) > 1 and judged[-1] < judged[-2])


def rises_and_falls(name: str, accuracy: Mapping[int, list[float]], peak: int) -> list[Claim]:
    """Whether accuracy rises from the first experiment to the paper's best, `peak`, and falls to the last.

    Our own best of eleven would be picked by its luck: the paper's is fixed beforehand, so that intervals mean what they say.
    """
    claims = []
    for text, other in (("similar clients help", min(accuracy)), ("too many dissimilar clients harm", max(accuracy))):
        text = f"{name}: {text} ({peak}, the paper's best, above {other})."
        if not all(accuracy.values()):
            claims.append(claim(text, None, "Not run."))
            continue
        compared = above(text, accuracy[peak], accuracy[other])
        best = max(accuracy, key=lambda e: float(np.mean(accuracy[e])))
        claims.append(Claim(text, compared.verdict, f"{compared.why} Our best is {best}."))
    return claims


def above(text: str, high: Sequence[float], low: Sequence[float], by: float = 0.0) -> Claim:
    """Paired over seeds: holds where the whole 95 % interval of the difference is above `by`, fails where all is below."""
    gap = paired_difference(high, low)
    if gap.n < 2:
        return claim(text, None, f"{100 * gap.value:+.2f} points in one run: no interval.")
    undecided = gap.low < by <= gap.high
    why = f"{100 * gap.value:+.2f} ± {100 * gap.half:.2f} points (95 %, {gap.n} seeds, paired)"
    return claim(text, gap.low >= by, why + (": undecided." if undecided else "."), partly=undecided)
