"""audit.html of several audits: one line per combination of algorithm and protection, everything else folded away beneath."""

from __future__ import annotations

from collections.abc import Sequence

from covey.attacks.finding import NOTHING_SEEN
from covey.audit.matrix import Audit, rows_of
from covey.audit.sections import LEGEND, badges, findings, gaps, lede, origin, own_style, runs, shown_cell, table
from covey.audit.text import LETTERS, WHO, title
from covey.report.draw.layout import Section
from covey.report.draw.markup import Html, join, tag
from covey.report.format import counted, percent, sentence_case
from covey.report.labels import label, protection_label
from covey.report.page import Page

LONG = 8  # combinations, beyond which cells are brief


def several(audits: Sequence[Audit], command: str) -> Page:
    data = " and ".join(dict.fromkeys(label("dataset", a.dataset) for a in audits))
    headline = f"What leaks: {counted(len(audits), 'combination')} of algorithm and defence on {data}"
    words = (
        "Each line is one combination, each column the worst that any party learns of it. Follow a cell to the scores."
    )
    folded = [_combination(i, audit) for i, audit in enumerate(audits) if not audit.problem]
    lead = "Who learns what in each of them, every score beside what it must be compared with, and why cells are empty."
    return Page(
        title=f"{headline} · covey",
        kicker="Audit",
        headline=headline,
        lede=[words],
        badges=badges(audits),
        flock=None,
        tiles=[],
        sections=[_worst(audits), Section("combinations", "Combinations", lead, join(folded)), origin(command)],
    )


def _worst(audits: Sequence[Audit]) -> Section:
    brief = len(audits) > LONG
    rows = [row for row in rows_of(audits) if any(a.says(row) for a in audits if not a.problem)]
    columns = tag("colgroup", Html('<col class="first"><col class="second">'), *([Html("<col>")] * len(rows)))
    names = ("Accuracy", *(sentence_case(row) for row in rows))
    head = tag("tr", tag("th", ""), *(tag("th", name, scope="col") for name in names))
    body = [_line(i, audit, rows, brief) for i, audit in enumerate(audits)]
    lines = tag("table", columns, tag("thead", head), tag("tbody", *body), class_=f"audit worst{' brief' * brief}")
    left = ", ".join(row for row in rows_of(audits) if row not in rows)
    words = f"{WHO}. {LEGEND}" if brief else LEGEND
    return Section(
        "comparison", "Comparison", words + (f" Left out: {left}." if left else ""), join([own_style(), lines])
    )


def _line(i: int, audit: Audit, rows: Sequence[str], brief: bool) -> Html:
    name = join([label("algorithm", audit.algorithm), tag("small", _protection(audit))])
    whole = name if audit.problem else tag("a", name, href=f"#combination-{i}")
    accuracy = "–" if audit.accuracy is None else percent(audit.accuracy)
    cells = [tag("td", tag("span", accuracy, class_="scored"), class_="plain", data_label="Accuracy")]
    if audit.problem:
        refused = tag("span", tag("span", "refused", class_="says"), tag("small", audit.problem))
        cells.append(tag("td", refused, class_="quiet", colspan=len(rows), data_label="Matrix"))
    for row in () if audit.problem else rows:
        who = _letters(audit, row) if brief else _who(audit, row)
        cells.append(shown_cell(audit.worst(row), f"{i}-", sentence_case(row), who, brief))
    return tag("tr", tag("th", whole, scope="row"), *cells)


def _who(audit: Audit, row: str) -> str:
    """Who learns it, and who was looked at and did not."""
    learn, not_seen = audit.leaks(row), audit.learners(row, NOTHING_SEEN)
    said = [(f"{sentence_case(verdict)}:" if len(learn) > 1 else "To:", who) for verdict, who in learn]
    said += [("Not shown to:", not_seen)] if not_seen else []
    return ". ".join(f"{words} {', '.join(who)}" for words, who in said)


def _letters(audit: Audit, row: str) -> str:
    """Who learns it, in letters: "S+C; leaks S, E"."""
    said = [f"{verdict} {', '.join(LETTERS[c] for c in who)}" for verdict, who in audit.leaks(row)]
    return "; ".join(said).removeprefix(f"{audit.worst(row).verdict} ")


def _protection(audit: Audit) -> str:
    return protection_label(audit.defence, audit.encryption) or "undefended"


def _combination(i: int, audit: Audit) -> Html:
    scores = tag("ol", *findings(audit, f"{i}-"), class_="findings")
    parts = [tag("p", " ".join(lede(audit)), class_="lead"), table(audit, f"{i}-")]
    parts.append(tag("details", tag("summary", "Every score"), scores))
    more = [section for section in (gaps(audit), runs(audit)) if section]
    parts += [tag("details", tag("summary", s.title), s.body, id=f"{i}-{s.anchor}") for s in more]
    return tag("details", tag("summary", tag("b", title(audit))), *parts, id=f"combination-{i}", class_="combination")
