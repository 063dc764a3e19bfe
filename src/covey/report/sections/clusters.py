"""Sections on who belongs where: assignment over time, agreement with the truth, soft memberships."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from covey.report.draw.grids import MAX_COLUMNS, MAX_ROWS, Shade, grid_picture, legend, levels, scale_legend
from covey.report.draw.layout import Section, figure, figures
from covey.report.draw.marks import beyond_palette
from covey.report.draw.markup import Html, join
from covey.report.draw.svg import Axis, Series, area_chart, drawable, hue, line_chart, linear
from covey.report.format import percent, plain
from covey.report.sections.training import pick, thinned
from covey.results.contents import Run, evenly, integers, numbers

ABSENT = -1


def choices(run: Run) -> tuple[list[int], list[list[int]]]:
    """Rounds that recorded every client's choice, and the choices: [rounds], [rounds][clients]. Late joiners count as absent."""
    recorded = [(e["round"], c) for e in run.rounds if (c := integers(e.get("clusters"))) is not None]
    width = max((len(c) for _, c in recorded), default=0)
    return [t for t, _ in recorded], [c + [ABSENT] * (width - len(c)) for _, c in recorded]


def client_order(run: Run, last: Sequence[int]) -> tuple[list[int], list[int] | None]:
    """Clients by true cluster, then by their last choice: blocks of one colour show, and strays stand out."""
    truth = run.true_clusters
    truth = truth if truth is not None and len(truth) == len(last) else None
    return sorted(range(len(last)), key=lambda i: (truth[i] if truth else 0, last[i], i)), truth


def blocks(rows: Sequence[int], truth: Sequence[int] | None) -> list[tuple[int, int, str, str]]:
    """Runs of equal true cluster in the order drawn, as strips for `grid_picture`."""
    if truth is None:
        return []
    starts = [i for i in range(len(rows)) if i == 0 or truth[rows[i]] != truth[rows[i - 1]]]
    ends = [*starts[1:], len(rows)]
    return [(a, b, str(truth[rows[a]]), "muted") for a, b in zip(starts, ends)]


def clustering(run: Run) -> Section | None:
    times, picked = choices(run)
    body = figures(
        _assignment(run, times, picked) if picked else None,
        _shares(times, picked) if len(picked) > 1 else None,
        _agreement(run),
        _memberships(run),
    )
    lead = "Which model each client trained, and when it settled. Clusters and clients are numbered from 0, as in metrics.jsonl."
    return Section("clusters", "Clusters", lead, body) if body else None


def round_ticks(times: Sequence[int]) -> list[tuple[float, str]]:
    """Round numbers under the columns that show them (or the nearest one, where rounds were left out)."""
    wanted = linear(times[0], times[-1], tight=True).ticks
    nearest = {min(range(len(times)), key=lambda i: abs(times[i] - value)) for value, _ in wanted} | {0}
    return [((i + 0.5) / len(times), str(times[i])) for i in sorted(nearest)]


def _assignment(run: Run, times: list[int], picked: list[list[int]]) -> Html:
    order, truth = client_order(run, picked[-1])
    rows = [order[i] for i in evenly(len(order), MAX_ROWS)]
    columns = evenly(len(times), MAX_COLUMNS)
    grid = [[picked[t][client] for t in columns] for client in rows]
    present = sorted({choice for row in grid for choice in row if choice >= 0})
    shades = {choice: Shade(hue(choice), f"cluster {choice}") for choice in present}
    count = max(present, default=-1) + 1
    ticks = round_ticks([times[t] for t in columns])
    changed = sum(a != b for early, late in pairwise(picked) for a, b in zip(early, late) if a >= 0)
    words = "One line per client, one column per round, colour: the cluster it chose."
    if truth:
        words += " Clients are sorted by true cluster, named at the left."
    if len(rows) < len(order):
        words += f" {len(rows)} of {len(order):,} clients are drawn, evenly spread in that order."
    if len(columns) < len(times):
        words += f" {len(columns)} of {len(times):,} rounds are drawn."
    words += f" Choices changed {changed:,} times in all." + beyond_palette(count)
    keys = [(hue(c), f"cluster {c}") for c in present[:8]] + ([("other", "others")] if count > 8 else [])
    if any(ABSENT in row for row in grid):
        keys.append(("absent", "has not taken part"))
    picture = grid_picture(
        "Cluster of every client in every round",
        words,
        grid,
        shades,
        [f"client {run.client(i)}" for i in rows],
        [f"round {times[t]}" for t in columns],
        ticks,
        "round",
        blocks(rows, truth),
    )
    return figure("Every client's choice", join([legend(keys), picture]), words)


def _shares(times: list[int], picked: list[list[int]]) -> Html:
    """Exact for any number of clients, unlike the picture above it, which may be a sample."""
    columns = evenly(len(times), MAX_COLUMNS)
    counts = [Counter(choice for choice in picked[t] if choice >= 0) for t in columns]
    totals = [sum(count.values()) or 1 for count in counts]
    seen = sorted({choice for count in counts for choice in count})
    layers = [Series(f"Cluster {c}", [n[c] / total for n, total in zip(counts, totals)], hue(c)) for c in seen if c < 8]
    if seen and seen[-1] >= 8:
        rest = [sum(v for c, v in n.items() if c >= 8) / total for n, total in zip(counts, totals)]
        layers.append(Series("Others", rest, "other"))
    xs = [times[t] for t in columns]
    drawn = area_chart("Share of clients per cluster", "Shares by round.", xs, layers, "share", percent, top=1.0)
    return figure(
        "Size of the clusters", drawn, "Share of all clients that have taken part, by the cluster they chose last."
    )


def _agreement(run: Run) -> Html | None:
    shown, note = thinned(run)
    scores = (
        ("accuracy", "Clients placed right", "placed"),
        ("ari", "Adjusted Rand index", "ARI"),
        ("nmi", "Normalised mutual information", "NMI"),
    )
    lines = drawable(
        [
            Series(name, pick(run.series("clustering", key), shown), hue(i), label)
            for i, (key, name, label) in enumerate(scores)
        ],
        points=2,
    )
    if not lines:
        return None
    xs = [run.rounds[i]["round"] for i in shown]
    low = min(v for line in lines for v in line.values if v is not None)
    y = Axis(0.0, 1.0, tuple((i / 5, plain(i / 5)) for i in range(6))) if low >= 0 else None
    drawn = line_chart(
        "Agreement with the true clusters", "1 is perfect.", xs, lines, "score", lambda v: f"{v:.2f}", y=y
    )
    words = (
        "1 means that the found clusters are the true ones, up to their names; an adjusted index of 0 is what chance gives, mutual "
        "information is then above 0."
    )
    return figure("Agreement with the truth", drawn, words + note)


def latest_memberships(run: Run) -> dict[int, list[float]]:
    """Client -> its soft weights of the last round it took part in; a round holds null for those that did not."""
    memberships: dict[int, list[float]] = {}
    for entry in run.rounds:
        recorded = entry.get("memberships")
        for client, row in enumerate(recorded if isinstance(recorded, list) else ()):
            if (weights := numbers(row)) is not None:
                memberships[client] = weights
    widths = {len(row) for row in memberships.values()}
    return {client: row for client, row in memberships.items() if len(row) == max(widths)}


def _memberships(run: Run) -> Html | None:
    """Soft weights: clients down, clusters across."""
    weights = latest_memberships(run)
    if not weights:
        return None
    truth = run.true_clusters
    truth = truth if truth is not None and len(truth) > max(weights) else None
    strongest = {i: max(range(len(row)), key=row.__getitem__) for i, row in weights.items()}
    order = sorted(weights, key=lambda i: (truth[i] if truth else 0, strongest[i], i))
    rows = [order[i] for i in evenly(len(order), MAX_ROWS)]
    steps, shades = levels([weights[i] for i in rows], "weight")
    k = len(weights[rows[0]])
    ticks = [((j + 0.5) / k, str(j)) for j in evenly(k, 12)]
    words = "How strongly each client belongs to each cluster, in the last round it took part in."
    if truth:
        words += " Clients are sorted by true cluster, named at the left."
    if len(rows) < len(order):
        words += f" {len(rows)} of {len(order):,} clients are drawn."
    names = [f"client {run.client(i)}" for i in rows]
    picture = grid_picture(
        "Memberships",
        words,
        steps,
        shades,
        names,
        [f"cluster {j}" for j in range(k)],
        ticks,
        "cluster",
        blocks(rows, truth),
        sequential=True,
    )
    top = max(value for row in weights.values() for value in row)
    return figure("Memberships", join([scale_legend(top, "weight"), picture]), words)
