"""A frontier on the terminal: every setting with its accuracy, its cost and what each attack still learns."""

from __future__ import annotations

import textwrap

from covey.audit.frontier.front import groups, on_overall_front, spoken, verdict_words
from covey.audit.frontier.frontier import Frontier, Gauge, Point
from covey.audit.text import WIDTH
from covey.report.format import counted, percent, plain, size
from covey.report.labels import label
from covey.report.text_table import text_table
from covey.statistics import Mean

LEGEND = (
    "Each score with half the width of its 95 % interval; [guess]: what chance and controls reach. * : on the front, i.e. no "
    "other setting is better in accuracy, bytes and the worst remaining leak at once; settings whose intervals overlap may change "
    "places. ε is what the ledger claims for the whole run, at most."
)


def title(frontier: Frontier) -> str:
    where = label("dataset", frontier.heading["dataset"])
    return f"{label('algorithm', frontier.heading['algorithm'])} on {where}"


def facts(frontier: Frontier) -> str:
    clients, rounds = frontier.heading["clients"], frontier.heading["rounds"]
    return f"{title(frontier)}: {clients} clients, {counted(rounds, 'round')}, {counted(frontier.seeds, 'seed')} of every setting"


def table(frontier: Frontier) -> tuple[list[list[str]], list[str]]:
    """(a line for every setting, under a head; what the letters in the head mean)."""
    shown = groups(frontier)
    names = [f"{group[0].row}: {', '.join(map(spoken, group))}{_guess(frontier, group[0])}" for group in shown]
    columns = [chr(ord("A") + n) for n in range(len(shown))]
    rows = [["", "setting", "accuracy", "bytes", "ε claimed", *columns]]
    for point, star in zip(frontier.points, on_overall_front(frontier)):
        rows.append(["*" if star else "", point.words, *_figures(point, [group[0] for group in shown])])
    return rows, [f"{column}  {name}" for column, name in zip(columns, names)]


def markdown(frontier: Frontier, command: str) -> str:
    """For a page of the documentation: generated, never typed."""
    (head, *body), letters = table(frontier)
    refused = [f"{point.words}: {point.problem}" for point in frontier.points if point.problem]
    parts = [
        f"# Frontier: {facts(frontier)}",
        f"By `{command}`; do not edit. `frontier.json` beside this page has every number.",
        *verdict_words(frontier),
        "![the pictures](frontier.svg)",
        "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body)),
        "\n".join(f"- {letter}" for letter in letters),
        LEGEND,
        *refused,
    ]
    return "\n\n".join(part.replace("\u00a0", " ") for part in parts) + "\n"


def lines(frontier: Frontier) -> list[str]:
    rows, letters = table(frontier)
    refused = [f"{point.words}: {point.problem}" for point in frontier.points if point.problem]
    silent = f"Not swept, since without protection they showed nothing: {', '.join(frontier.silent)}."
    return [
        facts(frontier),
        "",
        *text_table(rows),
        "",
        *letters,
        *(wrapped for words in refused for wrapped in _wrapped(words)),
        "",
        *_wrapped(LEGEND),
        *(_wrapped(silent) if frontier.silent else []),
        "",
        *_wrapped(" ".join(verdict_words(frontier))),
    ]


def _figures(point: Point, gauges: list[Gauge]) -> list[str]:
    if point.problem:
        return ["refused", "–", "–", *["–"] * len(gauges)]
    cost = "–" if point.cost is None else size(point.cost)
    return [accuracy_words(point.accuracy), cost, claimed_words(point), *(_score(point, gauge) for gauge in gauges)]


def accuracy_words(mean: Mean) -> str:
    return percent(mean.value) if mean.n < 2 else f"{percent(mean.value)} ± {100 * mean.half:.1f}"


def claimed_words(point: Point) -> str:
    if not point.claimed:
        return "–"
    return ", ".join("none" if value is None else plain(value) for value in point.claimed.values())


def _score(point: Point, gauge: Gauge) -> str:
    score = point.leaks.get(gauge.attack)
    if score is None:
        return "not measured"
    half = "" if score.interval is None else f" ± {(score.interval[1] - score.interval[0]) / 2:.2f}"
    return f"{score.value:.2f}{half}"


def _guess(frontier: Frontier, gauge: Gauge) -> str:
    bars = [s.bar for p in frontier.points if (s := p.leaks.get(gauge.attack)) is not None and s.bar is not None]
    if not bars:
        return ""
    low, high = min(bars), max(bars)
    return f" [{low:.2f}]" if high - low < 0.005 else f" [{low:.2f} to {high:.2f}]"


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, WIDTH)
