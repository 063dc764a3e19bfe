"""The lines a run ends with on the terminal: how well, how private, at what cost, and where to look."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

from covey.attacks.finding import Finding
from covey.ledger.entries import large_delta
from covey.ledger.events import CLIENT
from covey.measures import DISCARDED, STALENESS, STALEST
from covey.report.findings import UNSCORED
from covey.report.format import counted, duration, figure_of, percent, plain, size
from covey.results.declared import read
from covey.results.figures import Figures
from covey.results.folder import RunFolder
from covey.results.follow import KINDS, ordered
from covey.results.measured import CONSTANT, LEADING, Measured, constant, shown
from covey.results.measured import read as read_metrics

MEANS = {
    "average_cluster": "average over clusters",
    "client_mean": "mean over clients, each on its own data",
    "global": "on the whole test set",
}


def show(result: Figures, as_json: bool) -> None:
    """Prints how a run ended: these lines, or result.json."""
    print(json.dumps(result.json(), indent=1) if as_json else "\n".join(closing_lines(result)))


def closing_lines(result: Figures) -> list[str]:
    """A few plain sentences; the report has the rest."""
    kinds = ordered(result.accuracy)
    deviation = (result.seeds or {}).get("std", {}).get(f"accuracy.{kinds[0]}")
    spread = "" if deviation is None else f" ± {percent(deviation)} over {(result.seeds or {})['n']} seeds"
    where = f"{result.dataset} ({result.stand_in})" if result.stand_in else result.dataset
    if result.accuracy:
        lines = [f"accuracy    {percent(result.accuracy[kinds[0]])}{spread}, {MEANS[kinds[0]]}, on {where}"]
        over_clusters = percent(result.accuracy["average_cluster"]) if kinds != KINDS else ""
        if over_clusters and over_clusters != percent(result.accuracy[kinds[0]]):
            lines.append(
                f"            {over_clusters} is {MEANS['average_cluster']}, which nobody knows to be true ones"
            )
        if (held := result.accuracy.get("training")) is not None:
            lines.append(f"            {percent(held)} on the samples that clients train on")
    elif result.metrics:
        lines = [f"data        {where}: numbers are predicted, which have no accuracy"]
    else:
        lines = [
            "accuracy    not known here: silos keep theirs, unless the experiment asks and they agree to report it"
        ]
    lines += _sample(result)
    lines += _metrics(result)
    if result.clustering and "accuracy" in result.clustering:
        lines.append(f"clustering  {percent(result.clustering['accuracy'])} of the clients in their true cluster")
    lines += _newcomers(result)
    lines += _staleness(result)
    if result.start:
        lines.append(f"start       {result.start}")
    for name, entry in result.attacks.items():
        lines += _attack(name, Finding.of(name, entry))
    lines += [f"privacy     {mechanism}: {_spent(entry)}" for mechanism, entry in result.privacy.items()]
    lines += _warnings(result)
    total = sum(result.seconds.values())
    up, down = size(result.bytes["up"]), size(result.bytes["down"])
    lines.append(
        f"cost        {up} up and {down} down per client and round; {duration(total)} in {counted(result.rounds, 'round')}"
    )
    if result.folder and RunFolder(result.folder).report.exists():
        lines.append(f"report      {RunFolder(result.folder).report}")
    return lines


def _sample(result: Figures) -> list[str]:
    """Of whom the figures are, where not all clients are evaluated."""
    last = next((r["evaluated"] for r in reversed(result.records) if "evaluated" in r), None)
    if last is None:
        return []
    return [
        f"            of {last['clients']:,} of {last['of']:,} clients, drawn by the seed; evaluation.clients = 0 evaluates all"
    ]


def _newcomers(result: Figures) -> list[str]:
    """Accuracy of clients that joined later: as they came, after one round, after five; of all of them, whenever they came."""
    said = []
    for age, words in (("0", "on arrival"), ("1", "after 1 round"), ("5", "after 5")):
        at = [r["newcomers"][age] for r in result.records if age in r.get("newcomers", {})]
        if count := sum(one["clients"] for one in at):
            said.append(f"{percent(sum(one['accuracy'] * one['clients'] for one in at) / count)} {words}")
    return [f"newcomers   {', '.join(said)}"] if said else []


def _staleness(result: Figures) -> list[str]:
    """Of asynchronous rounds: how old the replies were, and how many came to nothing."""
    noted = [r["extra"] for r in result.records if STALENESS in r["extra"]]
    replies = [r["participants"] for r in result.records if STALENESS in r["extra"]]
    if not noted:
        return []
    mean = sum(one[STALENESS] * count for one, count in zip(noted, replies)) / max(1, sum(replies))
    most, thrown = max(one[STALEST] for one in noted), sum(one[DISCARDED] for one in noted)
    return [
        f"staleness   replies {mean:.1f} rounds old in the mean, {most:.0f} at most; {thrown:.0f} trainings took too long "
        f"and were discarded"
    ]


def _metrics(result: Figures) -> list[str]:
    """How clients differ in what leads, then what was asked for, and what accuracy hides where classes are uneven."""
    every, is_uneven = read_metrics(result.metrics), bool(result.classes.get("uneven"))
    lines = [f"clients     {spread}" for one in every if one.name == LEADING and (spread := _spread(one))]
    for one in shown(every, is_uneven):
        if (mean := one.figure("mean")) is None:
            lines.append(f"{one.name:<11} not known: {one.figures.get('why', 'no client has samples to tell it by')}")
        else:
            said = [f"{figure_of(mean, one.as_share)}, mean over clients", _spread(one)]
            lines.append(f"{one.name:<11} {'; '.join(filter(None, said))}")
    shares = [share for share in result.classes.get("share", ()) if share]
    if result.accuracy and is_uneven and shares and max(shares) >= 2 * min(shares):
        lines.append(
            f"            classes are uneven ({percent(min(shares))} to {percent(max(shares))} of test samples): "
            "accuracy hides how small ones fare"
        )
    return lines


def _spread(one: Measured) -> str:
    worst, tenth, gap = (one.figure(name) for name in ("worst", "p10", "gap"))
    if worst is None or tenth is None or gap is None or gap < 1e-9:  # all alike, up to rounding
        return ""
    form = partial(figure_of, as_share=one.as_share)
    return f"worst client {form(worst)}, worst tenth {form(tenth)}, gap {form(gap)}"


def _attack(name: str, finding: Finding | None) -> list[str]:
    if finding is None:
        return [f"attack      {name}: {UNSCORED}"]
    finding = finding.strongest
    beside = {"chance": finding.chance, **finding.controls}
    against = ", ".join(f"{name} {value:.3f}" for name, value in beside.items() if value is not None)
    interval = f"{finding.interval[0]:.3f} to {finding.interval[1]:.3f}; " if finding.interval else ""
    return [
        f"attack      {finding.attack} from {finding.vantage}: {finding.verdict}; {finding.metric} {finding.value:.3f}",
        f"            ({interval}{against}{f'; {finding.used}' if finding.used else ''})",
    ]


def _spent(entry: dict[str, Any]) -> str:
    """What the ledger says of a mechanism: its ε, or why there is none."""
    if "why" in entry:
        return f"not priced: {entry['why']}"
    if entry["epsilon"] is None:
        return "nothing is guaranteed (ε = ∞)"
    unit = f", of one {entry['unit']}" if "unit" in entry else ""
    at = "" if entry["delta"] == 0 else f" at δ = {entry['delta']:.2g}"
    return "; ".join([f"ε = {entry['epsilon']:.3g}{at}{unit}", *_large(entry)])


def _large(entry: dict[str, Any]) -> list[str]:
    """Of a whole client only: one of few may be shown by lot."""
    return large_delta(entry["delta"]) if entry.get("unit") == CLIENT else []


def _warnings(result: Figures) -> list[str]:
    """What an algorithm declares to be too much, where a run has recorded as much; and models that learned nothing."""
    lines = [f"warning     {CONSTANT}"] if constant(result.classes) else []
    for key, measure in read(result.declared).measures.items():
        worst = _largest(result, key)
        if measure.warning and worst >= measure.alarm:
            lines.append(f"warning     {measure.warning.replace('{}', plain(worst))}")
    return lines


def _largest(result: Figures, name: str) -> float:
    """Of what the rounds recorded; a resumed run reads an infinite one back as None."""
    noted = [r["extra"][name] for r in result.records if name in r["extra"]]
    return max((math.inf if value is None else value for value in noted), default=-math.inf)
