"""The same pages for a browser, in the report's dress: one file each, nothing fetched."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from covey.papers.claims import Judged, tally
from covey.papers.harness import Reproduction
from covey.papers.pages.content import Exhibit, PaperPage, label, order
from covey.papers.pages.grid import grid
from covey.papers.pages.markdown import dataset_name, effect_words, place, provenance
from covey.papers.verdict import FAILS, HOLDS, UNDECIDED, UNMEASURED, Claim
from covey.report.draw import standing
from covey.report.draw.layout import Section, rows_table
from covey.report.draw.markup import Html, join, tag
from covey.report.format import counted, duration
from covey.report.page import Page, render

CHIPS = {HOLDS: "good", FAILS: "leak", UNDECIDED: "part", UNMEASURED: "open"}

COMMAND = "The command that makes this table."


def paper_html(page: PaperPage, rows: Sequence[Judged]) -> str:
    """All that is stored of a paper: verdicts, figures, tables."""
    said = verdicts_in_words(tally(rows).get(page.paper, {}))
    here = {exhibit.table for exhibit in page.exhibits}
    sections = [
        Section("broke", "What broke a claim, or bounds it", "", _items(page.about.breaks, here)),
        *(_section(exhibit) for exhibit in page.exhibits),
        Section("claims", "Claims", f"{counted(len(rows), 'judgement')}: {said}.", _claims(rows)),
        Section("differs", "What we read differently", "", _items(page.about.differs, here)),
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
    seeds = any(cell.n > 1 for cell in one.cells)
    whiskers = "Whiskers are 95 % intervals over seeds." if any(map(standing.whiskers, drawn)) else ""
    means = "Mean ± standard deviation; in brackets, over how many seeds." if seeds else ""
    sections = [
        Section("figure", "Figure", whiskers, _pictures(drawn, one.title), bool(drawn)),
        Section("table", "Ours beside the paper's", means, _table(one)),
        Section("claims", "Claims", "What the paper says, and what our figures say to it.", _verdicts(one.claims)),
        Section("setting", "Setting", lead, join(body)),
    ]
    data = f"On {dataset_name(one.dataset)}." if one.dataset else "No data needed."
    quick = [("warn", Html("quick variant: shorter than the paper's"))] if one.quick else []
    return render(
        Page(
            title=f"{one.paper} {one.table} · covey",
            kicker=f"Reproduction · {one.paper} {one.table}",
            headline=one.title,
            lede=[_tally(one), data] if one.claims else [data],
            badges=quick,
            flock=None,
            tiles=[],
            sections=[section for section in sections if section.body],
        )
    )


def _section(exhibit: Exhibit) -> Section:
    parts = []
    for one in exhibit.made:
        title = f"{one.title}{place(one)}"
        parts += [tag("h3", title), _pictures(exhibit.drawn[one.name], title), _table(one), tag("pre", one.command)]
    return Section(exhibit.table, exhibit.label, "", join(parts))


def _pictures(drawn: Sequence[str], title: str) -> Html:
    """Each in a frame of its own: a picture that stands alone brings its own style."""
    shown = []
    for svg in drawn:
        address = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
        shown.append(tag("div", tag("img", src=address, alt=title), class_="scroll drawn"))
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


def _items(sentences: Sequence[str], here: Collection[str] = ()) -> Html:
    """Markdown's sentences as a list. `here`: tables that stand on the page, to which links lead."""
    return tag("ul", *(tag("li", _linked(one, here)) for one in sentences), class_="notes") if sentences else Html("")


LINK = r"\[([^]]*)\]\(([^)]*)\)"  # Markdown's: words, target


def _linked(sentence: str, here: Collection[str]) -> Html:
    """Links into docs/ lead nowhere from here: their words stay in a sentence, and in brackets of their own would say nothing."""
    kept = re.sub(rf"\s*\({LINK}\)", lambda link: link[0] if _anchor(link[2], here) else "", sentence)
    parts, done = list[str](), 0
    for link in re.finditer(LINK, kept):
        anchor = _anchor(link[2], here)
        words = _plain(link[1])
        parts += [_plain(kept[done : link.start()]), tag("a", words, href=f"#{anchor}") if anchor else words]
        done = link.end()
    return join([*parts, _plain(kept[done:])])


def _anchor(target: str, here: Collection[str]) -> str:
    """Of the table on this page that a page of the documentation is about; empty: there is none."""
    table = target.partition("#")[0].removesuffix(".md")
    return table if table in here else ""


def _plain(markdown: str) -> str:
    return markdown.replace("*", "").replace("`", "")


def _tally(one: Reproduction) -> str:
    """'3 hold, 1 undecided of 4 claims.'"""
    counts = Counter(claim.verdict for claim in one.claims)
    return f"{verdicts_in_words(counts)} of {counted(len(one.claims), 'claim')}."


def verdicts_in_words(counts: Mapping[str, int]) -> str:
    """'0 hold, 1 does not hold, 3 undecided': each verdict that there is, and always how many hold."""
    said = {
        HOLDS: "holds" if counts.get(HOLDS) == 1 else "hold",
        FAILS: "does not hold" if counts.get(FAILS) == 1 else "do not hold",
    }
    shown = [verdict for verdict in (HOLDS, FAILS, UNDECIDED, UNMEASURED) if counts.get(verdict) or verdict == HOLDS]
    return ", ".join(f"{counts.get(verdict, 0)} {said.get(verdict, verdict)}" for verdict in shown)
