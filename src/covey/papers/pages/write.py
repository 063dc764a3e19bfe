"""Writes the pages of the papers into `docs/`, from nothing but the stored JSON."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from covey.errors import CoveyError, CoveyWarning
from covey.files import write_atomically, write_json
from covey.papers import PAPERS
from covey.papers.claims import Judged, counted_once, tally
from covey.papers.claims import rows as claims_of
from covey.papers.harness import Reproduction, rejudged, stored
from covey.papers.pages import markdown
from covey.papers.pages.content import PaperPage, about_of, paper_page
from covey.papers.pages.html import paper_html
from covey.papers.present import UNREADABLE
from covey.papers.verdict import FAILS, HOLDS, UNDECIDED, UNMEASURED
from covey.report.draw import standing

KINDS = ((HOLDS, "good"), (UNDECIDED, "warn"), (FAILS, "bad"), (UNMEASURED, "other"))


def write_pages(docs: Path) -> Path:
    """`results.md`, and a folder of pages and figures for each paper, after claims were judged by the rule as it is now.

    Pages that nothing stands behind any more are removed.
    """
    reproductions = [rejudged(one) for one in stored(docs)]
    for one in reproductions:
        write_json(docs / "results" / f"{one.name}.json", one.json())
    rows = [row for one in reproductions for row in claims_of(one)]
    if not reproductions:
        raise CoveyError(
            f"{docs / 'results'} holds no results: store one with `covey reproduce PAPER --table T --docs`"
        )
    papers = dict.fromkeys([*PAPERS, *(one.paper for one in reproductions)])
    pages = [page for page in (paper_page(paper, reproductions) for paper in papers) if page.exhibits]
    once = counted_once(rows)
    files = {"results.md": markdown.glance(pages, once, "papers/verdicts.svg")}
    files["papers/verdicts.svg"] = verdicts_picture([row for row in once if row.whose == "paper"], pages)
    for page in pages:
        folder = f"papers/{page.paper}"
        files[f"{folder}/README.md"] = markdown.paper(page, [row for row in rows if row.paper == page.paper])
        for exhibit in page.exhibits:
            files[f"{folder}/{exhibit.table}.md"] = markdown.table_page(page, exhibit)
            for one in exhibit.made:
                names = markdown.figure_names(exhibit, one)
                files |= {f"{folder}/figures/{name}": svg for name, svg in zip(names, exhibit.drawn[one.name])}
        if page.about.beside:
            files |= page.about.beside([one for exhibit in page.exhibits for one in exhibit.made], docs).files
    for path in [*(docs / "papers").rglob("*.md"), *(docs / "papers").rglob("*.svg")]:
        if path.relative_to(docs).as_posix() not in files:
            path.unlink()
    for name, text in files.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(docs / name, text.rstrip("\n").encode() + b"\n")
    return docs / "results.md"


def verdicts_picture(judgements: Sequence[Judged], pages: Sequence[PaperPage]) -> str:
    counts = tally(judgements)
    rows = [(p.about.label, [counts[p.paper][kind] for kind, _ in KINDS]) for p in pages if p.paper in counts]
    return standing.shares("Verdicts by paper", rows, KINDS)


def write_paper(paper: str, folder: Path, docs: Path) -> Path | None:
    """`PAPER.html` in `folder`: what the documentation holds of a paper, and what was made in that folder, which comes first.

    None where neither has anything. A table that cannot be read is named: a page without it looks as if it had never been made.
    """
    made, damaged = _made_in(folder, paper)
    for what in damaged:
        warnings.warn(f"{what} and left out: make its table again, or remove it", CoveyWarning, stacklevel=1)
    known = {one.name: one for one in [*stored(docs), *made]}
    page = paper_page(paper, [rejudged(one) for one in known.values()])
    if not page.exhibits:
        return None
    judgements = [row for exhibit in page.exhibits for one in exhibit.made for row in claims_of(one)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{paper}.html"
    write_atomically(path, paper_html(page, judgements).encode())
    return path


def beside(paper: str, folder: Path, docs: Path) -> list[str]:
    """What all tables of a paper together say, for a terminal: those of the documentation, and those made in `folder`."""
    about = about_of(paper)
    made, _ = _made_in(folder, paper)
    known = {one.name: one for one in [*stored(docs), *made] if one.paper == paper}
    return list(about.beside([rejudged(one) for one in known.values()], docs).lines) if about.beside and known else []


def _made_in(folder: Path, paper: str) -> tuple[list[Reproduction], list[str]]:
    """(tables that were made in this folder, in words those that cannot be read, which cost no other)."""
    made, damaged = list[Reproduction](), list[str]()
    for path in sorted(folder.glob(f"{paper}-*.json")):
        try:
            made.append(Reproduction.read(path))
        except UNREADABLE as e:
            damaged.append(f"{path} is damaged ({type(e).__name__}: {e})")
    return made, damaged
