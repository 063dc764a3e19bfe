"""Writes the pages of the papers into `docs/`, from nothing but the stored JSON."""

from __future__ import annotations

from pathlib import Path

from covey.errors import CoveyError
from covey.files import write_atomically
from covey.papers import PAPERS
from covey.papers.claims import judged, tally
from covey.papers.harness import stored
from covey.papers.pages import markdown
from covey.papers.pages.content import PaperPage, paper_page
from covey.papers.verdict import FAILS, HOLDS, UNDECIDED, UNMEASURED
from covey.report.draw import standing

KINDS = ((HOLDS, "good"), (UNDECIDED, "warn"), (FAILS, "bad"), (UNMEASURED, "other"))


def write_pages(docs: Path) -> Path:
    """`results.md`, and a folder of pages and figures for each paper; pages that nothing stands behind any more are removed."""
    reproductions, rows = stored(docs), judged(docs)
    if not reproductions:
        raise CoveyError(
            f"{docs / 'results'} holds no results: store one with `covey reproduce PAPER --table T --docs`"
        )
    pages = [page for page in (paper_page(paper, reproductions) for paper in PAPERS) if page.sheets]
    files = {"results.md": "", "papers/verdicts.svg": verdicts_picture(docs, pages)}
    files["results.md"] = markdown.glance(pages, rows, "papers/verdicts.svg")
    for page in pages:
        folder = f"papers/{page.paper}"
        files[f"{folder}/README.md"] = markdown.paper(page, [row for row in rows if row.paper == page.paper])
        for sheet in page.sheets:
            files[f"{folder}/{sheet.table}.md"] = markdown.sheet(page, sheet)
            for one in sheet.made:
                names = markdown.figure_names(sheet, one)
                files |= {f"{folder}/figures/{name}": svg for name, svg in zip(names, sheet.drawn[one.name])}
    for path in [*(docs / "papers").rglob("*.md"), *(docs / "papers").rglob("*.svg")]:
        if path.relative_to(docs).as_posix() not in files:
            path.unlink()
    for name, text in files.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(docs / name, text.rstrip("\n").encode() + b"\n")
    return docs / "results.md"


def verdicts_picture(docs: Path, pages: list[PaperPage]) -> str:
    counts = tally(judged(docs))
    rows = [(page.about.label, [counts.get(page.paper, {}).get(kind, 0) for kind, _ in KINDS]) for page in pages]
    return standing.shares("Verdicts by paper", rows, KINDS)
