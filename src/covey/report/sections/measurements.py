"""What an algorithm records about itself, shown as it declares (`covey.measures`); what it does not declare, by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from covey.files import number
from covey.measures import DISTANCES, GROUPS, HIDDEN, NOISE, OF_ROUNDS, QUANTILES, Measure
from covey.report.draw.grids import matrix
from covey.report.draw.layout import Section, figure, figures
from covey.report.draw.markup import Html, tag
from covey.report.draw.svg import Series, drawable, hue, line_chart
from covey.report.format import plain, sentence_case
from covey.report.sections import similarity
from covey.report.sections.similarity import beside
from covey.report.sections.training import thinned
from covey.results.contents import Run, dig, fields, numbers, table
from covey.results.declared import Declared, declared

QUARTILES = ("smallest", "lower quarter", "median", "upper quarter", "largest")
ELSEWHERE = (NOISE, HIDDEN, DISTANCES, GROUPS)  # ways of showing that are not figures of their own here


def keys_of(run: Run) -> list[str]:
    """Names under `extra`, in order of first appearance."""
    seen: dict[str, None] = {}
    for entry in run.rounds:
        seen.update(dict.fromkeys(fields(entry.get("extra"))))
    return [str(key) for key in seen]


def algorithm(run: Run) -> Section | None:
    """Everything under `extra` except noise, which stands with the privacy ledger, and what is for scoring only."""
    own = declared(run)
    hidden = {key for way in ELSEWHERE for key in own.shown(way)}
    keys = [key for key in keys_of(run) if key not in hidden]
    body = figures(*similarity.selection(run, own), *(measured(run, own, key) for key in keys))
    lead = "Measurements that the algorithm takes of itself while it runs."
    return Section("algorithm", f"Inside {own.label or 'the algorithm'}", lead, body) if body else None


def measured(run: Run, own: Declared, key: str) -> Html | None:
    """The picture that fits what was recorded: a matrix, a number, or lines."""
    measure = own.measures.get(key) or OF_ROUNDS.get(key) or Measure(sentence_case(key))
    grid = table(run.latest("extra", key))
    if grid is not None:
        return _matrix(measure, grid)
    shown, note = thinned(run)
    values = [dig(run.rounds[i], "extra", key) for i in shown]
    series = lines_of(values, QUARTILES if measure.shown == QUANTILES else _clusters(run))
    if not series:
        return None
    title, words = measure.title, " ".join(filter(None, [measure.words, beside(run, measure)]))
    levels = {value for one in series for value in one.values if value is not None}
    if len(levels) == 1 and len(run.rounds) > 1:  # a flat line is a number
        return figure(title, tag("p", tag("b", plain(levels.pop())), " in every round", class_="constant"), words)
    xs = [run.rounds[i]["round"] for i in shown]
    drawn = line_chart(title, words or f"{key} by round", xs, series, measure.unit, plain, log=True, height=190)
    return figure(title, drawn, words + note)


def _clusters(run: Run) -> list[str]:
    """What the entries of a short list stand for, where there are as many clusters."""
    clusters = number(run.config.get("clusters"))
    return [f"cluster {j}" for j in range(int(clusters))] if clusters else []


def lines_of(values: Sequence[object], entries: Sequence[str] = ()) -> list[Series]:
    """Scalars give one line, short lists one per entry, long lists (one value per client) their spread; tables by name."""
    if any(isinstance(value, dict) for value in values):
        names = list(dict.fromkeys(key for value in values if isinstance(value, dict) for key in value))
        return _present(names, lambda value, i: dig(value, names[i]), values)
    lengths = {len(value) for value in values if isinstance(value, list)}
    if not lengths:
        return _present([""], lambda value, i: value, values)
    longest = max(lengths)
    if longest <= 8:
        names = list(entries) if len(entries) == longest else [str(i) for i in range(longest)]
        return _present(names, _entry, values)
    ordered = [sorted(known) if (known := numbers(value)) else None for value in values]
    spots = {"smallest": 0.0, "median": 0.5, "largest": 1.0}
    return _present(list(spots), lambda v, i: v[round(list(spots.values())[i] * (len(v) - 1))] if v else None, ordered)


def _entry(value: object, i: int) -> object:
    return value[i] if isinstance(value, list) and i < len(value) else None


def _present(names: list[str], get: Callable[..., object], values: Sequence[object]) -> list[Series]:
    lines = [Series(name, [number(get(value, i)) for value in values], hue(i), name) for i, name in enumerate(names)]
    return drawable(lines)


def _matrix(measure: Measure, grid: list[list[float]]) -> Html | None:
    if len(grid) > 30 or len(grid[0]) > 30:
        return None  # a table that nobody could read
    words = measure.words or "In the last round that recorded it."
    return figure(measure.title, matrix(measure.title, words, grid, *measure.axes))
