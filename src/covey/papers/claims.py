"""All claims of the stored tables as rows of data: what was said, what came of it, where it stands. How they look is a page's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from covey.papers import PAPERS
from covey.papers.harness import Reproduction, stored, tables
from covey.papers.verdict import VERDICTS, Claim, Effect


@dataclass(frozen=True)
class Judged:
    """One sentence on one dataset."""

    paper: str
    table: str
    dataset: str
    quick: bool
    title: str
    sentence: str
    verdict: str
    whose: str  # "paper", or "ours": a question that the paper does not ask
    why: str
    effects: list[Effect]
    effect: Effect | None  # the one that the verdict hangs on
    seeds: int  # the fewest that an effect is over
    name: str  # of the reproduction: docs/results/NAME.json


def judged(docs: Path) -> list[Judged]:
    """Of all files in `docs/results`, in the order of paper, table, dataset and claim."""
    return [row for reproduction in stored(docs) for row in rows(reproduction)]


def rows(reproduction: Reproduction) -> list[Judged]:
    return [_row(reproduction, claim) for claim in reproduction.claims]


def counted_once(rows: Sequence[Judged]) -> list[Judged]:
    """Without those of tables that are parts of another one stored of the same dataset: the same runs, asked the same. Nor of a
    quick variant where the table itself is stored.
    """
    stored = {(row.paper, row.table, row.dataset) for row in rows if not row.quick}

    def told(row: Judged) -> bool:
        own = row.paper, row.table, row.dataset
        return (row.paper, _whole(row), row.dataset) in stored or (row.quick and own in stored)

    return [row for row in rows if not told(row)]


def _whole(row: Judged) -> str | None:
    table = tables(row.paper).get(row.table) if row.paper in PAPERS else None
    return table.part_of or None if table else None


def tally(rows: Sequence[Judged]) -> dict[str, dict[str, int]]:
    """Paper -> verdict -> how many."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        counts.setdefault(row.paper, dict.fromkeys(VERDICTS, 0))[row.verdict] += 1
    return counts


def _row(of: Reproduction, claim: Claim) -> Judged:
    return Judged(
        paper=of.paper,
        table=of.table,
        dataset=of.dataset,
        quick=of.quick,
        title=of.title,
        sentence=claim.text,
        verdict=claim.verdict,
        whose=claim.whose,
        why=claim.why,
        effects=claim.effects,
        effect=claim.decisive,
        seeds=min((e.n for e in claim.effects if e.value is not None), default=0),
        name=of.name,
    )
