"""A sweep's table as text: a line per setting, mean ± standard deviation over its seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from covey.report.format import counted, duration, percent
from covey.report.text_table import text_table

if TYPE_CHECKING:
    from covey.sweep.grid import Summary, Sweep

SHOWN = ("accuracy.average_cluster", "accuracy.client_mean", "accuracy.global", "clustering.ari")
OF_METRICS = ("mean", "worst")  # of those that the sweep asks for, and of all where there is no accuracy


def lines(sweep: Sweep) -> list[str]:
    """The table, what failed, and where the page is."""
    attacks = sorted(
        {path for s in sweep.settings for path in s.mean if path.startswith("attacks.") and path.endswith(".value")}
    )
    columns = [path for path in (*SHOWN, *_metrics(sweep), *attacks) if any(path in s.mean for s in sweep.settings)]
    heads = [
        path.removeprefix("accuracy.").removeprefix("metrics.").removeprefix("attacks.").removesuffix(".value")
        for path in columns
    ]
    rows = [[*sweep.axes, "seeds", *(head.replace("_", " ").replace(".", " ") for head in heads), "time"]]
    for one in sweep.settings:
        cells = [_figure(one, path) for path in columns]
        spent = sum(v for path, v in one.mean.items() if path.startswith("seconds."))
        rows.append([*(one.values[key] for key in sweep.axes), str(len(one.seeds)), *cells, duration(spent)])
    text = text_table(rows)
    if sweep.failed:
        text += ["", f"{counted(len(sweep.failed), 'run')} failed:"]
        text += [f"  {title}: {why}" for title, why in sweep.failed.items()]
    return [*text, "", f"page  {sweep.page}" if sweep.page else f"runs  {sweep.folder}"]


def _metrics(sweep: Sweep) -> list[str]:
    """Paths of the metrics that were asked for; where nothing has an accuracy, of all."""
    known = dict.fromkeys(path.split(".")[1] for s in sweep.settings for path in s.mean if path.startswith("metrics."))
    scored = any(path in s.mean for s in sweep.settings for path in SHOWN[:1])
    names = [name for name in known if not scored or name in sweep.asked]
    return [f"metrics.{name}.{figure}" for name in names for figure in OF_METRICS]


def _figure(one: Summary, path: str) -> str:
    if path not in one.mean:
        return "–"
    share = path.startswith("accuracy.")
    if path not in one.std:
        return percent(one.mean[path]) if share else f"{one.mean[path]:.3f}"
    if share:
        return f"{100 * one.mean[path]:.2f} ± {100 * one.std[path]:.2f} %"
    return f"{one.mean[path]:.3f} ± {one.std[path]:.3f}"
