"""The worst that stored audits know of each method: what stands beside its rank, so that nobody reads accuracy alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from covey.audit.matrix import LEAKING, SUSPECTED, VERDICTS, Audit, Cell
from covey.leaks import DEEDS


@dataclass(frozen=True)
class Worst:
    """Of one stored audit without a defence."""

    protection: str
    dataset: str
    folder: str  # below docs/results
    leaking: int  # of the questions that have a meaning there
    questions: int
    cell: Cell | None

    def words(self) -> str:
        if not self.questions:
            return "nothing leaves a client"
        if self.cell is None or self.cell.verdict not in (*LEAKING, SUSPECTED):
            return f"none of {self.questions} shown"
        score = ""
        if self.cell.tried:
            one = self.cell.tried[0]
            beside = "" if one.bar is None else f" (guess {one.bar:.2f})"
            score = f", {one.attack.replace('_', ' ')} {one.value:.2f}{beside}"
        return (
            f"{self.cell.verdict}: {self.cell.row}, {self.cell.column}{score}; {self.leaking} of {self.questions} leak"
        )

    def short(self) -> str:
        """Without the attack and its score."""
        if not self.questions:
            return self.words()
        if self.cell is None or self.cell.verdict not in (*LEAKING, SUSPECTED):
            return f"none of {self.questions} shown"
        return f"{self.cell.verdict}: {self.cell.row}; {self.leaking} of {self.questions} leak"


def worst_leaks(docs: Path) -> dict[str, list[Worst]]:
    """Algorithm -> its worst leak in the clear, then under each encryption; of several audits, that which asked most."""
    found: dict[str, dict[str, Worst]] = {}
    for path in sorted((docs / "results").glob("audit-*/audit.json")):
        for content in json.loads(path.read_text(encoding="utf-8")).get("audits", ()):
            audit = Audit.of(content)
            if audit.defence != "none" or audit.problem:
                continue
            one = _worst(audit, path.parent.name)
            known = found.setdefault(audit.algorithm, {})
            before = known.get(one.protection)
            if before is None or before.questions < one.questions:
                known[one.protection] = one
    return {name: sorted(audits.values(), key=lambda w: w.protection != "none") for name, audits in found.items()}


def _worst(audit: Audit, folder: str) -> Worst:
    rows = [row for row in audit.rows if row not in DEEDS and audit.says(row)]
    cells = [audit.worst(row) for row in rows]
    leaking = sum(cell.verdict in LEAKING for cell in cells)
    worst = min(cells, key=_severity, default=None)
    return Worst(audit.encryption, audit.dataset, folder, leaking, len(rows), worst)


def _severity(cell: Cell) -> tuple[int, float]:
    return VERDICTS.index(cell.verdict), -cell.tried[0].excess if cell.tried else 0.0
