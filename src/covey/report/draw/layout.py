"""What a page is made of: sections, figures with captions, plain tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covey.report.draw.markup import Html, tag

NOTHING = Html("")


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    lead: str  # one or two sentences: what the reader is about to see, and what to make of it
    body: Html
    listed: bool = True  # among the links at the top


@dataclass(frozen=True)
class Tile:
    """One of the four numbers of the first screen."""

    name: str
    value: str
    words: str
    picture: Html = NOTHING


def figure(title: str, picture: Html, caption: str = "") -> Html:
    head = tag("h3", title)
    foot = tag("figcaption", caption) if caption else Html("")
    return tag("figure", head, picture, foot)


def figures(*parts: Html | None) -> Html:
    present = [part for part in parts if part]
    return tag("div", *present, class_="figures" if len(present) > 1 else "figures lone") if present else Html("")


def rows_table(head: Sequence[object], rows: Sequence[Sequence[object]], kind: str = "") -> Html:
    """A table whose first column names the row. It scrolls by itself on a narrow screen."""
    top = tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head)))
    lines = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    table = tag("table", top, tag("tbody", *lines), class_=kind or None)
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=str(head[0]) or "table")
