"""What stands on a paper's page, before it is Markdown or HTML: its tables with their figures, in the order of the paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from covey.papers import PAPERS
from covey.papers.harness import Reproduction
from covey.papers.pages.shapes import About, pictures
from covey.report.draw.maps import Map, maps


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper on all datasets that it was made on."""

    table: str
    made: Sequence[Reproduction]
    drawn: dict[str, list[str]]  # name of a reproduction -> its pictures, as SVG

    @property
    def label(self) -> str:
        return label(self.made[0].paper, self.table)


@dataclass(frozen=True)
class PaperPage:
    paper: str
    about: About
    exhibits: Sequence[Exhibit]


def paper_page(paper: str, reproductions: Sequence[Reproduction]) -> PaperPage:
    """Of what is stored of this paper."""
    about = about_of(paper)
    own = [one for one in reproductions if one.paper == paper]
    exhibits = []
    for table in sorted({one.table for one in own}, key=order):
        made = sorted((one for one in own if one.table == table), key=lambda one: one.name)
        exhibits.append(Exhibit(table, made, {one.name: drawn(one) for one in made}))
    return PaperPage(paper, about, exhibits)


def drawn(one: Reproduction) -> list[str]:
    """Its figures, as SVG: those that its page declares, dots where it declares none."""
    shown = pictures(one, about_of(one.paper).drawings.get(one.table, ())) if one.cells else []
    return [maps(one.title, [Map(**given) for given in one.maps]), *shown] if one.maps else shown


def about_of(paper: str) -> About:
    """A paper of somebody else's has its name for a label, and nothing else to say."""
    if paper not in PAPERS:
        return About(paper, "", "", (), ())
    known: About = import_module(f"covey.papers.pages.about.{paper}").ABOUT
    return known


def label(paper: str, table: str) -> str:
    """'table3' -> 'Table 3', 'fig2' -> 'Fig. 2'; a table of our own has the name that its page gives it, or its own."""
    given = about_of(paper).labels.get(table)
    if given:
        return given
    numbered = re.fullmatch(r"(table|fig)(\d+)", table)
    if numbered:
        return f"{'Table' if numbered[1] == 'table' else 'Fig.'} {numbered[2]}"
    words = table.replace("_", " ")
    return words[:1].upper() + words[1:]


def order(table: str) -> tuple[int, int, str]:
    """Tables first, then figures, then what is our own."""
    numbered = re.fullmatch(r"(table|fig)(\d+)", table)
    return (0 if numbered[1] == "table" else 1, int(numbered[2]), "") if numbered else (2, 0, table)
