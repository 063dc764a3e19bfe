"""Sections on privacy: what attackers learned beside chance and controls, and what the noise ledger adds up to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from covey.attacks.finding import NOT_MEASURED, Finding
from covey.ledger.events import CLIENT, RECORD
from covey.measures import NOISE
from covey.report.draw.layout import Section, figures, rows_table
from covey.report.draw.marks import track
from covey.report.draw.markup import Html, join, tag
from covey.report.findings import (
    CHIPS,
    UNSCORED,
    axis_of,
    brief,
    chip_of,
    colour_of,
    metric_of,
    name_of,
    place_of,
    read_findings,
    remarks,
    score,
    unscored,
    verdict_of,
)
from covey.report.format import counted, sentence_case
from covey.report.labels import label
from covey.report.sections.measurements import keys_of, measured
from covey.report.sections.pictures import pictures_of
from covey.results.contents import Run
from covey.results.declared import declared


def attacks(run: Run) -> Section | None:
    findings, silent = read_findings(run), unscored(run)
    if not findings and not silent:
        return None
    leaks = sum(chip_of(finding) == "leak" for finding in findings)
    lead = (
        f"{counted(len(findings) + len(silent), 'attack')} watched this run from the places named; {leaks or 'none'} learned more "
        "than guessing and every control did. Dot and bar: score and its interval. Upright line: chance. "
        "Diamonds: attackers that ignore what was observed."
    )
    items = [*(_finding(one) for one in findings), *(_unscored(name) for name in silent)]
    return Section("attacks", "Attacks", lead, tag("ol", *items, class_="findings"))


def _unscored(name: str) -> Html:
    return tag("li", tag("div", tag("h3", name), tag("p", UNSCORED, class_=f"chip {CHIPS[NOT_MEASURED]}")))


def _finding(one: Finding) -> Html:
    place = place_of(one)
    head = tag("h3", name_of(one), tag("span", f" from the view of the {place}" if place else "", class_="soft"))
    chip = tag("p", verdict_of(one), class_=f"chip {chip_of(one)}")
    controls = tuple(one.controls.items())
    picture = track(axis_of(one), one.value, one.interval, one.chance, controls, partial(score, one), colour_of(one))
    words = tag("p", said, class_="caveat") if (said := one.details.get("in_words")) else Html("")
    more = ". ".join([*([sentence_case(one.means)] if one.means else []), *(f"{k}: {v}" for k, v in remarks(one))])
    foot = tag("p", more, class_="soft small-text") if more else Html("")
    stronger = [tag("p", f"{sentence_case(v.attack)}: ", *_numbers(v), class_="numbers") for v in one.variants]
    body = tag("div", picture, tag("p", *_numbers(one), class_="numbers"), *stronger, words, foot)
    return tag("li", tag("div", head, chip), body, pictures_of(one.details))


def _numbers(one: Finding) -> list[Html | str]:
    """The score, its interval, and all that it must be read against."""
    parts: list[Html | str] = [tag("b", score(one, one.value)), f" {metric_of(one)}"]
    if one.interval:
        parts.append(f" ({score(one, one.interval[0])} to {score(one, one.interval[1])})")
    if one.chance is not None:
        parts.append(f"; chance {score(one, one.chance)}")
    return [*parts, *(f"; {name.replace('_', ' ')} {score(one, value)}" for name, value in one.controls.items())]


def read_ledger(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """Ledger entries as (mechanism, fields), from a table by mechanism or a list of entries."""
    privacy = run.result.get("privacy")
    if isinstance(privacy, dict):
        return [(str(name), entry) for name, entry in privacy.items() if isinstance(entry, dict)]
    entries: list[tuple[str, dict[str, Any]]] = []
    for entry in privacy if isinstance(privacy, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("mechanism"), str):
            entries.append((entry["mechanism"], entry))
        elif isinstance(entry, dict):
            entries += [(str(name), fields) for name, fields in entry.items() if isinstance(fields, dict)]
    return entries


def privacy(run: Run) -> Section | None:
    entries = read_ledger(run)
    own = declared(run)
    noise = [picture for key in keys_of(run) if key in own.shown(NOISE) and (picture := measured(run, own, key))]
    if not entries and not noise:
        return None
    lead = (
        "What each mechanism spends, how the spends were added up, and what the number does not promise. A record is one "
        "sample of one client; a client is all that it holds, and its cluster."
    )
    rows = [
        [
            label("defence", name),
            str(entry.get("unit", RECORD)),
            tag("b", f"ε = {_cell(entry, 'epsilon')}"),
            _of_unit(entry, RECORD),
            _of_unit(entry, CLIENT),
            f"δ = {_cell(entry, 'delta')}",
            _cell(entry, "per_step"),
            _cell(entry, "sensitivity"),
            _cell(entry, "composition"),
        ]
        for name, entry in entries
    ]
    head = ("Mechanism", "Unit", "Total ε", "of a record", "of a client", "δ", "Per step", "Sensitivity", "Composition")
    table = rows_table(head, rows, "ledger") if rows else Html("")
    caveats = [
        tag("p", tag("b", f"{label('defence', name)}: "), str(entry["caveat"]), class_="caveat")
        for name, entry in entries
        if entry.get("caveat")
    ]
    return Section("ledger", "Noise and its ledger", lead, join([table, *caveats, figures(*noise)]))


def _of_unit(entry: Mapping[str, Any], unit: str) -> str:
    """ε of one record, or of one client with all its records; older folders know the first only."""
    known = entry.get("units") or {RECORD: entry.get("epsilon")}
    value = known.get(unit)
    return "none" if value is None else brief(value)


def _cell(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return "–" if value in (None, "") else brief(value)
