"""Writes the pages: `report.html` of one run, and runs side by side. One file each, nothing fetched, no script but our own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from covey.errors import CoveyError
from covey.files import write_atomically
from covey.report import assets, comparison
from covey.report.draw.layout import Section, Tile
from covey.report.draw.markup import Html
from covey.report.sections import clusters, measurements, privacy, quality, setup, summary, training
from covey.results.contents import Run
from covey.results.folder import RunFolder

# Names and sentences of a run folder may be anybody's: no page carries what a terminal would obey, and HTML has no such letters.
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Page:
    """All that the template shows, top to bottom."""

    title: str
    kicker: str
    headline: str
    lede: list[str]
    badges: list[tuple[str, Html]]
    flock: tuple[Html, str] | None
    tiles: list[Tile]
    sections: list[Section]


def write_report(folder: Path) -> Path:
    """Writes `report.html` into a run folder from the files in it and returns its path. The file appears whole or not at all."""
    run = RunFolder(Path(folder)).read()
    return _write(Path(folder) / "report.html", render(report_page(run)))


def write_comparison(folders: Sequence[Path], out: Path) -> Path:
    """Writes one page with several runs side by side to `out` (a file, or a folder to put `comparison.html` in)."""
    if len(folders) < 2:
        raise CoveyError(
            f"A comparison needs at least two run folders, found {len(folders)}; name more, or open report.html."
        )
    runs = comparison.named([RunFolder(Path(folder)).read() for folder in folders])
    target = Path(out) / "comparison.html" if Path(out).is_dir() else Path(out)
    return _write(target, render(comparison_page(runs)))


def report_page(run: Run) -> Page:
    built = (
        training.accuracy(run),
        quality.quality(run),
        clusters.clustering(run),
        privacy.attacks(run),
        privacy.privacy(run),
        measurements.algorithm(run),
        training.cost(run),
        setup.data(run),
        setup.setup(run),
    )
    headline = summary.headline(run)
    return Page(
        title=f"{headline} · covey",
        kicker=f"Run report · {run.name}",
        headline=headline,
        lede=summary.lede(run),
        badges=[(kind, summary.words_with_code(words)) for kind, words in summary.badges(run)],
        flock=summary.flock(run),
        tiles=summary.tiles(run),
        sections=[section for section in built if section],
    )


def comparison_page(runs: Sequence[Run]) -> Page:
    headline = comparison.headline(runs)
    return Page(
        title=f"{headline} · covey",
        kicker="Comparison",
        headline=headline,
        lede=comparison.lede(runs),
        badges=[(kind, summary.words_with_code(words)) for kind, words in comparison.badges(runs)],
        flock=None,
        tiles=[],
        sections=comparison.sections(runs),
    )


def render(page: Page) -> str:
    """The page as HTML. The content policy allows our script by its hash alone, so that nothing injected could ever run."""
    text = files("covey.report.assets").joinpath("page.html").read_text("utf-8")
    dressed = {"style": assets.style(), "script": assets.script(), "mark": assets.MARK, "icon": assets.ICON}
    written: str = assets.template(text).render(
        page=page,
        script_digest=assets.digest(dressed["script"]),
        **{name: Html(part) for name, part in dressed.items()},
    )
    return CONTROLS.sub("�", written)


def _write(path: Path, page: str) -> Path:
    write_atomically(path, page.encode("utf-8", errors="replace"))
    return path
