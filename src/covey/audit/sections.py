"""What pages of audits are made of: the matrix, its cells, every score beside what it must be compared with, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files

from covey.attacks.finding import NOT_MEASURED, NOTHING_SEEN, Finding
from covey.audit.canaries import shown
from covey.audit.card import plain_words
from covey.audit.matrix import (
    GIVEN,
    INAPPLICABLE,
    LEAKING,
    NOBODY,
    SUSPECTED,
    Audit,
    Cell,
    verdict_of,
)
from covey.audit.text import NOT_SHOWN, seeds
from covey.report.draw.layout import Section, rows_table
from covey.report.draw.marks import track
from covey.report.draw.markup import Html, tag
from covey.report.findings import axis_of
from covey.report.format import counted, plain, sentence_case

LEGEND = (
    "▲ broken: a score of 0.95 or more; leaks: the whole 95 % interval lies above chance and above every attacker that ignores "
    "what was observed, by more than luck among the scores of a cell; leak suspected: above them, but luck may be. ◆ given by "
    "design: the protocol hands it out. ○ not shown: the attacks named found nothing, which is no proof. An arrow ← marks what "
    "a party learns because it sees at least as much as another."
)


def lede(audit: Audit) -> list[str]:
    if audit.problem:
        return [audit.problem]
    leaking = [c for c in audit.cells if c.verdict in LEAKING]
    leaked = list(dict.fromkeys(c.row for c in leaking))
    measured = sum(bool(c.tried) and not c.carried for c in audit.cells)
    attacks = len({finding.attack for c in audit.cells for finding in c.tried})
    said = (
        f"What did not hold: {', '.join(leaked)}."
        if leaked
        else f"No leak was shown by {counted(attacks, 'attack')}, which proves nothing."
    )
    return [
        *filter(None, [shown.refuted(audit.ledger)]),
        said,
        f"{counted(attacks, 'attack')} filled {measured} of {len(audit.cells)} cells: {audit.clients} clients, "
        f"{counted(audit.rounds, 'round')}, {seeds(audit)}. The other cells say what is missing.",
        plain_words(audit),
    ]


def badges(audits: Sequence[Audit]) -> list[tuple[str, Html]]:
    generated = dict.fromkeys(a.stand_in for a in audits if a.stand_in)
    left_out = dict.fromkeys(note for a in audits for note in a.notes)
    marks = [("warn", tag("span", words)) for words in (*generated, *left_out)]
    facts = dict.fromkeys(f"{a.partition} partition, {counted(a.clusters, 'cluster')}" for a in audits)
    counts = dict.fromkeys("one seed" if a.seeds == 1 else counted(a.seeds, "seed") for a in audits)
    return [*marks, *(("", tag("span", words)) for words in facts), *(("", tag("span", w)) for w in counts)]


def own_style() -> Html:
    return tag("style", Html(files("covey.audit").joinpath("audit.css").read_text("utf-8")))


def table(audit: Audit, prefix: str) -> Html:
    head = tag("tr", tag("th", ""), *(tag("th", sentence_case(c), scope="col") for c in audit.parties))
    body = []
    for row, question in audit.rows.items():
        cells = [shown_cell(audit.cell(row, column), prefix, sentence_case(column)) for column in audit.parties]
        if not audit.says(row):
            why = next(c.why for c in audit.cells if c.row == row and c.verdict == INAPPLICABLE)
            said = tag("span", tag("span", f"{INAPPLICABLE}: {why}", class_="says"))
            cells = [tag("td", said, class_="quiet", colspan=len(audit.parties), data_label="Everyone")]
        body.append(tag("tr", tag("th", sentence_case(row), tag("small", question), scope="row"), *cells))
    return tag("table", tag("thead", head), tag("tbody", *body), class_="audit")


def shown_cell(cell: Cell, prefix: str, label: str, more: str = "", brief: bool = False) -> Html:
    """Verdict, the worst score with the best guess beside it, and what else there is to say; `brief` for a long list."""
    kind = (
        "given"
        if cell.verdict == GIVEN
        else "leak"
        if cell.verdict in (*LEAKING, SUSPECTED)
        else "none"
        if cell.tried
        else "quiet"
    )
    says = tag("span", f"{cell.said}{' ←' if cell.carried else ''}", class_="says")
    if cell.tried:
        score = _beside(cell.tried[0]) if brief else _score(cell)
        parts = [says, tag("small", score, class_="scored"), tag("small", more) if more else ""]
        inside = tag("a", *parts, href=f"#{_anchor(prefix, cell, cell.tried[0])}", title=cell.why)
    else:
        why = (
            f"as the {cell.carried}"
            if cell.carried
            else cell.why
            if kind == "given" or cell.verdict == NOT_MEASURED
            else ""
        )
        words = more or ("" if brief else why)
        inside = tag("a", says, tag("small", words) if words else "", href=f"#{prefix}gaps", title=cell.why)
    return tag("td", inside, class_=kind, data_label=label)


def _score(cell: Cell) -> str:
    worst, others = cell.tried[0], len(cell.tried) - 1
    score = f"{_spoken(worst.attack)} {_beside(worst)}" + f" and {others} more" * (others > 0)
    if (end := cell.open_end) is not None:
        score += f"; {'up' if worst.scale.upwards else 'down'} to {end:.2f} not excluded"
    return score


def _beside(finding: Finding) -> str:
    return f"{finding.value:.2f}" + ("" if finding.bar is None else f", guess {finding.bar:.2f}")


def _spoken(attack: str) -> str:
    return attack.replace("_", " ")


def _anchor(prefix: str, cell: Cell, finding: Finding) -> str:
    """Where this score is shown: by the vantage it was really measured from."""
    return f"{prefix}{finding.attack}-{finding.vantage}-{cell.row}".replace(" ", "-").replace("'", "")


def findings(audit: Audit, prefix: str) -> Iterator[Html]:
    """The worst of every cell; the other attacks there are folded away beneath it."""
    for cell in audit.cells:
        shown = [_finding(cell, one, _anchor(prefix, cell, one)) for one in cell.tried if not cell.carried]
        yield from shown[:1]
        if rest := shown[1:]:
            words = f"{counted(len(rest), 'other attack')} on {cell.row} by the {cell.column}"
            yield tag("li", tag("details", tag("summary", words), tag("ol", *rest, class_="findings")), class_="folded")


def _finding(cell: Cell, one: Finding, anchor: str) -> Html:
    verdict = verdict_of(one)
    kind = "leak" if verdict in (*LEAKING, SUSPECTED) else "none"
    head = tag(
        "h3", sentence_case(cell.row), tag("span", f" to the {cell.column}, by {_spoken(one.attack)}", class_="soft")
    )
    controls = () if one.best_control is None else (one.best_control,)
    colour = "bad" if kind == "leak" else "muted"
    picture = track(axis_of(one), one.value, one.interval, one.chance, controls, plain, colour)
    references = [*([] if one.chance is None else [("chance", one.chance)]), *controls]
    beside = "".join(f"; {name} {value:.3f}" for name, value in references)
    interval = "" if one.interval is None else " ({:.3f} to {:.3f})".format(*one.interval)
    numbers = tag("p", tag("b", f"{one.value:.3f}"), interval + beside, class_="numbers")
    read = f"{sentence_case(one.metric)}: {one.means}. Used: {one.used.rstrip('.')}. {one.note} "
    report = cell.reports.get(one.attack)
    foot = tag("p", read, _report(report) if report else "")
    chip = tag("p", NOT_SHOWN if verdict == NOTHING_SEEN else verdict, class_=f"chip {kind}")
    rest = tag("div", picture, numbers, tag("div", foot, class_="soft small-text"))
    return tag("li", tag("div", head, chip), rest, id=anchor)


def _report(path: str) -> Html:
    return tag("a", "The run’s report", href=path)


def gaps(audit: Audit) -> Section | None:
    """Cells without a score, those of a kind together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for cell in audit.cells:
        if not cell.tried and cell.verdict != NOBODY:
            groups.setdefault((cell.row, cell.verdict, cell.why), []).append(cell.column)
    if not groups:
        return None
    everyone = sum(c.row == audit.cells[0].row and c.verdict != NOBODY for c in audit.cells)
    rows = [
        [sentence_case(row), "everyone" if len(who) == everyone else ", ".join(who), verdict, why]
        for (row, verdict, why), who in groups.items()
    ]
    table = rows_table(["What", "Who", "Verdict", "Why"], rows, "reasons")
    return Section("gaps", "Cells without a score", "Nothing here is a sign of safety.", table)


def runs(audit: Audit) -> Section | None:
    if not any(run["report"] for run in audit.runs):
        return None
    rows = [
        [
            tag("a", f"Run {n}", href=run["report"]),
            str(run.get("seed", audit.seed)),
            ", ".join(run["attacks"]) or "nobody watching: for the accuracy",
        ]
        for n, run in enumerate(audit.runs, start=1)
    ]
    lead = "The same experiment each time: an attack looks from one place per run, and an active one changes its run."
    return Section("runs", "Runs", lead, rows_table(["Report", "Seed", "Attacks that watched"], rows, "batches"))


def origin(command: str) -> Section:
    lead = "Finished runs are read back and interrupted ones go on, so the same command again costs nothing."
    return Section("command", "How it was made", lead, tag("pre", command or "covey.audit.audit(experiment, out)"))
