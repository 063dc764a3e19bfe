"""A reproduction as text, as JSON and as a small page; how the documentation shows all of them is `pages/`."""

from __future__ import annotations

from pathlib import Path

from covey.errors import CoveyError
from covey.files import write_atomically, write_json
from covey.papers.harness import Reproduction
from covey.papers.pages.content import drawn
from covey.papers.pages.grid import grid
from covey.papers.pages.html import table_html
from covey.report.text_table import text_table
from covey.results.provenance import EXACT, UNKNOWN, in_words

UNREADABLE = (
    AttributeError,
    CoveyError,
    KeyError,
    TypeError,
    ValueError,
)  # what reading a file raises that is no table


def write(reproduction: Reproduction, folder: Path) -> list[Path]:
    """JSON, text and page of one reproduction; returns their paths."""
    paths = [folder / f"{reproduction.name}.{kind}" for kind in ("json", "txt", "html")]
    write_json(paths[0], reproduction.json())
    write_atomically(paths[1], ("\n".join(lines(reproduction)) + "\n").encode())
    write_atomically(paths[2], page(reproduction).encode())
    return paths


def page(reproduction: Reproduction) -> str:
    return table_html(reproduction, drawn(reproduction))


def lines(reproduction: Reproduction) -> list[str]:
    """The table for a terminal."""
    head, rows = grid(reproduction)
    out = [f"{reproduction.paper} {reproduction.table}: {reproduction.title}", _where(reproduction), ""]
    out += text_table([head, *rows])
    out += ["", *(f"{c.verdict.upper():<14} {c.text}\n{'':<14} {c.why}" for c in reproduction.claims)]
    out += [f"note: {note}" for note in reproduction.notes]
    return [*out, "", in_words(reproduction.runs), f"{reproduction.seconds:.0f} s; {reproduction.command}"]


def store(reproduction: Reproduction, docs: Path) -> Path:
    """Keeps a reproduction among the documented results."""
    path = docs / "results" / f"{reproduction.name}.json"
    write_json(path, reproduction.json())
    return path


def less_than_stored(reproduction: Reproduction, docs: Path) -> str:
    """In words, why it should not take the place of what is stored: that has rows which it has not, or is exact where this is
    rounded; else nothing.
    """
    path = docs / "results" / f"{reproduction.name}.json"
    if not path.is_file():
        return ""
    remedy = "remove that file to store it all the same"
    try:
        stored = Reproduction.read(path)
    except UNREADABLE as e:
        return f"{path} is damaged ({type(e).__name__}: {e}): {remedy}"
    lost = [row for row in stored.sheet().rows if row not in set(reproduction.sheet().rows)]
    if lost:
        named = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        return f"{path} has rows that this table lacks ({named}): finish its runs, or {remedy}"
    rounded = set(reproduction.runs.get("arithmetic", ())) - {EXACT, UNKNOWN}
    if rounded and not set(stored.runs.get("arithmetic", ())) - {EXACT, UNKNOWN}:
        return f"{path} was computed in {EXACT}, this table in {', '.join(sorted(rounded))}: {remedy}"
    return ""


def _where(reproduction: Reproduction) -> str:
    place = f"On {reproduction.dataset}." if reproduction.dataset else "No data needed."
    return place + (" Quick variant." if reproduction.quick else "")
