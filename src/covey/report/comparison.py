"""Runs side by side: curves overlaid, results in one table, and only the settings that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from covey.attacks.finding import Finding
from covey.data.fingerprint import difference
from covey.files import number
from covey.report.draw.layout import Section, figure, figures, rows_table
from covey.report.draw.marks import bars, track
from covey.report.draw.markup import Html, join, tag
from covey.report.draw.svg import Series, hue, line_chart
from covey.report.findings import axis_of, metric_of, name_of, place_of, read_findings, score, verdict_of
from covey.report.format import counted, duration, figure_of, percent, plain, sentence_case, size
from covey.report.labels import label
from covey.report.sections.privacy import read_ledger
from covey.report.sections.setup import flat, written
from covey.report.sections.summary import badges as run_badges
from covey.report.sections.summary import led, seeds
from covey.report.sections.training import KINDS, MAX_POINTS, phases_of
from covey.results.contents import Run, dig, evenly, fields
from covey.results.declared import declared
from covey.results.measured import LEADING, Measured, measured, shown, uneven


def named(runs: Sequence[Run]) -> list[Run]:
    """Runs under names a reader can tell apart: the algorithm where that is enough, else the folder, else a number too."""
    for names in ([declared(run).label or run.name for run in runs], [run.name for run in runs]):
        if len(set(names)) == len(runs):
            return [replace(run, name=name) for run, name in zip(runs, names)]
    return [replace(run, name=f"{run.name} ({i})") for i, run in enumerate(runs, 1)]


def headline(runs: Sequence[Run]) -> str:
    names = [run.name for run in runs]
    data = {label("dataset", name) for run in runs if (name := run.word("dataset"))}
    on = f" on {data.pop()}" if len(data) == 1 else ""
    listed = ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) <= 5 else counted(len(names), "run")
    return f"{listed}{on}, side by side"


def lede(runs: Sequence[Run]) -> list[str]:
    said = []
    for key, name, _ in _kinds(runs):
        scores = [(value, run.name) for run in runs if (value := number(run.final("accuracy", key))) is not None]
        if len(scores) == len(runs):
            best, worst = max(scores), min(scores)
            high, low = percent(best[0]), percent(worst[0])
            led_by = f"{best[1]} leads with {high}; {worst[1]} has {low}" if high != low else f"{high} in all of them"
            said.append(f"{name}: {led_by}.")
    alone = len(runs) > 1 and not any(run.final("seeds", "n") for run in runs)
    return [*said, "One seed each: another one may turn the order round."] if said and alone else said


def _kinds(runs: Sequence[Run]) -> list[tuple[str, str, str]]:
    """Accuracies, the one that leads first where it is the same in all runs."""
    orders = {led(run) for run in runs}
    order = orders.pop() if len(orders) == 1 else tuple(key for key, *_ in KINDS)
    return sorted(KINDS, key=lambda kind: order.index(kind[0]))


def badges(runs: Sequence[Run]) -> list[tuple[str, str]]:
    marks = [("warn", f"{run.name}: {words}") for run in runs for kind, words in run_badges(run) if kind == "warn"]
    data = dict.fromkeys(label("dataset", run.word("dataset") or "unknown data") for run in runs)
    if len(data) > 1:
        marks.insert(
            0, ("warn", f"the runs learned different data ({', '.join(data)}): their accuracies do not compare")
        )
    elif words := _difference(runs):
        marks.insert(
            0, ("warn", f"the runs learned different data of one name ({words}): their accuracies do not compare")
        )
    return marks


def _difference(runs: Sequence[Run]) -> str:
    """What differs in the data of runs that call them alike, whoever holds which rows; old folders cannot tell."""
    known = [parts for run in runs if (parts := fields(fields(run.federation.get("data")).get("parts")))]
    texts = [{k: str(v) for k, v in parts.items() if k != "split"} for parts in known]
    return next((words for other in texts[1:] if (words := difference(texts[0], other))), "")


def sections(runs: Sequence[Run]) -> list[Section]:
    built = (_results(runs), _curves(runs), _attacks(runs), _cost(runs), _settings(runs))
    return [section for section in built if section]


def swatch(runs: Sequence[Run], i: int) -> Html:
    return join([tag("i", class_=f"swatch {hue(i)}"), runs[i].name])


@dataclass(frozen=True)
class Column:
    """A figure of every run."""

    name: str
    values: list[float | None]
    form: Callable[[float], str]
    higher: bool = True  # is better
    deviations: list[float | None] = field(default_factory=list)  # over seeds


def columns(runs: Sequence[Run]) -> list[Column]:
    """What runs are compared by; what no run has is left out."""
    every = [_column(runs, name, ("accuracy", key), percent) for key, name, _ in _kinds(runs)]
    every += _metrics(runs)
    every += [
        _column(runs, "ARI", ("clustering", "ari"), lambda v: f"{v:.2f}"),
        _column(runs, "Rounds to target", ("rounds_to_target",), plain, False),
        Column("Worst attack above guessing", [_excess(run) for run in runs], percent, False),
        Column("ε", [_epsilon(run) for run in runs], plain, False),
        _column(runs, "Up per round", ("bytes", "up"), size, False),
        _column(runs, "Down per round", ("bytes", "down"), size, False),
        Column("Time", [sum(v for _, v, _ in phases_of(run)) or None for run in runs], duration, False),
    ]
    return [column for column in every if any(value is not None for value in column.values)]


def _column(
    runs: Sequence[Run], name: str, path: tuple[str, ...], form: Callable[[float], str], higher: bool = True
) -> Column:
    values = [number(run.final(*path)) for run in runs]
    spread = [number(fields(dig(run.result, "seeds", "std")).get(".".join(path))) for run in runs]
    return Column(name, values, form, higher, spread)


def _metrics(runs: Sequence[Run]) -> list[Column]:
    """The worst client's accuracy, and what stands beside accuracy in any of the runs."""
    worst = _column(runs, "Worst client", ("metrics", LEADING, "worst"), percent)
    return [worst] + [
        _column(runs, title, ("metrics", one.name, "mean"), form, one.higher) for one, title, form in _beside(runs)
    ]


def _beside(runs: Sequence[Run]) -> list[tuple[Measured, str, Callable[[float], str]]]:
    """(metric, its title in a few words, how its figures are written) of what stands beside accuracy in any of the runs."""
    beside: dict[str, Measured] = {}
    for run in runs:
        beside |= {one.name: one for one in shown(measured(run), uneven(run))}
    return [
        (
            one,
            one.title if len(one.title) <= 24 else sentence_case(one.name),
            partial(figure_of, as_share=one.as_share),
        )
        for one in beside.values()
    ]


def _results(runs: Sequence[Run]) -> Section:
    """One line per run; the best of a column is bold, and ties share it."""
    compared = columns(runs)
    rows = []
    for i in range(len(runs)):
        cells: list[object] = [swatch(runs, i)]
        for column in compared:
            known = [value for value in column.values if value is not None]
            value = column.values[i]
            said = "–" if value is None else column.form(value)
            best = value is not None and len(known) > 1 and value == (max if column.higher else min)(known)
            cells.append(tag("b", said, class_="best") if best and min(known) < max(known) else said)
        rows.append(cells)
    spreads = [f"{run.name}: {words}" for run in runs if (words := seeds(run))]
    foot = tag("p", " ".join(spreads), class_="soft") if spreads else Html("")
    lead = (
        "Where runs ended; the best of each column is bold. “Above guessing” is the share of the way from chance and controls "
        "to certainty."
    )
    return Section(
        "results", "Results", lead, join([rows_table(["Run", *(c.name for c in compared)], rows, "results"), foot])
    )


def _excess(run: Run) -> float | None:
    worst = next(iter(read_findings(run)), None)
    return worst.excess if worst and worst.is_share else None


def _epsilon(run: Run) -> float | None:
    spends = [e for _, entry in read_ledger(run) if (e := number(entry.get("epsilon"))) is not None]
    return max(spends) if spends else None


def _curves(runs: Sequence[Run]) -> Section | None:
    body = figures(
        *(_overlay(runs, ("accuracy", key), name, "accuracy", percent) for key, name, _ in _kinds(runs)),
        *(_overlay(runs, ("metrics", one.name, "mean"), title, one.name, form) for one, title, form in _beside(runs)),
    )
    lead = "The same measure of every run on one scale. Click a name to hide its line."
    return Section("curves", "Round by round", lead, body) if body else None


def _overlay(
    runs: Sequence[Run], path: tuple[str, ...], name: str, unit: str, form: Callable[[float], str]
) -> Html | None:
    points = [{entry["round"]: v for entry, v in zip(run.rounds, run.series(*path)) if v is not None} for run in runs]
    times = sorted(set().union(*points))
    if not times or max(len(p) for p in points) < 2:
        return None
    shown = [times[i] for i in evenly(len(times), MAX_POINTS)]
    series = [
        Series(run.name, [p.get(t) for t in shown], hue(i), run.name if len(run.name) <= 13 else "")
        for i, (run, p) in enumerate(zip(runs, points))
        if p
    ]
    unit = sentence_case(unit).lower()
    drawn = line_chart(name, f"{name}: {unit} by round of every run.", shown, series, unit, form)
    return figure(name, drawn, f"{len(shown)} of {len(times):,} rounds are drawn." if len(shown) < len(times) else "")


def _attacks(runs: Sequence[Run]) -> Section | None:
    groups: dict[tuple[str, str], list[tuple[int, Finding]]] = {}
    for i, run in enumerate(runs):
        for finding in read_findings(run):
            groups.setdefault((name_of(finding), place_of(finding)), []).append((i, finding))
    if not groups:
        return None
    items = []
    for (name, place), rows in groups.items():
        head = tag("h3", name, tag("span", f" from the view of the {place}" if place else "", class_="soft"))
        lines = [tag("div", *_row(runs, i, one)) for i, one in rows]
        items.append(tag("li", tag("div", head), tag("div", *lines)))
    lead = "Every attack against every run it watched. Upright line: chance. Diamonds: attackers that ignore what was observed."
    return Section("attacks", "Attacks", lead, tag("ol", *items, class_="findings"))


def _row(runs: Sequence[Run], i: int, one: Finding) -> tuple[Html, Html]:
    """A run's line under an attack: its words, and the score on an axis."""
    value = tag("b", score(one, one.value))
    words = tag("p", swatch(runs, i), " ", value, f" {metric_of(one)}: {verdict_of(one)}", class_="numbers")
    controls = tuple(one.controls.items())
    return words, track(axis_of(one), one.value, one.interval, one.chance, controls, partial(score, one), hue(i))


def _cost(runs: Sequence[Run]) -> Section | None:
    times = [(run.name, sum(v for _, v, _ in phases_of(run)), hue(i)) for i, run in enumerate(runs)]
    traffic = [
        (run.name, sum(number(run.final("bytes", way)) or 0.0 for way in ("up", "down")), hue(i))
        for i, run in enumerate(runs)
    ]
    body = figures(
        figure("Time", bars("Time", "Seconds of every run.", times, duration)) if any(v for _, v, _ in times) else None,
        figure(
            "Bytes per client and round", bars("Bytes", "Up and down together.", traffic, size), "Up and down together."
        )
        if any(v for _, v, _ in traffic)
        else None,
    )
    return Section("cost", "Cost", "What every run cost.", body) if body else None


def _settings(runs: Sequence[Run]) -> Section | None:
    """Only what differs is listed; a value that most runs share is soft, the odd ones are marked."""
    settings = [{key: written(value) for key, value in flat(run.config) if key != "out"} for run in runs]
    keys = list(dict.fromkeys(key for one in settings for key in one))
    differing = [key for key in keys if len({one.get(key) for one in settings}) > 1]
    if not keys:
        return None
    same = f"{len(keys) - len(differing)} of {counted(len(keys), 'setting')} are equal in all runs and left out."
    rows = []
    for key in differing:
        values = [one.get(key, "–") for one in settings]
        usual, times = Counter(values).most_common(1)[0]
        odd = [value != usual or times == 1 for value in values]
        rows.append([tag("code", key), *(tag("mark", v) if o else v for v, o in zip(values, odd))])
    head = ["Setting", *(swatch(runs, i) for i in range(len(runs)))]
    body = rows_table(head, rows, "differences") if rows else tag("p", "The runs have the same configuration.")
    return Section("settings", "What differs", same, body)
