"""frontier.json and frontier.html: the pictures of accuracy against leak, one for each attack, and the table behind them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path

from covey import files
from covey.attacks.finding import Finding
from covey.audit.frontier.front import brief, groups, loss, on_front, on_overall_front, spoken, verdict_words
from covey.audit.frontier.frontier import Frontier, Gauge, Point
from covey.audit.frontier.text import accuracy_words, claimed_words, markdown, title
from covey.audit.matrix import LEAKING
from covey.report.draw.grids import legend
from covey.report.draw.layout import Section, Tile, figure, figures, rows_table
from covey.report.draw.markup import Html, join, tag
from covey.report.draw.scatter import Dot, Trail, scatter
from covey.report.draw.svg import hue
from covey.report.format import counted, percent, plain, sentence_case, size
from covey.report.page import Page, render
from covey.results.provenance import versions
from covey.statistics import Mean

LEAD = (
    "Each dot is a setting, each line a protection from weak to strong; the best corner is the upper left. Crosses: 95 % "
    "intervals, of the accuracy over seeds, of the score within and between them. Filled: on the front, i.e. no other setting is "
    "better in accuracy, leak and bytes at once. Upright line: what guessing reaches without the observation. A score near it "
    "was not shown to leak by this attack, which is no proof."
)


def write_frontier(frontier: Frontier, out: str | Path, command: str = "") -> tuple[Path, Path]:
    page = Path(out) / "frontier.html"
    numbers = _write_numbers(frontier, page.parent, command)
    files.write_atomically(page, render(frontier_page(frontier, command)).encode("utf-8", "replace"))
    return numbers, page


def _write_numbers(frontier: Frontier, folder: Path, command: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    content = {"schema": 1, "command": command, "versions": versions(), "frontier": frontier.json()}
    files.write_json(folder / "frontier.json", content)
    return folder / "frontier.json"


def store_frontier(frontier: Frontier, docs: str | Path, name: str, command: str) -> Path:
    """Keeps a frontier among the documented results: Markdown with the table, the pictures, the numbers. The page follows from
    these, and the site makes it from there (`site/hooks.py`).
    """
    folder = Path(docs) / "results" / name
    files.write_atomically(folder / "README.md", markdown(frontier, command).encode())
    files.write_atomically(folder / "frontier.svg", alone(frontier).encode())
    return _write_numbers(frontier, folder, command)


def frontier_page(frontier: Frontier, command: str = "") -> Page:
    headline = f"How much protection can {title(frontier)} afford?"
    heading = frontier.heading
    facts = [
        f"{counted(heading['clients'], 'client')}, {counted(heading['rounds'], 'round')}",
        counted(frontier.seeds, "seed") + " of every setting",
    ]
    return Page(
        title=f"{headline} · covey",
        kicker="Frontier",
        headline=headline,
        lede=verdict_words(frontier),
        badges=[("", tag("span", words)) for words in facts],
        flock=None,
        tiles=_tiles(frontier),
        sections=[_pictures(frontier), _table(frontier), _origin(frontier, command)],
    )


def _tiles(frontier: Frontier) -> list[Tile]:
    start = next((point for point in frontier.points if not point.problem), None)
    measured = [point for point in frontier.points if not point.problem]
    tiles = [
        Tile("Settings", str(len(measured)), f"of {counted(len(frontier.lines), 'protection')}"),
        Tile("Attacks", str(len(frontier.gauges)), f"learn something of {start.words if start else 'nothing'}"),
        Tile("On the front", str(sum(on_overall_front(frontier))), "settings that no other beats in everything"),
    ]
    if start is not None:
        tiles.append(Tile("Accuracy", percent(start.accuracy.value), f"of clients, with {start.words}"))
    return tiles


def _pictures(frontier: Frontier) -> Section:
    style = tag("style", Html(resources("covey.audit").joinpath("audit.css").read_text("utf-8")))
    drawn = figures(*(_picture(frontier, group) for group in groups(frontier)))
    return Section("frontier", "Accuracy against leak", LEAD, join([style, legend(_keys(frontier)), drawn]))


def _picture(frontier: Frontier, group: Sequence[Gauge]) -> Html | None:
    drawn = drawing(frontier, group)
    if drawn is None:
        return None
    gauge = group[0]
    score = next(score for point in frontier.points if (score := point.leaks.get(gauge.attack)) is not None)
    listed = f" The same by {', '.join(map(spoken, group[1:]))}." if group[1:] else ""
    means = f" {sentence_case(score.means)}." if score.means else ""
    words = f"{sentence_case(score.metric)}, by the {gauge.column}.{means}{listed}"
    return figure(f"{sentence_case(gauge.row)}: {brief(group)}", drawn, words)


def drawing(frontier: Frontier, group: Sequence[Gauge]) -> Html | None:
    """The chart of attacks that score alike; None where no setting has a score."""
    gauge = group[0]
    front = dict(zip((point.words for point in frontier.points), on_front(frontier, gauge)))
    largest = max((point.cost or 0.0 for point in frontier.points), default=0.0)
    trails = [
        Trail(name or "no defence", "ink" if not name else hue(list(frontier.lines).index(name)), dots)
        for name in ("", *frontier.lines)
        if (dots := [d for p in frontier.of_line(name) if (d := _dot(p, gauge, front[p.words], largest)) is not None])
    ]
    if not trails:
        return None
    scores = [score for point in frontier.points if (score := point.leaks.get(gauge.attack)) is not None]
    bars = [score.bar for score in scores if score.bar is not None]
    # Where guessing differs between settings (a run that collapsed into one cluster is easily guessed), what it reaches everywhere:
    # a line at the best of them would make other settings look safe that are not.
    guess = ("guess", min(bars) if scores[0].scale.upwards else max(bars)) if bars else None
    return scatter(
        f"{gauge.row} by {', '.join(map(spoken, group))}",
        f"Accuracy against {scores[0].metric}, by the {gauge.column}, setting by setting.",
        trails,
        "leaks more →" if scores[0].scale.upwards else "← leaks more",
        "accuracy",
        plain,
        percent,
        guess,
    )


ALONE = """
svg { overflow: visible; }
text { font: 12px system-ui, sans-serif; fill: #5d6678; } .title { font-weight: 600; fill: #1d2433; font-size: 13px; }
.end { text-anchor: end; } .mid { text-anchor: middle; } .grid { stroke: #e3e6ec; } .ground { fill: #ffffff; }
.line { fill: none; stroke: var(--k); stroke-width: 1.2; opacity: .8; vector-effect: non-scaling-stroke; }
.dot { fill: var(--k); stroke: #ffffff; stroke-width: 2; } .ring { fill: #ffffff; stroke: var(--k); stroke-width: 1.6; }
.spread { stroke: var(--k); opacity: .55; } .chance { stroke: #1d2433; stroke-width: 2; } .swatch { fill: var(--k); }
.ink { --k: #1d2433; } .c0 { --k: #2d48c5; } .c1 { --k: #fe8b0f; } .c2 { --k: #39c7ab; } .c3 { --k: #681d45; }
.c4 { --k: #a27afc; } .c5 { --k: #5f540f; } .c6 { --k: #1e88ab; } .c7 { --k: #dd3c69; } .other { --k: #a8a49c; }
@media (prefers-color-scheme: dark) {
text { fill: #a3acbd; } .title { fill: #e8ebf2; } .grid { stroke: #343b4a; } .ground { fill: #14181f; } .chance { stroke: #e8ebf2; }
.dot { stroke: #14181f; } .ring { fill: #14181f; } .ink { --k: #e8ebf2; } .c0 { --k: #7d93ff; } .c3 { --k: #d36a9e; }
.c5 { --k: #c2b04a; }
}
"""
ACROSS, WIDE, TALL, LEFT, TOP = 3, 270, 230, 62, 66  # pictures in a row; pixels of one, and of what is around it
KEY = 20  # pixels of a line of the legend


def alone(frontier: Frontier) -> str:
    """All pictures in one file that needs nothing else: for a page of the documentation, a slide, a paper."""
    drawn = [(group, picture) for group in groups(frontier) if (picture := drawing(frontier, group)) is not None]
    width, row = ACROSS * (WIDE + LEFT + 24), TALL + TOP + 44
    parts: list[Html] = []
    place, line = 16.0, 0
    for colour, words in _keys(frontier):
        wide = 40 + 6.4 * len(words)
        if place > 16 and place + wide > width:
            place, line = 16.0, line + 1
        parts.append(tag("rect", x=place, y=14 + KEY * line, width=10, height=10, rx=2, class_=f"swatch {colour}"))
        parts.append(tag("text", words, x=place + 15, y=23 + KEY * line))
        place += wide
    head = 34 + KEY * line
    for n, (group, picture) in enumerate(drawn):
        x, y = (n % ACROSS) * (WIDE + LEFT + 24) + LEFT, head + (n // ACROSS) * row + TOP
        parts.append(tag("text", f"{sentence_case(group[0].row)}: {brief(group)}", x=x - 38, y=y - 34, class_="title"))
        parts.append(tag("svg", picture, x=x, y=y, width=WIDE, height=TALL, overflow="visible"))
    height = head + -(-len(drawn) // ACROSS) * row
    ground = tag("rect", width=width, height=height, class_="ground")
    said = tag("title", f"Accuracy against leak: {title(frontier)}")
    size_ = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height, "role": "img"}
    return tag("svg", said, tag("style", Html(ALONE)), ground, *parts, xmlns="http://www.w3.org/2000/svg", **size_)


def _keys(frontier: Frontier) -> list[tuple[str, str]]:
    keys = [("ink", "no defence")] if frontier.of_line("") else []
    return keys + [(hue(n), f"{line.label}: {line.words}") for n, line in enumerate(frontier.lines.values())]


def _dot(point: Point, gauge: Gauge, on_the_front: bool, largest: float) -> Dot | None:
    score = point.leaks.get(gauge.attack)
    if point.problem or score is None:
        return None
    mean = point.accuracy
    up = (max(0.0, mean.low), min(1.0, mean.high)) if mean.n > 1 else None
    says = f"{point.words}: accuracy {accuracy_words(mean)}; score {_spread(score)}"
    area = (point.cost or 0.0) / largest if largest else 1.0
    return Dot(score.value, mean.value, score.interval, up, on_the_front, says, 0.6 + 0.4 * area)


def _spread(score: Finding) -> str:
    interval = "" if score.interval is None else " ({:.2f} to {:.2f})".format(*score.interval)
    return f"{score.value:.2f}{interval}"


def _table(frontier: Frontier) -> Section:
    shown = groups(frontier)
    head = ["Setting", "Accuracy", "Gives up", "Bytes", "ε claimed", *(_column(group) for group in shown), "Front"]
    rows: list[list[object]] = []
    for point, star in zip(frontier.points, on_overall_front(frontier)):
        if point.problem:
            rows.append([point.words, f"refused: {point.problem}", *[""] * (len(head) - 2)])
            continue
        cells = [_cell(point.leaks.get(group[0].attack)) for group in shown]
        cost = "–" if point.cost is None else size(point.cost)
        facts = [accuracy_words(point.accuracy), _loss(loss(frontier, point)), cost, claimed_words(point)]
        rows.append([point.words, *facts, *cells, "●" if star else ""])
    lead = (
        "Accuracy of clients on their own distribution; what it gives up is paired by seed. Bytes up and down, per client and "
        "round. ε is the ledger's, for the whole run, at most: large ones promise nothing. The front is that of accuracy, bytes "
        "and the worst remaining leak of all attacks that some setting lowers; settings whose intervals overlap may change places. "
        "Bold: leaks."
    )
    return Section("settings", "Settings", lead, rows_table(head, rows, "settings"))


def _column(group: Sequence[Gauge]) -> str:
    return f"{sentence_case(group[0].row)}, {brief(group)}"


def _cell(score: Finding | None) -> object:
    if score is None:
        return "not measured"
    half = "" if score.interval is None else f" ± {(score.interval[1] - score.interval[0]) / 2:.2f}"
    words = f"{score.value:.2f}{half}"
    return tag("b", words) if score.verdict in LEAKING else words


def _loss(cost: Mean | None) -> str:
    if cost is None:
        return "–"
    half = f" ± {100 * cost.half:.1f}" if cost.n > 1 else ""
    return f"{100 * cost.value:.1f}{half}"


def _origin(frontier: Frontier, command: str) -> Section:
    silent = ", ".join(name.replace("_", " ") for name in frontier.silent)
    lead = "Finished runs are read back and interrupted ones go on, so the same command again costs nothing." + (
        f" Not swept, since they showed nothing without protection: {silent}." if silent else ""
    )
    return Section("command", "How it was made", lead, tag("pre", command or "covey.audit.frontier(experiment, out)"))
