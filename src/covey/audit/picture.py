"""The matrix of several audits as one picture that stands alone: for a page of the documentation, a slide, a paper.

A line per combination, a column per thing that could leak; a cell shows the worst that anyone learns, its score, and who learns it.
Colours follow the reader's light or dark screen; verdicts differ in words and marks, not in colour alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from covey.attacks.finding import BROKEN, LEAKS, NOTHING_SEEN
from covey.audit.matrix import GIVEN, HARM, SUSPECTED, Audit, Cell, rows_of
from covey.audit.text import LETTERS
from covey.leaks import DEEDS
from covey.report.draw.markup import Html, tag
from covey.report.format import counted, percent, sentence_case
from covey.report.labels import label, protection_label

NAME, SCORE, CELL, LINE, HEAD = 190, 62, 120, 34, 64  # pixels
MARKS = {BROKEN: "▲", LEAKS: "▲", GIVEN: "◆", SUSPECTED: "△", NOTHING_SEEN: "○"}
BRIEF = {GIVEN: "by design", SUSPECTED: "suspected", NOTHING_SEEN: "not shown"}
KINDS = {BROKEN: "broken", LEAKS: "leaks", GIVEN: "given", SUSPECTED: "suspected", NOTHING_SEEN: "unseen"}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1d2433; } .head { font-weight: 600; } .soft { fill: #5d6678; font-size: 11px; }
.box { stroke: #d5d9e2; fill: #f6f7f9; } .broken { fill: #f3b0a6; } .leaks { fill: #f8d3cb; } .given { fill: #f6e3b4; }
.suspected { fill: #fbeae6; } .unseen { fill: #ffffff; } .ground { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
text { fill: #e8ebf2; } .soft { fill: #a3acbd; } .box { stroke: #343b4a; fill: #1c212b; } .broken { fill: #7f2c22; }
.leaks { fill: #55261f; } .given { fill: #54431a; } .suspected { fill: #352422; } .unseen { fill: #14181f; }
.ground { fill: #14181f; }
}
"""
FOOTNOTE = (
    "▲ broken, leaks or harms, ◆ given by design, △ leak suspected. ○ not shown by the attacks tried from there, which is no "
    "proof. In cells without a mark nobody could look, or saw too little to tell: no sign of safety."
)
LETTER = 5.7  # pixels of a small letter, about
LONGEST = 20  # letters that a cell has room for; more are set closer


def picture(audits: Sequence[Audit]) -> str:
    """SVG, as text. Refused combinations are left out; the page beside it says why."""
    shown = [audit for audit in audits if not audit.problem]
    rows = [row for row in rows_of(shown) if any(audit.says(row) for audit in shown)]
    letters = "Who: " + ", ".join(f"{short} {name}" for name, short in LETTERS.items()) + "."
    width = NAME + SCORE + CELL * len(rows) + 12
    footer = [line for words in (FOOTNOTE, letters) for line in textwrap.wrap(words, int(width / LETTER))]
    height = HEAD + LINE * len(shown) + 20 + 15 * len(footer)
    parts = [tag("style", Html(STYLE)), tag("rect", width=width, height=height, class_="ground")]
    parts.append(tag("text", "accuracy", x=NAME + SCORE - 14, y=HEAD - 12, class_="head", text_anchor="end"))
    for n, row in enumerate(rows):
        parts += _heading(row, NAME + SCORE + CELL * n + 4)
    for n, audit in enumerate(shown):
        parts += _line(audit, rows, HEAD + LINE * n)
    for n, line in enumerate(footer):
        parts.append(tag("text", line, x=8, y=HEAD + LINE * len(shown) + 20 + 15 * n, class_="soft"))
    said = f"What leaks in {counted(len(shown), 'combination')} of algorithm and protection"
    return tag(
        "svg",
        tag("title", said),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
    )


def _heading(row: str, x: float) -> list[Html]:
    """In two lines where it is long."""
    words = sentence_case(row).split()
    half = (len(words) + 1) // 2 if len(row) > 14 else len(words)
    texts = [" ".join(words[:half]), " ".join(words[half:])]
    places = [HEAD - 28, HEAD - 12] if texts[1] else [HEAD - 12]
    return [tag("text", text, x=x, y=y, class_="head") for text, y in zip(filter(None, texts), places)]


def _line(audit: Audit, rows: Sequence[str], top: float) -> list[Html]:
    accuracy = "–" if audit.accuracy is None else percent(audit.accuracy)
    shield = protection_label(audit.defence, audit.encryption) or "undefended"
    parts = [
        tag("text", label("algorithm", audit.algorithm), x=8, y=top + 15, class_="head"),
        tag("text", shield, x=8, y=top + 28, class_="soft"),
        tag("text", accuracy, x=NAME + SCORE - 14, y=top + 20, text_anchor="end"),
    ]
    for n, row in enumerate(rows):
        parts += _cell(audit, audit.worst(row), NAME + SCORE + CELL * n, top)
    return parts


def _cell(audit: Audit, cell: Cell, x: float, top: float) -> list[Html]:
    kind = KINDS.get(cell.verdict, "")
    box = tag("rect", x=x, y=top + 1, width=CELL - 3, height=LINE - 3, rx=4, class_=f"box {kind}".rstrip())
    if not kind:
        return [box, tag("text", cell.verdict, x=x + 7, y=top + 20, class_="soft")]
    score = f" {cell.tried[0].value:.2f}" if cell.tried else ""
    words = f"{MARKS[cell.verdict]} {BRIEF.get(cell.verdict) or _said(cell)}"
    letters = _letters(audit.learners(cell.row, cell.verdict))
    if cell.open_end is not None:
        letters = f"{cell.open_end:.2f} not excluded"
    for verdict, who in audit.leaks(cell.row):
        if verdict != cell.verdict:
            letters += (
                f"; {'given' if verdict == GIVEN else 'less'} {_letters(who)}"  # what is handed over is all there is
            )
    wide = {"textLength": CELL - 14, "lengthAdjust": "spacingAndGlyphs"} if len(letters) > LONGEST else {}
    first = tag("text", f"{words}{score}", x=x + 7, y=top + 15)
    return [box, first, tag("text", letters, x=x + 7, y=top + 28, class_="soft", **wide)]


def _said(cell: Cell) -> str:
    """The verdict in one word; of a deed, that it harms."""
    return HARM.get(cell.verdict, cell.verdict) if cell.row in DEEDS else cell.verdict


def _letters(columns: Sequence[str]) -> str:
    return ", ".join(LETTERS[column] for column in columns)
