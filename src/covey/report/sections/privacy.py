"""Sections on privacy: what attackers learned beside chance and controls, and what the noise ledger adds up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from covey.report.draw.layout import NOTHING, Section, figures, rows_table
from covey.report.draw.marks import track
from covey.report.draw.markup import Html, join, tag
from covey.report.draw.svg import Axis, axis_for
from covey.report.format import counted, number, percent, plain, pretty, sentence_case
from covey.report.sections.measurements import NOISE, keys_of, measured
from covey.report.sections.pictures import pictures_of
from covey.results.contents import Run, dig, fields

WORDS = {"leak": "leaks", "none": "no leak seen", "open": "undecided"}  # for findings that come without a verdict


@dataclass(frozen=True)
class Finding:
    """One attack's score, always read against the best that needs no observation: chance and the controls."""

    name: str
    vantage: str
    metric: str
    value: float
    chance: float | None
    low: float | None
    high: float | None
    controls: tuple[tuple[str, float], ...]
    said: str  # the verdict that the attack itself gave, or nothing
    details: tuple[tuple[str, str], ...]
    pictures: Html = NOTHING
    words: str = ""  # what the score means, where the attack itself says so
    perfect: float = 1.0  # the score of who knows everything; 0 for an error, where less is worse

    @property
    def upwards(self) -> bool:
        """Whether a higher score is the worse leak."""
        return self.chance is None or self.perfect >= self.chance

    @property
    def baseline(self) -> float | None:
        """The strongest score without the observation."""
        known = [score for _, score in self.controls] + ([self.chance] if self.chance is not None else [])
        return (max if self.upwards else min)(known) if known else None

    @property
    def excess(self) -> float:
        """How far beyond that baseline, as a share of the way to a perfect score where there is one."""
        base = self.baseline or 0.0
        if not self.upwards:
            return (base - self.value) / ((base - self.perfect) or 1.0)
        room = self.perfect - base if self.is_share and base < self.perfect else 1.0
        return (self.value - base) / room

    @property
    def is_share(self) -> bool:
        """Whether all its numbers lie in [0, 1] and read as percentages."""
        all_numbers = [self.value, self.chance, self.low, self.high, *(score for _, score in self.controls)]
        return all(0 <= n <= 1 for n in all_numbers if n is not None)

    @property
    def nearest_end(self) -> float | None:
        """The end of the interval that lies nearer to guessing."""
        return self.low if self.upwards else self.high

    def leaks_at(self, score: float, bar: float) -> bool:
        return score > bar if self.upwards else score < bar

    @property
    def blind(self) -> bool:
        """Whether the interval spans all there is: the attack saw too little to say anything."""
        return self.low is not None and self.high is not None and self.low <= 0 and self.high >= 1

    @property
    def kind(self) -> str:
        """'leak' only where the whole interval lies beyond chance and every control; 'open' where that cannot be told."""
        if self.baseline is None or self.nearest_end is None or self.blind:
            return "open"
        return "leak" if self.leaks_at(self.nearest_end, self.baseline) else "none"

    @property
    def reason(self) -> str:
        """Why it is of that kind."""
        base, end = self.baseline, self.nearest_end
        side = "above" if self.upwards else "below"
        if base is None:
            return "nothing to compare with"
        if self.blind:
            return "it saw too little to tell"
        if end is None:
            leaks = self.leaks_at(self.value, base)
            return f"{side} chance and controls, but without an interval" if leaks else f"not {side} chance"
        if self.leaks_at(end, base):
            return f"{side} chance and controls"
        if self.chance is not None and self.leaks_at(end, self.chance):
            best = (max if self.upwards else min)(self.controls, key=lambda control: control[1])[0]
            return f"its control “{best.replace('_', ' ')}” reaches as much"
        return f"chance lies in or {side} the interval"

    @property
    def verdict(self) -> str:
        """The attack's own word where it gave one, and the reason."""
        return f"{WORDS['open'] if self.blind else self.said or WORDS[self.kind]}: {self.reason}"

    def form(self, value: float) -> str:
        return percent(value) if self.is_share else plain(value)


def read_findings(run: Run) -> list[Finding]:
    """Findings of result.json that have a score, the worst first."""
    read = []
    for name, entry in fields(run.result.get("attacks")).items():
        value = number(dig(entry, "value"))
        if value is None:
            continue
        details = dict(fields(entry.get("details")))
        pictures = pictures_of(details)
        details.pop("pictures", None)
        words = str(details.pop("in_words", ""))
        details = {name: value for name, value in details.items() if not _is_table(value)}
        told = ({"used": entry["used"]} if entry.get("used") else {}) | details
        best = number(entry.get("perfect"))
        read.append(
            Finding(
                sentence_case(name),
                _place(str(entry.get("vantage") or "")),
                str(entry.get("metric") or "score").replace("_", " "),
                value,
                number(entry.get("chance")),
                number(entry.get("low")),
                number(entry.get("high")),
                tuple((str(k), s) for k, v in fields(entry.get("controls")).items() if (s := number(v)) is not None),
                str(entry.get("verdict") or ""),
                tuple((sentence_case(k), _brief(v)) for k, v in told.items()),
                pictures,
                words,
                1.0 if best is None else best,
            )
        )
    return sorted(read, key=lambda finding: -finding.excess)


def _is_table(value: Any) -> bool:
    """Records are for programs that read result.json: as prose nobody could follow them."""
    return isinstance(value, list) and any(isinstance(item, Mapping) for item in value)


def _place(vantage: str) -> str:
    """'csp+client:3' -> 'csp and client 3'; a large coalition of clients is named by its ends or its size."""
    parts = vantage.split("+")
    numbers = [int(part.removeprefix("client:")) for part in parts if part.removeprefix("client:").isdigit()]
    if len(parts) > 3 and len(numbers) == len(parts):
        running = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        return f"clients {numbers[0]} to {numbers[-1]}" if running else f"{len(numbers)} clients"
    return vantage.replace("+", " and ").replace(":", " ")


def _brief(value: Any) -> str:
    if (found := number(value)) is not None:
        return plain(found)
    if isinstance(value, list) and len(value) > 8:
        return f"{', '.join(_brief(item) for item in value[:8])}, … ({len(value)} values)"
    if isinstance(value, list):
        return ", ".join(_brief(item) for item in value)
    if isinstance(value, Mapping):
        return "; ".join(f"{str(key).replace('_', ' ')}: {_brief(item)}" for key, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def attacks(run: Run) -> Section | None:
    found = read_findings(run)
    if not found:
        return None
    leaks = sum(finding.kind == "leak" for finding in found)
    lead = (
        f"{counted(len(found), 'attack')} watched this run from the places named; {leaks or 'none'} learned more than guessing "
        "and every control did. Dot and bar: score and its interval. Upright line: chance. "
        "Diamonds: attackers that ignore what was observed."
    )
    return Section("attacks", "Attacks", lead, tag("ol", *(_finding(one) for one in found), class_="findings"))


def finding_axis(finding: Finding) -> Axis:
    if finding.is_share:
        return Axis(0.0, 1.0, tuple((i / 4, f"{25 * i} %") for i in range(5)))
    every = [finding.value, finding.chance, finding.low, finding.high, *(s for _, s in finding.controls)]
    return axis_for([n for n in every if n is not None] + [0.0])


def interval_of(finding: Finding) -> tuple[float, float] | None:
    return None if finding.low is None or finding.high is None else (finding.low, finding.high)


def _finding(one: Finding) -> Html:
    head = tag(
        "h3", one.name, tag("span", f" from the view of the {one.vantage}" if one.vantage else "", class_="soft")
    )
    chip = tag("p", one.verdict, class_=f"chip {one.kind}")
    axis = finding_axis(one)
    colour = {"leak": "bad", "none": "good", "open": "ink"}[one.kind]
    picture = track(axis, one.value, interval_of(one), one.chance, one.controls, one.form, colour)
    numbers = [tag("b", one.form(one.value)), f" {one.metric}"]
    if interval_of(one):
        numbers.append(f" ({one.form(one.low or 0.0)} to {one.form(one.high or 0.0)})")
    if one.chance is not None:
        numbers.append(f"; chance {one.form(one.chance)}")
    numbers += [f"; {name.replace('_', ' ')} {one.form(score)}" for name, score in one.controls]
    more = ". ".join(f"{name}: {value}" for name, value in one.details)
    foot = tag("p", more, class_="soft small-text") if more else Html("")
    words = tag("p", one.words, class_="caveat") if one.words else Html("")
    said = tag("div", picture, tag("p", *numbers, class_="numbers"), words, foot)
    return tag("li", tag("div", head, chip), said, one.pictures)


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
    noise = [picture for key in keys_of(run) if key in NOISE and (picture := measured(run, key))]
    if not entries and not noise:
        return None
    lead = "What each mechanism spends, how the spends were added up, and what the number does not promise."
    rows = [
        [
            pretty(name),
            tag("b", f"ε = {_cell(entry, 'epsilon')}"),
            f"δ = {_cell(entry, 'delta')}",
            _cell(entry, "per_step"),
            _cell(entry, "sensitivity"),
            _cell(entry, "composition"),
        ]
        for name, entry in entries
    ]
    head = ("Mechanism", "Total ε", "δ", "Per step", "Sensitivity", "Composition")
    table = rows_table(head, rows, "ledger") if rows else Html("")
    caveats = [
        tag("p", tag("b", f"{pretty(name)}: "), str(entry["caveat"]), class_="caveat")
        for name, entry in entries
        if entry.get("caveat")
    ]
    return Section("ledger", "Noise and its ledger", lead, join([table, *caveats, figures(*noise)]))


def _cell(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return "–" if value in (None, "") else _brief(value)
