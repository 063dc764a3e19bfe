"""The lines a run ends with on the terminal: how well, how private, at what cost, and where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from covey.report.words import duration, percent, size

if TYPE_CHECKING:
    from covey.result import Result


def closing_lines(result: Result) -> list[str]:
    """A few plain sentences; the report has the rest."""
    deviation = (result.seeds or {}).get("std", {}).get("accuracy.average_cluster")
    spread = "" if deviation is None else f" ± {percent(deviation)} over {(result.seeds or {})['n']} seeds"
    where = f"{result.dataset} ({result.stand_in})" if result.stand_in else result.dataset
    lines = [f"accuracy    {percent(result.accuracy['average_cluster'])}{spread}, average over clusters, on {where}"]
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
    for mechanism, spent in result.privacy.items():
        lines.append(
            f"privacy     {mechanism}: ε = {spent.get('epsilon', float('nan')):.3g} at δ = {spent.get('delta', 0):.0e}"
        )
    lines += _rebuilding(result)
    total = sum(result.seconds.values())
    up, down = size(result.bytes["up"]), size(result.bytes["down"])
    lines.append(
        f"cost        {up} up and {down} down per client and round; {duration(total)} in {result.rounds} rounds"
    )
    if result.folder:
        lines.append(f"report      {result.folder / 'report.html'}")
    return lines


def _rebuilding(result: Result) -> list[str]:
    """A warning where rebuilding magnified what it was given (MingledPie): few clients, or clusters that nearly coincide."""
    worst = max((r["extra"].get("condition", 0.0) for r in result.records), default=0.0)
    gain = max((r["extra"].get("noise_gain", 0.0) for r in result.records), default=0.0)
    if worst < 100 and gain < 10:
        return []
    return [
        f"warning     rebuilding was ill-conditioned: cond(H) up to {worst:.0f}, noise magnified up to {gain:.1f} times; "
        "more clients per cluster or fewer clusters would help"
    ]
