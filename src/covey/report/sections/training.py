"""Sections on learning and its price: accuracy over the rounds, seconds by phase, bytes."""

from __future__ import annotations

from collections.abc import Sequence

from covey.files import number
from covey.report.draw.layout import Section, figure, figures
from covey.report.draw.marks import bars, beyond_palette
from covey.report.draw.markup import Html, join, tag
from covey.report.draw.svg import Series, area_chart, axis_for, drawable, hue, line_chart
from covey.report.format import counted, duration, percent, sentence_case, size
from covey.results.contents import Json, Run, evenly, fields

KINDS = (
    ("average_cluster", "Mean of clusters", "clusters"),
    ("client_mean", "Clients' own data", "own data"),
    ("global", "Whole test set", "whole set"),
)
PHASES = ("prepare", "train", "identity", "encrypt", "aggregate", "decrypt", "rebuild", "cluster", "evaluate", "attack")
MAX_POINTS = 400


def thinned(run: Run) -> tuple[list[int], str]:
    """Indices of the rounds to draw, and the words a caption owes when that is not all of them."""
    shown = evenly(len(run.rounds), MAX_POINTS)
    return shown, f" {len(shown)} of {len(run.rounds):,} rounds are drawn." if len(shown) < len(run.rounds) else ""


def pick(values: Sequence[float | None], shown: Sequence[int]) -> list[float | None]:
    return [values[i] for i in shown]


def evaluated(run: Run, measured: tuple[Json, ...] | None = None) -> Run:
    """The run with only the rounds that measured accuracy: curves of a run evaluated every tenth round keep all its points."""
    if measured is None:
        measured = tuple(entry for entry in run.rounds if isinstance(entry.get("accuracy"), dict))
    return Run(run.name, run.result, measured, run.federation, run.config, run.config_text)


def accuracy(run: Run) -> Section | None:
    run = evaluated(run)
    if not run.rounds:
        return None
    shown, note = thinned(run)
    xs = [run.rounds[i]["round"] for i in shown]
    means = drawable(
        [
            Series(name, pick(run.series("accuracy", key), shown), hue(i), label)
            for i, (key, name, label) in enumerate(KINDS)
        ]
    )
    overview = None
    if means:
        desc = "; ".join(f"{s.name}: {percent(_last(s.values))} at the end" for s in means)
        drawn = line_chart("Accuracy by round", desc, xs, means, "accuracy", percent)
        overview = figure("Accuracy by round", drawn, "Test accuracy after each evaluated round." + note)
    body = figures(overview, _per_cluster(run, xs, shown))
    lead = "How well the models do on test data they never saw, round by round."
    return Section("accuracy", "Accuracy", lead, body) if body else None


def _last(values: Sequence[float | None]) -> float:
    return next(value for value in reversed(values) if value is not None)


def _per_cluster(run: Run, xs: Sequence[int], shown: Sequence[int]) -> Html | None:
    """One chart while lines can be told apart, small multiples beyond; all on one scale."""
    lists = [entry["accuracy"].get("per_cluster") for entry in run.rounds]
    clusters = max((len(values) for values in lists if isinstance(values, list)), default=0)
    if clusters < 2:
        return None
    curves = [
        pick([number(v[j]) if isinstance(v, list) and j < len(v) else None for v in lists], shown)
        for j in range(clusters)
    ]
    alive = [j for j in range(clusters) if any(v is not None for v in curves[j])]
    if not alive:
        return None
    title = "Each cluster's model"
    if clusters <= 4:
        series = [Series(f"Cluster {j}", curves[j], hue(j), f"cluster {j}") for j in alive]
        drawn = line_chart(title, "Accuracy per cluster by round.", xs, series, "accuracy", percent)
        return figure(title, drawn, "Each model on test data of its own cluster.")
    every = [v for j in alive for v in curves[j] if v is not None]
    y = axis_for(every, percent)
    mean = pick(run.series("accuracy", "average_cluster"), shown)
    small = []
    for j in alive:
        series = [Series(f"Cluster {j}", curves[j], hue(j))]
        if any(v is not None for v in mean):
            series.insert(0, Series("Mean of clusters", mean, "muted", thin=True))
        head = tag("div", tag("i", class_=f"swatch {hue(j)}"), f"Cluster {j} ", tag("b", percent(_last(curves[j]))))
        plot = line_chart(
            f"Cluster {j}", "Accuracy by round.", xs, series, "", percent, "", height=84, legend=False, y=y, x_ticks=2
        )
        small.append(tag("div", head, plot, class_="small"))
    worst = min(alive, key=lambda j: _last(curves[j]))
    words = (
        f"Each model on test data of its own cluster; the thin line is their mean. Lowest at the end: cluster {worst}."
    )
    return figure(title, tag("div", *small, class_="multiples"), words + beyond_palette(clusters))


def phases_of(run: Run) -> list[tuple[str, float, str]]:
    """(phase, total seconds, colour), in the order in which a round passes through them."""
    totals = {k: s for k, v in fields(run.result.get("seconds")).items() if (s := number(v)) is not None}
    if not totals:
        for entry in run.rounds:
            for key, value in fields(entry.get("seconds")).items():
                totals[key] = totals.get(key, 0.0) + (number(value) or 0.0)
    totals.pop("total", None)
    known = [phase for phase in PHASES if phase in totals]
    order = known + [phase for phase in totals if phase not in PHASES]
    return [(phase, totals[phase], hue(i)) for i, phase in enumerate(order)]


def cost(run: Run) -> Section | None:
    phases = [one for one in phases_of(run) if one[1] > 0]
    parts: list[Html | None] = []
    if phases:
        total = sum(value for _, value, _ in phases)
        rows = [(sentence_case(name), value, colour) for name, value, colour in phases]
        words = f"{duration(total)} in all, summed over rounds."
        parts.append(figure("Time by phase", bars("Time by phase", words, rows, duration), words))
    shown, note = thinned(run)
    timed = [i for i in shown if isinstance(run.rounds[i].get("seconds"), dict)]
    if len(timed) > 1 and phases:
        xs = [run.rounds[i]["round"] for i in timed]
        layers = [Series(sentence_case(n), pick(run.series("seconds", n), timed), c) for n, _, c in phases]
        drawn = area_chart("Time of each round", "Seconds by phase.", xs, layers, "time", duration)
        parts.append(figure("Time of each round", drawn, "Stacked by phase." + note))
    parts.append(_bytes(run))
    body = figures(*parts)
    lead = "What the run cost: seconds where the work was done, bytes on every client's line."
    return Section("cost", "Cost", lead, body) if body else None


def _bytes(run: Run) -> Html | None:
    up, down = (number(run.final("bytes", way)) for way in ("up", "down"))
    rows = [
        (n, v, c) for n, v, c in (("Up, to the server", up, "c0"), ("Down, to the client", down, "c1")) if v is not None
    ]
    if not rows:
        return None
    traffic = sum(value for _, value, _ in rows) * run.done_rounds
    words = "Mean bytes of one participating client in one round."
    if traffic:
        words += (
            f" Over {counted(run.done_rounds, 'round')}: {size(traffic)} for a client that takes part in every one."
        )
    drawn = bars("Bytes per client and round", words, rows, size)
    curve = Html("")
    series = [
        Series(n, v, c)
        for n, v, c in (("Up", run.series("bytes", "up"), "c0"), ("Down", run.series("bytes", "down"), "c1"))
    ]
    varies = any(len({v for v in s.values if v is not None}) > 1 for s in series)
    if varies and len(run.rounds) > 1:  # constant traffic needs no curve
        shown, note = thinned(run)
        thin = [Series(s.name, pick(s.values, shown), s.colour) for s in series]
        xs = [run.rounds[i]["round"] for i in shown]
        curve = line_chart("Bytes by round", "Mean per participating client.", xs, thin, "bytes", size, height=130)
        words += note
    return figure("Bytes per client and round", join([drawn, curve]), words)
