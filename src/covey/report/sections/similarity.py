"""PQFed's selection: how far clients are from the target or from each other, and who was put together with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from covey.report.draw.grids import MAX_ROWS, grid_picture, levels, scale_legend
from covey.report.draw.layout import figure, rows_table
from covey.report.draw.marks import bars
from covey.report.draw.markup import Html, join
from covey.report.format import number, plain
from covey.results.contents import Run, evenly, fields, integers, numbers, table

KEYS = ("earth_movers", "collaborators", "distance_range", "range_by_chance")  # drawn here, of all that is recorded
LISTED = 60  # groups that are written out
NAMED = 12  # members of a group that are named


def selection(run: Run) -> list[Html]:
    """The pictures of the last selection; none where nothing was selected."""
    distances = run.latest("extra", "earth_movers")
    noted = fields(run.latest("extra", "collaborators"))
    groups = {int(t): integers(group) or [] for t, group in noted.items() if t.isdecimal()}
    matrix, row = table(distances), numbers(distances)
    if matrix is not None and len(matrix) == len(matrix[0]):
        return [_matrix(run, matrix), *_listed(groups)]
    return [_bars(run, row, groups)] if row is not None else []


def _matrix(run: Run, distances: list[list[float]]) -> Html:
    """One cell for every pair of clients: dark is far."""
    shown = evenly(len(distances), MAX_ROWS)
    values = [[distances[i][j] for j in shown] for i in shown]
    steps, shades = levels(values, "apart")
    names = [f"client {i}" for i in shown]
    places = evenly(len(shown), 12)
    ticks = [((place + 0.5) / len(shown), str(shown[place])) for place in places]
    blocks = [(i, i + 1, str(shown[i]), "c0") for i in places] if len(shown) <= 40 else []
    words = (
        "Earth mover's distance between the noised features of every two clients: the lighter, the more alike."
        + _range(run)
    )
    title = "How far clients are from each other"
    picture = grid_picture(title, words, steps, shades, names, names, ticks, "client", blocks, sequential=True)
    return figure(title, join([scale_legend(max(map(max, values)), "apart"), picture]), words)


def _listed(groups: Mapping[int, Sequence[int]]) -> list[Html]:
    """Who should learn with whom, nearest first."""
    if not groups:
        return []
    rows = []
    for target, group in list(groups.items())[:LISTED]:
        others = [str(i) for i in group if i != target]
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        rows.append((f"client {target}", ", ".join(others[:NAMED]) + more if others else "alone"))
    rest = f" The first {LISTED} of {len(groups):,}." if len(groups) > LISTED else ""
    words = "Whom each client learns with, the nearest first." + rest
    return [figure("Recommended groups", rows_table(("for", "learns with clients"), rows), words)]


def _bars(run: Run, distances: Sequence[float], groups: Mapping[int, Sequence[int]]) -> Html:
    """The target's view: every client by distance, those that were chosen coloured."""
    target, group = next(iter(groups.items()), (-1, []))
    order = sorted(range(len(distances)), key=lambda i: distances[i])
    others = [i for i in order if i != target][:LISTED]
    rows = [
        (f"client {i}" + (" · chosen" if i in group else ""), distances[i], "c0" if i in group else "other")
        for i in others
    ]
    whose = f" to client {target}" if target >= 0 else ""
    words = f"Earth mover's distance{whose} of the noised features, nearest first." + _range(run)
    return figure("Who is near the target", bars("Who is near the target", words, rows), words)


def _range(run: Run) -> str:
    seen, chance = (number(run.latest("extra", key)) for key in ("distance_range", "range_by_chance"))
    if seen is None or chance is None:
        return ""
    return f" They range over {plain(seen)}; sampling alone would give {plain(chance)}."
