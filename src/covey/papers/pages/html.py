"""The same pages for a browser, in the report's dress: one file each, nothing fetched."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence

from covey.papers.claims import Judged, tally
from covey.papers.harness import Reproduction
from covey.papers.pages.content import Exhibit, PaperPage, label, order
from covey.papers.pages.grid import grid
from covey.papers.pages.markdown import dataset_name, effect_words, provenance
from covey.papers.verdict import FAILS, HOLDS, UNDECIDED, UNMEASURED, Claim
from covey.report.draw.layout import Section, rows_table
from covey.report.draw.markup import Html, join, tag
from covey.report.format import counted, duration
from covey.report.page import Page, render

CHIPS = {HOLDS: "good", FAILS: "leak", UNDECIDED: "part", UNMEASURED: "open"}

COMMAND = "The command that makes this table."


def paper_html(page: PaperPage, rows: Sequence[Judged]) -> str:
    """All that is stored of a paper: verdicts, figures, tables."""
    counts = tally(rows).get(page.paper, {})
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    sections = [
        Section("broke", "What broke a claim, or bounds it", "", _items(page.about.breaks)),
        Section("claims", "Claims", f"{counted(len(rows), 'judgement')}: {said}.", _claims(rows)),
        *(_section(exhibit) for exhibit in page.exhibits),
        Section("differs", "What we read differently", "", _items(page.about.differs)),
    ]
    return render(
        Page(
            title=f"{page.about.label} · covey",
            kicker=f"Reproduction · {page.paper}",
            headline=page.about.label,
            lede=[page.about.cites, page.about.says],
            badges=[],
            flock=None,
            tiles=[],
            sections=sections,
        )
    )


def table_html(one: Reproduction, drawn: Sequence[str]) -> str:
    """One table on a page of its own."""
    facts = [tag("div", tag("dt", name), tag("dd", str(value))) for name, value in one.settings.items()]
    body = [tag("pre", one.command), _items(one.notes), tag("p", provenance(one)), tag("dl", *facts, class_="settings")]
    lead = f"The command that makes this table; its runs took {duration(one.seconds)}." if one.runs else COMMAND
    sections = [
        Section(
            "figure", "Figure", "Whiskers are 95 % intervals over seeds.", _pictures(drawn, one.title), bool(drawn)
        ),
        Section(
            "table",
            "Ours beside the paper's",
            "Mean ± standard deviation; in brackets, over how many seeds.",
            _table(one),
        ),
        Section("claims", "Claims", "What the paper says, and what our figures say to it.", _verdicts(one.claims)),
        Section("setting", "Setting", lead, join(body)),
    ]
    place = f"On {dataset_name(one.dataset)}." if one.dataset else "No data needed."
    quick = [("warn", Html("quick variant: shorter than the paper's"))] if one.quick else []
    return render(
        Page(
            title=f"{one.paper} {one.table} · covey",
            kicker=f"Reproduction · {one.paper} {one.table}",
            headline=one.title,
            lede=[_tally(one), place] if one.claims else [place],
            badges=quick,
            flock=None,
            tiles=[],
            sections=[section for section in sections if section.body],
        )
    )


def _section(exhibit: Exhibit) -> Section:
    parts = []
    for one in exhibit.made:
        title = f"{one.title}, {dataset_name(one.dataset)}" + (", quick variant" if one.quick else "")
        parts += [tag("h3", title), _pictures(exhibit.drawn[one.name], title), _table(one), tag("pre", one.command)]
    return Section(exhibit.table, exhibit.label, "", join(parts))


def _pictures(drawn: Sequence[str], title: str) -> Html:
    """Each in a frame of its own: a picture that stands alone brings its own style."""
    shown = []
    for svg in drawn:
        address = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
        shown.append(tag("div", tag("img", src=address, alt=title, width="720"), class_="scroll"))
    return join(shown)


def _table(one: Reproduction) -> Html:
    head, rows = grid(one)
    paired = [
        [row[0], *(_theirs(text) if name.endswith(" paper") else text for name, text in zip(head[1:], row[1:]))]
        for row in rows
    ]
    return rows_table(head, paired, "paired")


def _theirs(text: str) -> Html:
    return tag("span", text or "–", class_="theirs")


def _claims(rows: Sequence[Judged]) -> Html:
    """Every judgement: its verdict, sentence, and the effect that decides."""
    lines = []
    for row in sorted(rows, key=lambda row: order(row.table)):
        where = f"{label(row.paper, row.table)}, {dataset_name(row.dataset)}"
        effect = effect_words(row.effect) if row.effect else ""
        verdict = tag("p", row.verdict, class_=f"chip {CHIPS[row.verdict]}")
        lines.append(
            tag("li", verdict, tag("p", row.sentence), tag("p", f"{where}. {effect or row.why}".strip(), class_="why"))
        )
    return tag("ol", *lines, class_="claims") if lines else Html("")


def _verdicts(claims: Sequence[Claim]) -> Html:
    lines = [
        tag(
            "li",
            tag("p", c.verdict, class_=f"chip {CHIPS[c.verdict]}"),
            tag("p", c.text),
            tag("p", c.why, class_="why"),
        )
        for c in claims
    ]
    return tag("ol", *lines, class_="claims") if lines else Html("")


def _items(sentences: Sequence[str]) -> Html:
    """Markdown's sentences as a list; links into docs/ lead nowhere from here, so their words stay and their targets go."""
    plain = [
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence).replace("*", "").replace("`", "") for sentence in sentences
    ]
    return tag("ul", *(tag("li", one) for one in plain), class_="notes") if plain else Html("")


def _tally(one: Reproduction) -> str:
    """'3 of 4 claims hold.'"""
    held = sum(claim.verdict == HOLDS for claim in one.claims)
    return f"{held} of {counted(len(one.claims), 'claim')} hold{'s' if held == 1 else ''}."
