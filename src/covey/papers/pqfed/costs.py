"""What a run of PQFed reached and what it cost."""

from __future__ import annotations

from collections.abc import Sequence

from covey.papers.outcome import Outcome


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
