"""What PQFed's tables are judged by: paired differences over seeds, and what a run cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import t as student

from covey.papers.harness import Claim, Outcome, claim


def targets(outcomes: Sequence[Outcome]) -> list[float]:
    """The target's accuracy at the end of each run."""
    return [o.accuracy(metric="target") for o in outcomes]


def megabytes(outcome: Outcome) -> float:
    """Sent and received by all clients over all rounds."""
    return float(sum((r["bytes"]["up"] + r["bytes"]["down"]) * r["participants"] for r in outcome.records)) / 1e6


def passes(outcome: Outcome, models: int) -> float:
    """Forward passes over a client's samples, in all: 3 for each training pass, 1 for each model tried."""
    selection = 1 if outcome.result["algorithm"] == "pqfed" else 0  # features cost less than any pass of a network
    return float(sum(r["participants"] for r in outcome.records[selection:]) * (3 + models))


def rises_and_falls(name: str, found: Mapping[int, list[float]]) -> list[Claim]:
    best, last = max(found, key=lambda e: float(np.mean(found[e]))), max(found)
    made = []
    for text, other in (("similar clients help", 6), ("too many dissimilar clients harm", last)):
        text = f"{name}: {text} (best above {other})."
        if best == other:
            made.append(claim(text, False, f"Experiment {other} is itself the best."))
        else:
            compared = above(text, found[best], found[other])
            made.append(Claim(text, compared.verdict, f"Best is experiment {best}: {compared.why}"))
    return made


def above(text: str, high: Sequence[float], low: Sequence[float], by: float = 0.0) -> Claim:
    """Paired over seeds: holds where the whole 95 % interval of the difference is above `by`, fails where all is below."""
    gaps = np.array(high) - np.array(low)
    mean = float(gaps.mean())
    if len(gaps) < 2:
        return claim(text, None, f"{100 * mean:+.2f} points in one run: no interval.")
    half = float(student.ppf(0.975, len(gaps) - 1)) * float(gaps.std(ddof=1)) / len(gaps) ** 0.5
    undecided = mean - half < by <= mean + half
    why = f"{100 * mean:+.2f} ± {100 * half:.2f} points (95 %, {len(gaps)} seeds, paired)"
    return claim(text, mean - half >= by, why + (": undecided." if undecided else "."), partly=undecided)
