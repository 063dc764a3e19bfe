"""The lines a run ends with on the terminal: how well, how private, at what cost, and where to look."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from covey.report.format import duration, percent, size

if TYPE_CHECKING:
    from covey.rounds.result import Result


def show(result: Result, as_json: bool) -> None:
    """Prints how a run ended: these lines, or result.json."""
    print(json.dumps(result.json(), indent=1) if as_json else "\n".join(closing_lines(result)))


def closing_lines(result: Result) -> list[str]:
    """A few plain sentences; the report has the rest."""
    deviation = (result.seeds or {}).get("std", {}).get("accuracy.average_cluster")
    spread = "" if deviation is None else f" ± {percent(deviation)} over {(result.seeds or {})['n']} seeds"
    where = f"{result.dataset} ({result.stand_in})" if result.stand_in else result.dataset
    if result.accuracy:
        lines = [
            f"accuracy    {percent(result.accuracy['average_cluster'])}{spread}, average over clusters, on {where}"
        ]
    else:
        lines = [
            "accuracy    not known here: silos keep theirs, unless the experiment asks and they agree to report it"
        ]
    if result.clustering and "accuracy" in result.clustering:
        lines.append(f"clustering  {percent(result.clustering['accuracy'])} of the clients in their true cluster")
    for name, found in result.attacks.items():
        expected = found["details"].get("closed form")
        references = {} if expected is None else {"closed form": expected}
        references |= {"chance": found["chance"], **found["controls"]}
        beside = ", ".join(f"{c} {v:.3f}" for c, v in references.items())
        interval = f"{found['low']:.3f} to {found['high']:.3f}"
        lines.append(
            f"attack      {name} from {found['vantage']}: {found['verdict']}; {found['metric']} {found['value']:.3f}"
        )
        lines.append(f"            ({interval}; {beside})")
    lines += [f"privacy     {mechanism}: {_spent(entry)}" for mechanism, entry in result.privacy.items()]
    lines += _rebuilding(result)
    total = sum(result.seconds.values())
    up, down = size(result.bytes["up"]), size(result.bytes["down"])
    lines.append(
        f"cost        {up} up and {down} down per client and round; {duration(total)} in {result.rounds} rounds"
    )
    if result.folder:
        lines.append(f"report      {result.folder / 'report.html'}")
    return lines


def _spent(entry: dict[str, Any]) -> str:
    """What the ledger says of a mechanism: its ε, or why there is none."""
    if "why" in entry:
        return f"not priced: {entry['why']}"
    if entry["epsilon"] is None:
        return "nothing is guaranteed (ε = ∞)"
    return f"ε = {entry['epsilon']:.3g} at δ = {entry['delta']:.0e}"


def _rebuilding(result: Result) -> list[str]:
    """A warning where rebuilding magnified what it was given (MingledPie): few clients, or clusters that nearly coincide."""
    worst, gain = (_largest(result, name) for name in ("condition", "noise_gain"))
    if worst < 100 and gain < 10:
        return []
    return [
        f"warning     rebuilding was ill-conditioned: cond(H) up to {worst:.0f}, noise magnified up to {gain:.1f} times; "
        "more clients per cluster or fewer clusters would help"
    ]


def _largest(result: Result, name: str) -> float:
    """Of what the rounds recorded; a resumed run reads an infinite one back as None."""
    found = [r["extra"][name] for r in result.records if name in r["extra"]]
    return max((math.inf if value is None else value for value in found), default=0.0)
