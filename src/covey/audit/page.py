"""audit.html: the matrix of an audit, every score beside what it must be compared with, and why the other cells are empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.attacks.finding import NOT_MEASURED, NOTHING_SEEN
from covey.audit.canaries import shown
from covey.audit.comparison import several
from covey.audit.matrix import (
    GIVEN,
    LEAKING,
    SUSPECTED,
    UNKNOWN,
    Audit,
)
from covey.audit.sections import LEGEND, badges, findings, gaps, lede, origin, own_style, runs, table
from covey.audit.text import title
from covey.files import write_atomically
from covey.report.draw.layout import Section, Tile
from covey.report.draw.markup import join, tag
from covey.report.format import percent
from covey.report.page import Page, render


def write_audit(audits: Sequence[Audit], path: Path, command: str = "") -> Path:
    """Writes the page of one audit, or of several side by side."""
    write_atomically(path, render(audit_page(audits, command)).encode("utf-8", "replace"))
    return path


def page_of(content: Mapping[str, Any]) -> str:
    """audit.html of what audit.json holds."""
    return render(audit_page([Audit.of(audit) for audit in content["audits"]], str(content.get("command", ""))))


def audit_page(audits: Sequence[Audit], command: str = "") -> Page:
    return _single(audits[0], command) if len(audits) == 1 else several(audits, command)


def _single(audit: Audit, command: str) -> Page:
    headline = f"What leaks from {title(audit)}"
    built = [_matrix(audit), shown.section(audit.ledger), _scores(audit), gaps(audit), runs(audit), origin(command)]
    return Page(
        title=f"{headline} · covey",
        kicker="Audit",
        headline=headline,
        lede=lede(audit),
        badges=badges([audit]),
        flock=None,
        tiles=_tiles(audit),
        sections=[section for section in built if section],
    )


def _tiles(audit: Audit) -> list[Tile]:
    def count(*verdicts: str) -> str:
        return str(sum(c.verdict in verdicts for c in audit.cells))

    empty = [c for c in audit.cells if c.verdict in (NOT_MEASURED, UNKNOWN)]
    tiles = [
        Tile("Leaking cells", count(*LEAKING), f"broken, leaking, or given by design ({count(GIVEN)})"),
        Tile(
            "Not shown",
            count(NOTHING_SEEN),
            f"by the attacks that were tried there: no proof ({count(SUSPECTED)} suspected)",
        ),
        Tile("Nothing measured", str(len(empty)), "no attack is known there, or it lacks something"),
    ]
    if audit.accuracy is not None:
        tiles.append(Tile("Accuracy", percent(audit.accuracy), "of clients on their own distribution"))
    return tiles


def _matrix(audit: Audit, prefix: str = "") -> Section | None:
    if audit.problem:
        return None
    return Section("matrix", "Who learns what", LEGEND, join([own_style(), table(audit, prefix)]))


def _scores(audit: Audit) -> Section | None:
    shown = list(findings(audit, ""))
    lead = (
        "Dot and bar: score and its 95 % interval. Upright line: chance. Diamond: the best attacker that ignores what was "
        "observed. Scores of several seeds are pooled. Of many scores one or the other exceeds its bar by luck: what luck may "
        "explain among those of its cell (Holm, 5 %) is called suspected; of twenty cells one may still be so."
    )
    return Section("scores", "Scores", lead, tag("ol", *shown, class_="findings")) if shown else None
