"""The audit's matrix: what one party learned of one thing, or why nothing is known about it.

Never safety: the best that a cell says is "not shown by these attacks", with what was tried. A cell without an attack says why it
has none, and what is known elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from covey import leaks
from covey.attacks.finding import BROKEN, LEAKS, NOT_MEASURED, NOTHING_SEEN, Finding
from covey.audit.canaries.verdict import LedgerTest
from covey.audit.pooling import beyond_luck
from covey.audit.questions import Questions, Watch
from covey.errors import CoveyError
from covey.leaks import CLIENT, PARTIES, Leak

# A cell's verdict, worst first. Those above "no leak seen" say that something leaks, those below that nothing was measured.
GIVEN, UNKNOWN, INAPPLICABLE, NOBODY = "given by design", "no attack known", "not applicable", "nobody here"
SUSPECTED = "leak suspected"  # beyond chance and controls, but so is one or the other of a cell's many scores by luck
VERDICTS = (BROKEN, LEAKS, GIVEN, SUSPECTED, NOTHING_SEEN, NOT_MEASURED, UNKNOWN, INAPPLICABLE, NOBODY)
LEAKING = (BROKEN, LEAKS, GIVEN)
KNOWN = {BROKEN: "is broken", LEAKS: "leaks", GIVEN: "is given by design"}  # as the verb of a sentence
HARM = {LEAKS: "harms", SUSPECTED: "harm suspected"}  # the words for what is no knowledge
UNCERTAIN = "Beyond its controls, but not certainly"  # so begins the note on such a score


@dataclass(frozen=True)
class Cell:
    """What one party learned of one thing, or why nothing is known about it."""

    row: str
    column: str
    verdict: str
    why: str  # in words: what decided, or what is missing
    tried: tuple[Finding, ...] = ()  # the worst first; without their details
    carried: str = ""  # the party, seeing less, whose verdict this is
    reports: dict[str, str] = field(default_factory=dict)  # attack -> its run's report, relative to the audit's folder

    @property
    def said(self) -> str:
        """The verdict in words that nobody takes for safety."""
        if self.verdict != NOTHING_SEEN:
            return HARM.get(self.verdict, self.verdict) if self.row in leaks.DEEDS else self.verdict
        return f"not shown by {len(self.tried)} attack{'s' * (len(self.tried) != 1)}"

    @property
    def open_end(self) -> float | None:
        """The worst leak that a cell without one does not exclude; None where it says that something leaks, or nothing at all."""
        return not_excluded(self.tried) if self.verdict == NOTHING_SEEN else None

    def json(self) -> dict[str, Any]:
        tried = [_entry(finding, self.reports.get(finding.attack, "")) for finding in self.tried]
        return {
            "row": self.row,
            "column": self.column,
            "verdict": self.verdict,
            "why": self.why,
            "tried": tried,
            "carried": self.carried,
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Cell:
        """Back from `json`."""
        tried = [_finding(entry) for entry in content["tried"]]
        reports = {str(entry["attack"]): str(entry["report"]) for entry in content["tried"] if entry["report"]}
        row = leaks.CURRENT.get(content["row"], content["row"])
        return cls(**{**content, "row": row, "tried": tuple(tried), "reports": reports})


def _entry(finding: Finding, report: str) -> dict[str, Any]:
    """A score as audit.json has it: with its best control picked out for the reader."""
    control, reached = finding.best_control or ("chance", finding.chance)
    content = finding.json()
    del content["details"], content["variants"]
    return {"attack": finding.attack, **content, "control": control, "control_value": reached, "report": report}


def _finding(entry: Mapping[str, Any]) -> Finding:
    """Back from `_entry`; older files name the best control only."""
    best = {} if entry["control"] == "chance" else {entry["control"]: entry["control_value"]}
    finding = Finding.of(str(entry["attack"]), {"controls": best, **entry})
    if finding is None:
        raise CoveyError(f"{entry['attack']} has no score in this audit: run `covey audit` again")
    return finding


@dataclass(frozen=True)
class Audit:
    """The matrix of one experiment."""

    algorithm: str
    dataset: str
    stand_in: str
    partition: str
    defence: str
    encryption: str
    clients: int
    clusters: int
    rounds: int
    seed: int
    accuracy: float | None  # of clients on their own distribution: what the protection costs
    cells: tuple[Cell, ...]
    runs: tuple[dict[str, Any], ...]  # report, attacks
    settings: dict[str, Any] = field(default_factory=dict)
    problem: str = ""  # why there is no matrix: the experiment cannot be run
    notes: tuple[str, ...] = ()  # what of the experiment the audit leaves out
    rows: dict[str, str] = field(default_factory=dict)  # what could leak -> the question
    ledger: tuple[LedgerTest, ...] = ()  # the ε that is claimed, beside the ε that canaries show
    seeds: int = 1  # runs with other partitions and draws, from `seed` on, whose scores are pooled
    cost: dict[str, float] = field(default_factory=dict)  # bytes up and down, per client and round
    claimed: dict[str, float | None] = field(default_factory=dict)  # mechanism -> ε of the ledger

    @property
    def protection(self) -> str:
        """The defence and the encryption in one word: "none", "ldp", "ldp+ckks"."""
        return "+".join(w for w in (self.defence, self.encryption) if w != "none") or "none"

    def cell(self, row: str, column: str) -> Cell:
        return next(c for c in self.cells if (c.row, c.column) == (row, column))

    def worst(self, row: str) -> Cell:
        """The worst that anyone learns of it."""
        return min((c for c in self.cells if c.row == row), key=_rank)

    def learners(self, row: str, *verdicts: str) -> list[str]:
        """The parties with one of these verdicts on it."""
        return [c.column for c in self.cells if c.row == row and c.verdict in verdicts]

    def leaks(self, row: str) -> list[tuple[str, list[str]]]:
        """(verdict, the parties with it) of those who learn something, the worst first."""
        return [(verdict, who) for verdict in LEAKING if (who := self.learners(row, verdict))]

    @property
    def parties(self) -> list[str]:
        """Those that there are here."""
        return [party for party in PARTIES if any(c.column == party and c.verdict != NOBODY for c in self.cells)]

    def says(self, row: str) -> bool:
        """Whether the row has a meaning in this experiment."""
        return any(c.row == row and c.verdict not in (INAPPLICABLE, NOBODY) for c in self.cells)

    def json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {
            "cells": [cell.json() for cell in self.cells],
            "runs": list(self.runs),
            "notes": list(self.notes),
            "ledger": [test.json() for test in self.ledger],
        }

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Audit:
        """Back from `json`; older files leave the questions to us."""
        cells = _with_every_party(Cell.of(cell) for cell in content["cells"])
        known = {leak.name: leak.question for leak in leaks.LEAKS}
        stored = {leaks.CURRENT.get(row, row): question for row, question in content.get("rows", {}).items()}
        rows = stored or {cell.row: known.get(cell.row, "") for cell in cells}
        listed = {"runs": tuple(content["runs"]), "notes": tuple(content.get("notes", ())), "rows": rows}
        tests = tuple(LedgerTest.of(test) for test in content.get("ledger", ()))
        return cls(**{**content, **listed, "cells": cells, "ledger": tests})


def _with_every_party(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Row by row; of parties that an older audit did not ask about, that it did not."""
    known = {(cell.row, cell.column): cell for cell in cells}
    rows = dict.fromkeys(row for row, _ in known)
    return tuple(
        known.get((row, column)) or Cell(row, column, NOBODY, "this audit is older, and did not ask about it")
        for row in rows
        for column in PARTIES
    )


def rows_of(audits: Sequence[Audit]) -> dict[str, str]:
    """The rows of several audits together."""
    return {row: question for audit in audits for row, question in audit.rows.items()}


def fill(
    questions: Questions, done: Mapping[Watch, tuple[Finding, str]], failed: Mapping[Watch, str]
) -> tuple[Cell, ...]:
    """All cells, row by row, from the findings (with their run's report) and the problems of what was run."""
    blind = {w: _blindness(f) for w, (f, _) in done.items() if f.verdict == NOT_MEASURED}
    seen = {w: scored for w, scored in done.items() if w not in blind}
    problems = {**failed, **blind}
    cells = {
        (row.name, column): _cell(row, column, questions, seen, problems)
        for row in questions.rows
        for column in PARTIES
    }
    cells |= {key: _named(cell, questions) for key, cell in cells.items() if cell.row == leaks.IDENTITY.name}
    for row in questions.rows:
        for column in PARTIES:
            cells[row.name, column] = _carried_over(row, cells[row.name, column], cells, questions)
    return tuple(_warned(cell, cells, questions) for cell in cells.values())


def _measured(finding: Finding) -> list[Finding]:
    """A score and the other attackers' beside it, as far as they measured something, without their details."""
    every = (finding, *finding.variants)
    return [replace(one, details={}, variants=[]) for one in every if one.verdict != NOT_MEASURED]


def _doubted(tried: Sequence[Finding]) -> list[Finding]:
    """The attacks on one cell; a leak that luck among so many explains says so."""
    words = f"{UNCERTAIN}: one of {len(tried)} scores may be so by luck."
    return [
        one if sure or one.verdict not in LEAKING else replace(one, note=" ".join(filter(None, [words, one.note])))
        for one, sure in zip(tried, beyond_luck(tried))
    ]


def verdict_of(finding: Finding) -> str:
    """Of one score in a matrix."""
    return SUSPECTED if finding.note.startswith(UNCERTAIN) else finding.verdict


def _blindness(finding: Finding) -> str:
    if finding.no_room:
        return f"guessing alone scores {finding.bar:.2f} (the attack {finding.value:.2f}), so nothing can be shown here"
    if finding.used.startswith("nothing"):
        return f"could use {finding.used}"
    words = f"saw too little: {finding.used}"
    if finding.measured and finding.interval is not None:
        ends = "{:.2f} to {:.2f}".format(*finding.interval)
        words += (
            f"; its score is {finding.value:.2f}, and may be anything from {ends}, where guessing has {finding.bar:.2f}"
        )
    return words


def _cell(
    row: Leak,
    column: str,
    questions: Questions,
    done: Mapping[Watch, tuple[Finding, str]],
    failed: Mapping[Watch, str],
) -> Cell:
    if not questions.vantage(column):
        return Cell(row.name, column, NOBODY, "this protocol has one server")
    if words := row.absent(questions.experiment):
        return Cell(row.name, column, INAPPLICABLE, words)
    if words := questions.given(row, column):
        return Cell(row.name, column, GIVEN, words)
    attacks = questions.on(row, column)
    watches = [questions.scored_at(name, column) for name in attacks]
    scored = [done[watch] for watch in watches if watch in done]
    problems = [f"{watch.attack}: {failed[watch]}" for watch in watches if watch in failed]
    if scored:
        elsewhere = dict.fromkeys(watch.column for watch in watches if watch in done and watch.column != column)
        alike = [f"it is shown just what the {other} is, and is scored with it" for other in elsewhere]
        moved = [(_moved(finding, questions.vantage(column)), report) for finding, report in scored]
        return _scored(row.name, column, moved, problems, alike)
    if problems:
        return Cell(row.name, column, NOT_MEASURED, "; ".join(problems))
    if questions.undeclared:
        return Cell(row.name, column, NOT_MEASURED, questions.undeclared)
    lacking = [
        f"{name} {words}" for name in attacks if not questions.unfit(name, column) and (words := questions.lacks(name))
    ]
    if lacking:
        return Cell(row.name, column, NOT_MEASURED, "; ".join(lacking))
    if questions.unspoken:
        return Cell(row.name, column, NOT_MEASURED, questions.unspoken)
    unfit = dict.fromkeys(words for name in attacks if (words := questions.unfit(name, column)))
    known = leaks.known_elsewhere(row, column) or "nothing that we know of, which is no sign of safety"
    said = ["no attack of covey tells from here", *unfit, f"known elsewhere: {known}"]
    return Cell(row.name, column, UNKNOWN, "; ".join(said))


def _moved(finding: Finding, vantage: str) -> Finding:
    """The same score at the place of a party that knows just the same."""
    return replace(finding, vantage=vantage, variants=[replace(one, vantage=vantage) for one in finding.variants])


def _scored(
    row: str, column: str, scored: Sequence[tuple[Finding, str]], problems: Sequence[str], alike: Sequence[str]
) -> Cell:
    """A cell with scores: every finding, and the stronger attackers scored beside it."""
    tried = _doubted([one for finding, _ in scored for one in _measured(finding)])
    reports = {one.attack: report for finding, report in scored for one in _measured(finding) if report}
    tried.sort(key=lambda finding: (VERDICTS.index(verdict_of(finding)), -finding.excess))
    why = "; ".join([*alike, _in_words(tried), *problems])
    return Cell(row, column, verdict_of(tried[0]), why, tuple(tried), reports=reports)


def _in_words(tried: Sequence[Finding]) -> str:
    worst = tried[0]
    words = f"tried: {', '.join(finding.attack for finding in tried)}"
    if worst.used.startswith(("nothing", "no ")):
        words += f", which could use {worst.used}"
    if worst.verdict == NOTHING_SEEN and (end := not_excluded(tried)) is not None:
        words += f"; a score {'up' if worst.scale.upwards else 'down'} to {end:.2f} is not excluded"
    if worst.chance == 0.5 and worst.scale.upwards and worst.high is not None and worst.high < 0.5:
        words += f"; wholly below 0.5: read the other way round it would score {1 - worst.value:.3f}"
    notes = dict.fromkeys(finding.note for finding in tried if finding.note)
    return ". ".join([words, *(note.rstrip(".") for note in notes)])


def not_excluded(tried: Sequence[Finding]) -> float | None:
    """The worst leak that would have gone unseen by these attacks, all read on the first one's scale."""
    ends = [finding.open_end for finding in tried if finding.scale.upwards == tried[0].scale.upwards]
    known = [end for end in ends if end is not None]
    if tried[0].open_end is None or not known:
        return None
    return max(known) if tried[0].scale.upwards else min(known)


def _named(cell: Cell, questions: Questions) -> Cell:
    """A cluster that every reply names needs no proof, which few clients could not give."""
    if cell.verdict not in (SUSPECTED, NOTHING_SEEN, NOT_MEASURED) or not questions.named_truly(cell.column):
        return cell
    return Cell(cell.row, cell.column, GIVEN, f"every reply names its client's cluster in the clear; {cell.why}")


def _carried_over(row: Leak, cell: Cell, cells: Mapping[tuple[str, str], Cell], questions: Questions) -> Cell:
    """Leaks, also suspected ones, carry over to a party that sees more, whatever its own attacks found. That somebody saw nothing
    does not."""
    if cell.verdict not in (SUSPECTED, NOTHING_SEEN, UNKNOWN, NOT_MEASURED):
        return cell
    less = sorted((cells[cell.row, other] for other in questions.implies(row, cell.column)), key=_rank)
    if less and VERDICTS.index(less[0].verdict) < min(VERDICTS.index(cell.verdict), VERDICTS.index(NOTHING_SEEN)):
        sees = "is told what this is read from as well as" if cell.column == CLIENT else "sees at least what"
        why = f"it {sees} the {less[0].column}{'' if cell.column == CLIENT else ' sees'} ({less[0].why})"
        why += f"; by its own attacks: {cell.said}" if cell.tried else ""
        return replace(less[0], column=cell.column, why=why, carried=less[0].column)
    if cell.tried:
        return cell
    seen = [c for c in less if c.verdict == NOTHING_SEEN]
    much = "is told the same" if cell.column == CLIENT else "sees less"
    words = "".join(f"; the {c.column}, who {much}: {c.said}" for c in seen)
    return replace(cell, why=cell.why + words)


def _warned(cell: Cell, cells: Mapping[tuple[str, str], Cell], questions: Questions) -> Cell:
    """Where clusters are label sets, who knows a client's cluster knows its labels, and the other way round: models may be sealed
    as they like.
    """
    if cell.row == leaks.IDENTITY.name and cell.tried and cell.verdict not in LEAKING and questions.named(cell.column):
        return replace(cell, why=f"{cell.why}; but every reply names a cluster in the clear")
    other = {leaks.IDENTITY.name: leaks.LABELS.name, leaks.LABELS.name: leaks.IDENTITY.name}.get(cell.row)
    if other is None or not getattr(questions.experiment.partition, "from_label_sets", False):
        return cell
    known = cells.get((other, cell.column))
    if cell.verdict in (*LEAKING, INAPPLICABLE, NOBODY) or known is None or known.verdict not in LEAKING:
        return cell
    return replace(cell, why=f"{cell.why}; but the {other} {KNOWN[known.verdict]} here, and clusters are label sets")


def _rank(cell: Cell) -> tuple[int, bool, float]:
    return VERDICTS.index(cell.verdict), bool(cell.carried), -cell.tried[0].excess if cell.tried else 0.0
