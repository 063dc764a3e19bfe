"""The section on who fares how: every metric over clients, their distribution at the end, and each class."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from covey.files import number
from covey.report.draw.grids import Shade, grid_picture, levels, scale_legend
from covey.report.draw.layout import Section, figure, figures, rows_table
from covey.report.draw.marks import histogram
from covey.report.draw.markup import Html, join, tag
from covey.report.draw.svg import Series, drawable, hue, line_chart
from covey.report.format import counted, figure_of, percent, sentence_case
from covey.report.sections.training import evaluated, pick, thinned
from covey.results.contents import Run, dig, fields, numbers
from covey.results.measured import CONSTANT, LEADING, Measured, constant, measured, shown, uneven

FIGURES = (("mean", "Mean"), ("worst", "Worst"), ("p10", "Worst tenth"), ("gap", "Gap"), ("spread", "Spread"))
MOST_CLASSES = 30  # in the table; the heat map has more


def quality(run: Run) -> Section | None:
    """Metrics over clients, the leading one's distribution, and classes."""
    every = measured(run)
    if not every:
        return None
    leading = next((one for one in every if one.name == LEADING), every[-1])
    parts = [
        _distribution(run, leading),
        _spread(run, leading),
        *(_curve(run, one) for one in shown(every, uneven(run)) if one is not leading),
        _heat(run),
        _classes(run),
    ]
    lead = "How clients and classes differ: a mean says little to the client that is worst off, or of a rare class."
    if leading.name == LEADING and uneven(run):
        lead += " The classes are uneven here, so that accuracy alone hides how small ones fare."
    if constant(fields(run.final("classes"))):
        lead += f" {CONSTANT[0].upper()}{CONSTANT[1:]}."
    return Section("quality", "Clients and classes", lead, join([_table(every), figures(*parts)]))


def _form(one: Measured) -> Callable[[float], str]:
    return partial(figure_of, as_share=one.as_share)


def _table(every: list[Measured]) -> Html:
    rows: list[list[object]] = []
    for one in every:
        form = _form(one)
        cells = [one.figure(key) for key, _ in FIGURES]
        name = join([one.title, tag("span", " (less is better)", class_="soft") if not one.higher else ""])
        rows.append([name, *("–" if value is None else form(value) for value in cells)])
    return rows_table(["Metric, over clients", *(name for _, name in FIGURES)], rows, "results")


def _clients(run: Run, name: str) -> tuple[int, list[float]] | None:
    """(round, values) of the last round that lists each client."""
    for entry in reversed(run.rounds):
        listed = dig(entry, "metrics", name, "clients")
        values = [v for one in listed if (v := number(one)) is not None] if isinstance(listed, list) else []
        if values:
            return entry["round"], values
    return None


def _distribution(run: Run, one: Measured) -> Html | None:
    last = _clients(run, one.name)
    if last is None or len(last[1]) < 2:
        return None
    round, values = last
    marks = [(words, value) for key, words in FIGURES[:3] if (value := one.figure(key)) is not None]
    desc = f"{counted(len(values), 'client')} by {one.name}; " + ", ".join(f"{w}: {_form(one)(v)}" for w, v in marks)
    drawn = histogram(f"Clients by {sentence_case(one.name).lower()}", desc, values, marks, _form(one))
    words = f"Each client on its own distribution after round {round}. Upright lines: {', '.join(w.lower() for w, _ in marks)}."
    return figure(f"Clients by {sentence_case(one.name).lower()}", drawn, words)


def _spread(run: Run, one: Measured) -> Html | None:
    chosen = (("best", "Best client"), ("mean", "Mean"), ("p10", "Worst tenth"), ("worst", "Worst client"))
    return _lines(run, one, f"{sentence_case(one.name)} of clients by round", chosen)


def _curve(run: Run, one: Measured) -> Html | None:
    title = one.title if len(one.title) < 40 else sentence_case(one.name)
    return _lines(run, one, title, (("mean", "Mean"), ("worst", "Worst client")))


def _lines(run: Run, one: Measured, title: str, chosen: tuple[tuple[str, str], ...]) -> Html | None:
    rounds = tuple(entry for entry in run.rounds if isinstance(dig(entry, "metrics", one.name), dict))
    run = evaluated(run, rounds)
    if len(rounds) < 2:
        return None
    at, note = thinned(run)
    series = drawable(
        [
            Series(
                words,
                pick(run.series("metrics", one.name, key), at),
                hue(i),
                words.replace(" client", "").split()[-1].lower(),
            )
            for i, (key, words) in enumerate(chosen)
        ]
    )
    if not series:
        return None
    desc = f"{one.title} over clients, by round."
    drawn = line_chart(
        title, desc, [rounds[i]["round"] for i in at], series, sentence_case(one.name).lower(), _form(one)
    )
    return figure(title, drawn, f"{one.title}, over clients, each on its own distribution.{note}")


def _names(run: Run, count: int) -> list[str]:
    names = run.federation.get("classes")
    known = [str(name) for name in names] if isinstance(names, list) else []
    return known if len(known) == count else [str(i) for i in range(count)]


def _heat(run: Run) -> Html | None:
    """Clusters × classes: the share of each class that is recognised, empty where a cluster has none of it."""
    classes = fields(run.final("classes"))
    rows = classes.get("recall_per_cluster")
    if not isinstance(rows, list) or len(rows) < 2 or not all(isinstance(row, list) and row for row in rows):
        return None
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        return None
    names = _names(run, width)
    values = [[-1.0 if (v := number(one)) is None else v for one in row] for row in rows]
    steps, shades = levels([[max(v, 0.0) for v in row] for row in values], "recognised")
    grid = [[-1 if v < 0 else max(step, 0) for v, step in zip(row, line)] for row, line in zip(values, steps)]
    shades = {
        step: Shade(shade.colour, f"{percent(step / 10)} to {percent((step + 1) / 10)}")
        for step, shade in shades.items()
    }
    ticks = [((i + 0.5) / width, name) for i, name in enumerate(names)] if width <= 40 else []
    slanted = any(len(name) > 2 for name in names)
    title = "Recognised, by cluster and class"
    desc = "Share of each class's test samples that a cluster's clients recognise."
    clusters = [f"cluster {j}" for j in range(len(rows))]
    groups = [(j, j + 1, str(j), hue(j)) for j in range(len(rows))]
    drawn = grid_picture(title, desc, grid, shades, clusters, names, ticks, "class", groups, slanted, sequential=True)
    return figure(title, join([drawn, scale_legend(1.0, "recognised")]), desc + " Empty: the cluster has none of it.")


def _classes(run: Run) -> Html | None:
    """A line per class, the worst first."""
    classes = fields(run.final("classes"))
    by = next((values for key in ("recall", "rmse") if isinstance(values := classes.get(key), list) and values), None)
    if by is None:
        return None
    count = len(by)
    columns = [
        (key, word) for key, word in _COLUMNS if isinstance(classes.get(key), list) and len(classes[key]) == count
    ]
    names = _names(run, count)
    order = sorted(range(count), key=lambda i: (number(by[i]) is None, number(by[i]) or 0.0))
    order = order if "recall" in classes else order[::-1]
    rows = [[names[i], *(_cell(classes[key][i], key) for key, _ in columns)] for i in order[:MOST_CLASSES]]
    words = f"The {MOST_CLASSES} worst of {count}." if count > MOST_CLASSES else "The worst first."
    return figure(
        "Each class" if "recall" in classes else "Each output", rows_table(["", *(w for _, w in columns)], rows), words
    )


_COLUMNS = (
    ("share", "Share of samples"),
    ("recall", "Recognised"),
    ("precision", "Right when said"),
    ("f1", "F1"),
    ("rmse", "RMSE"),
    ("mae", "MAE"),
)


def _cell(value: object, key: str) -> str:
    size = number(value)
    return "–" if size is None else figure_of(size, key not in ("rmse", "mae"))


def worst_in_words(run: Run) -> str:
    """'Worst client 91.2 %.', for the first screen."""
    one = next((one for one in measured(run) if one.name == LEADING), None)
    worst = None if one is None else one.figure("worst")
    return "" if worst is None else f"Worst client: {percent(worst)}."


def beside_in_words(run: Run) -> str:
    """What stands beside accuracy where classes are uneven, in a sentence."""
    balanced = [one for one in measured(run) if one.beside and uneven(run)]
    said = [(one, mean) for one in balanced if (mean := one.figure("mean")) is not None]
    if not said or not numbers(fields(run.final("accuracy")).get("per_cluster")):
        return ""
    one, mean = said[0]
    return f"The classes are uneven: {sentence_case(one.name).lower()} is {figure_of(mean, one.as_share)}, mean over clients."
