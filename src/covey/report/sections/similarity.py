"""How far clients are from one of them or from each other, and who was put together with whom, where an algorithm says so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from covey.files import number
from covey.measures import DISTANCES, GROUPS, Measure
from covey.report.draw.grids import MAX_ROWS, grid_picture, levels, scale_legend
from covey.report.draw.layout import figure, rows_table
from covey.report.draw.marks import bars
from covey.report.draw.markup import Html, join
from covey.report.format import plain
from covey.results.contents import Run, evenly, fields, integers, numbers, table
from covey.results.declared import Declared

LISTED = 60  # groups that are written out
NAMED = 12  # members of a group that are named


def selection(run: Run, own: Declared) -> list[Html]:
    """The pictures of the last distances and groups; none where nothing of that kind was declared and noted."""
    groups, words = _groups(run, own)
    pictures = []
    for key in own.shown(DISTANCES):
        measure, last = own.measures[key], run.latest("extra", key)
        square, row = table(last), numbers(last)
        if square is not None and len(square) == len(square[0]):
            pictures += [_matrix(run, measure, square), *_listed(groups, words)]
        elif row is not None:
            pictures.append(_bars(run, measure, row, groups))
    return pictures


def _groups(run: Run, own: Declared) -> tuple[dict[int, list[int]], Measure | None]:
    """Client -> whom it learns with, itself among them, and how that is declared."""
    for key in own.shown(GROUPS):
        noted = fields(run.latest("extra", key))
        return {int(t): integers(group) or [] for t, group in noted.items() if t.isdecimal()}, own.measures[key]
    return {}, None


def beside(run: Run, measure: Measure) -> str:
    """The sentence that a measure says with the values of other notes; "" where one of them is missing."""
    values = {name: number(run.latest("extra", name)) for name in re.findall(r"{(\w+)}", measure.beside)}
    if None in values.values():
        return ""
    return re.sub(r"{(\w+)}", lambda name: plain(values[name[1]] or 0.0), measure.beside)


def _matrix(run: Run, measure: Measure, distances: list[list[float]]) -> Html:
    """One cell for every pair of clients: dark is far."""
    shown = evenly(len(distances), MAX_ROWS)
    values = [[distances[i][j] for j in shown] for i in shown]
    steps, shades = levels(values, "apart")
    names = [f"client {i}" for i in shown]
    places = evenly(len(shown), 12)
    ticks = [((place + 0.5) / len(shown), str(shown[place])) for place in places]
    blocks = [(i, i + 1, str(shown[i]), "c0") for i in places] if len(shown) <= 40 else []
    words = f"{measure.title} between every two clients: the lighter, the more alike. {beside(run, measure)}".strip()
    title = "How far clients are from each other"
    picture = grid_picture(title, words, steps, shades, names, names, ticks, "client", blocks, sequential=True)
    return figure(title, join([scale_legend(max(map(max, values)), "apart"), picture]), words)


def _listed(groups: Mapping[int, Sequence[int]], measure: Measure | None) -> list[Html]:
    """Who should learn with whom, nearest first."""
    if not groups or measure is None:
        return []
    rows = []
    for target, group in list(groups.items())[:LISTED]:
        others = [str(i) for i in group if i != target]
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        rows.append((f"client {target}", ", ".join(others[:NAMED]) + more if others else "alone"))
    rest = f" The first {LISTED} of {len(groups):,}." if len(groups) > LISTED else ""
    return [figure(measure.title, rows_table(("for", "learns with clients"), rows), measure.words + rest)]


def _bars(run: Run, measure: Measure, distances: Sequence[float], groups: Mapping[int, Sequence[int]]) -> Html:
    """The target's view: every client by distance, those that learn with it coloured."""
    target, group = next(iter(groups.items()), (-1, []))
    order = sorted(range(len(distances)), key=lambda i: distances[i])
    others = [i for i in order if i != target][:LISTED]
    rows = [
        (f"client {i}" + (" · chosen" if i in group else ""), distances[i], "c0" if i in group else "other")
        for i in others
    ]
    whose = f" to client {target}" if target >= 0 else ""
    words = f"{measure.title}{whose}, nearest first. {beside(run, measure)}".strip()
    return figure("Who is near the target", bars("Who is near the target", words, rows), words)
