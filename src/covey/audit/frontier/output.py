"""frontier.json and frontier.html: the pictures of accuracy against leak, one for each attack, and the table behind them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path

from covey import files
from covey.attacks.finding import Finding
from covey.audit.frontier.front import groups, loss, on_front, on_overall_front, spoken, verdict_words
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
from covey.rounds.result import versions
from covey.statistics import Mean

LEAD = (
    "Each dot is a setting, each line a protection from weak to strong; the best corner is the upper left. Crosses: 95 % "
    "intervals, of the accuracy over seeds, of the score within and between them. Filled: on the front, i.e. no other setting is "
    "better in accuracy, leak and bytes at once. Upright line: what guessing reaches without the observation. A score near it "
    "was not shown to leak by this attack, which is no proof."
)


def write_frontier(frontier: Frontier, out: str | Path, command: str = "") -> tuple[Path, Path]:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    content = {"schema": 1, "command": command, "versions": versions(), "frontier": frontier.json()}
    files.write_json(folder / "frontier.json", content)
    page = render(frontier_page(frontier, command)).encode("utf-8", "replace")
    files.write_atomically(folder / "frontier.html", page)
    return folder / "frontier.json", folder / "frontier.html"


def store_frontier(frontier: Frontier, docs: str | Path, name: str, command: str) -> tuple[Path, Path]:
    """Keeps a frontier among the documented results: a page of Markdown with the table, the numbers and the page with pictures."""
    folder = Path(docs) / "results" / name
    files.write_atomically(folder / "README.md", markdown(frontier, command).encode())
    return write_frontier(frontier, folder, command)


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
        lede=[verdict_words(frontier)],
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
    keys = [("ink", "no defence")] if frontier.of_line("") else []
    keys += [(hue(n), f"{line.label}: {line.words}") for n, line in enumerate(frontier.lines.values())]
    style = tag("style", Html(resources("covey.audit").joinpath("audit.css").read_text("utf-8")))
    drawn = figures(*(_picture(frontier, group) for group in groups(frontier)))
    return Section("frontier", "Accuracy against leak", LEAD, join([style, legend(keys), drawn]))


def _picture(frontier: Frontier, group: Sequence[Gauge]) -> Html | None:
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
    guess = ("guess", max(bars) if scores[0].scale.upwards else min(bars)) if bars else None
    names = ", ".join(map(spoken, group))
    words = f"{scores[0].metric}, by the {gauge.column}"
    more = "leaks more →" if scores[0].scale.upwards else "← leaks more"
    drawn = scatter(
        f"{gauge.row} by {names}",
        f"Accuracy against {words}, setting by setting.",
        trails,
        more,
        "accuracy",
        plain,
        percent,
        guess,
    )
    caption = f"{sentence_case(words)}. {sentence_case(scores[0].means)}." if scores[0].means else f"{words}."
    return figure(f"{sentence_case(gauge.row)}: {names}", drawn, caption)


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
    return f"{sentence_case(group[0].row)}, {', '.join(map(spoken, group))}"


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
