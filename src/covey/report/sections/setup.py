"""Sections on what went in: the data every client held, the configuration, versions and the command that repeats it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from covey.report.draw.grids import MAX_ROWS, grid_picture, levels, scale_legend
from covey.report.draw.layout import Section, figure, figures
from covey.report.draw.marks import bars
from covey.report.draw.markup import Html, join, tag
from covey.report.format import plain, sentence_case
from covey.report.sections.clusters import blocks
from covey.results.contents import Run, evenly, fields, numbers, table


def data(run: Run) -> Section | None:
    body = figures(_histogram(run), _sizes(run))
    said = [f"{sentence_case(key)}: {value}" for key, value in fields(run.federation.get("notes")).items()]
    foot = tag("ul", *(tag("li", one) for one in said), class_="notes") if said else Html("")
    lead = "What every client had to learn from."
    return Section("data", "Data", lead, join([body, foot])) if body or said else None


def _histogram(run: Run) -> Html | None:
    counts = table(run.federation.get("histogram"))
    if counts is None:
        return None
    labels = len(counts[0])
    stated = run.federation.get("classes")
    named = isinstance(stated, list) and len(stated) == labels
    names = [str(name) for name in stated] if named and isinstance(stated, list) else [str(i) for i in range(labels)]
    truth = run.true_clusters
    truth = truth if truth is not None and len(truth) == len(counts) else None
    order = sorted(range(len(counts)), key=lambda i: (truth[i] if truth else 0, i))
    rows = [order[i] for i in evenly(len(order), MAX_ROWS)]
    steps, shades = levels([counts[i] for i in rows], "samples")
    words = "One line per client, one column per label; darker means more samples."
    if truth:
        words += " Clients are sorted by true cluster, named at the left."
    if len(rows) < len(order):
        words += f" {len(rows)} of {len(order):,} clients are drawn, evenly spread."
    shown = range(0, labels, 1 if labels <= 20 else 10 * math.ceil(labels / 100))
    slanted = labels <= 20 and max(len(name) for name in names) > 3
    ticks = [((j + 0.5) / labels, _clip(names[j])) for j in shown]
    picture = grid_picture(
        "Labels of every client",
        words,
        steps,
        shades,
        [f"client {run.client(i)}" for i in rows],
        names,
        ticks,
        "label",
        blocks(rows, truth),
        slanted,
        sequential=True,
    )
    top = max(value for row in counts for value in row)
    return figure("Labels of every client", join([scale_legend(top, "samples"), picture]), words)


def _clip(name: str) -> str:
    return name if len(name) <= 10 else name[:9] + "…"


def _sizes(run: Run) -> Html | None:
    """How many clients hold how many samples; nothing where all hold the same."""
    sizes = numbers(run.federation.get("sizes"))
    if sizes is None or min(sizes) == max(sizes):
        return None
    low, high = int(min(sizes)), int(max(sizes))
    width = -(-(high - low + 1) // 8)  # whole samples, at most eight bars
    starts = range(low, high + 1, width)
    counts = [sum(start <= value < start + width for value in sizes) for start in starts]
    named = [f"{start:,}" if width == 1 else f"{start:,} to {min(start + width - 1, high):,}" for start in starts]
    rows = [(f"{name} samples", float(count), "c0") for name, count in zip(named, counts)]
    words = f"Number of clients by their number of samples, {plain(low)} to {plain(high)}."
    return figure("Samples per client", bars("Samples per client", words, rows), words)


def flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A nested configuration as dotted keys, in file order."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and all(isinstance(item, dict) and "name" in item for item in value):
            for item in value:  # attacks: each is a setting of its own; what it remembers is none
                rest = [f"{k} = {written(v)}" for k, v in item.items() if k not in ("name", "memory")]
                yield f"{prefix}{key}.{item['name']}", ", ".join(rest) or "as usual"
        else:
            yield f"{prefix}{key}", value


def written(value: Any) -> str:
    """A setting as the configuration file writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    return str(value)


def setup(run: Run) -> Section | None:
    parts: list[Html] = []
    command = run.result.get("command")
    if command:
        line = " ".join(str(word) for word in command) if isinstance(command, list) else str(command)
        code = tag("pre", tag("code", line))
        parts.append(tag("div", code, tag("button", "Copy", type="button", class_="copy"), class_="command"))
    if run.config:
        cells = [tag("div", tag("dt", key), tag("dd", written(value))) for key, value in flat(run.config)]
        parts.append(join([tag("h3", "Configuration"), tag("dl", *cells, class_="settings")]))
    elif run.config_text:
        parts.append(join([tag("h3", "Configuration, as written"), tag("pre", run.config_text)]))
    sittings = run.result.get("provenance")
    for sitting in map(fields, sittings if isinstance(sittings, list) else []):
        cells = [
            tag("div", tag("dt", key), tag("dd", written(value))) for key, value in sitting.items() if key != "versions"
        ]
        title = f"Computed by, from round {sitting.get('from_round', 1)} on"
        parts.append(join([tag("h3", title), tag("dl", *cells, class_="settings")]))
    if versions := fields(run.result.get("versions")):
        cells = [tag("div", tag("dt", key), tag("dd", written(value))) for key, value in versions.items()]
        parts.append(join([tag("h3", "Versions"), tag("dl", *cells, class_="settings")]))
    lead = "The command that repeats this run, with every setting it used."
    return Section("setup", "Setup", lead, join(parts)) if parts else None
