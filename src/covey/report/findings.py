"""A finding as pages show it: its name, its place, its axis and its colours. The verdict is the finding's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covey.attacks.finding import BROKEN, LEAKS, NOT_MEASURED, NOTHING_SEEN, Finding
from covey.report.draw.svg import Axis, axis_for
from covey.report.format import percent, plain, sentence_case
from covey.report.labels import attack_label
from covey.results.contents import Run, fields

CHIPS = {BROKEN: "leak", LEAKS: "leak", NOTHING_SEEN: "none", NOT_MEASURED: "open"}  # classes of the style sheet
COLOURS = {"leak": "bad", "none": "muted", "open": "ink"}  # none is green: nothing is shown to be safe


def read_findings(run: Run) -> list[Finding]:
    """Findings of result.json that have a score, the worst first."""
    entries = fields(run.result.get("attacks")).items()
    read = [finding.strongest for name, entry in entries if (finding := Finding.of(str(name), entry)) is not None]
    return sorted(read, key=lambda finding: -finding.excess)


UNSCORED = f"{NOT_MEASURED}: its score is not defined in this run"


def unscored(run: Run) -> list[str]:
    """Attacks of result.json that ended without a score: they are not to pass for attacks that nobody made."""
    entries = fields(run.result.get("attacks")).items()
    return [attack_label(str(name)) for name, entry in entries if Finding.of(str(name), entry) is None]


def name_of(finding: Finding) -> str:
    return attack_label(finding.attack)


def chip_of(finding: Finding) -> str:
    return CHIPS[finding.verdict]


def colour_of(finding: Finding) -> str:
    return COLOURS[chip_of(finding)]


def verdict_of(finding: Finding) -> str:
    """The verdict and its reason."""
    return f"{finding.verdict}: {finding.why}"


def metric_of(finding: Finding) -> str:
    return finding.metric.replace("_", " ")


def place_of(finding: Finding) -> str:
    """'csp+client:3' -> 'csp and client 3'; a large coalition of clients is named by its ends or its size."""
    parts = finding.vantage.split("+")
    clients = [int(part.removeprefix("client:")) for part in parts if part.removeprefix("client:").isdigit()]
    if len(parts) > 3 and len(clients) == len(parts):
        running = clients == list(range(clients[0], clients[0] + len(clients)))
        return f"clients {clients[0]} to {clients[-1]}" if running else f"{len(clients)} clients"
    return finding.vantage.replace("+", " and ").replace(":", " ")


def score(finding: Finding, value: float) -> str:
    """One of its numbers, as people read it."""
    return percent(value) if finding.is_share else plain(value)


def axis_of(finding: Finding) -> Axis:
    if finding.is_share:
        return Axis(0.0, 1.0, tuple((i / 4, f"{25 * i} %") for i in range(5)))
    numbers = (finding.value, finding.chance, finding.low, finding.high, *finding.controls.values(), 0.0)
    return axis_for([number for number in numbers if number is not None])


def remarks(finding: Finding) -> list[tuple[str, str]]:
    """(name, words) of what it used and of the details that can be read as prose: tables are for programs."""
    details = {k: v for k, v in finding.details.items() if k not in ("pictures", "in_words") and not _is_table(v)}
    used = {"used": finding.used} if finding.used else {}
    return [(sentence_case(key), brief(value)) for key, value in (used | details).items()]


def brief(value: Any) -> str:
    """A value of a file in a few words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return plain(value)
    if isinstance(value, list) and len(value) > 8:
        return f"{', '.join(brief(item) for item in value[:8])}, … ({len(value)} values)"
    if isinstance(value, list):
        return ", ".join(brief(item) for item in value)
    if isinstance(value, Mapping):
        return "; ".join(f"{str(key).replace('_', ' ')}: {brief(item)}" for key, item in value.items())
    return str(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
