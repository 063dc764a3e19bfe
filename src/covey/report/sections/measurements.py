"""What an algorithm records about itself: MingledPie's counts and condition, FedCAPrivacy's affinities, noise, anything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from covey.report.draw.grids import matrix
from covey.report.draw.layout import Section, figure, figures
from covey.report.draw.marks import bars
from covey.report.draw.markup import Html, tag
from covey.report.draw.svg import Series, drawable, hue, line_chart
from covey.report.format import number, plain, pretty, sentence_case
from covey.report.sections import similarity
from covey.report.sections.training import thinned
from covey.results.contents import Run, dig, fields, numbers, table

FOR_SCORING = ("order",)  # whose row is whose: attacks are scored against it, and a chart of it says nothing
NOISE = ("clip", "noise", "noise_multiplier", "sigma", "epsilon")
KNOWN = {
    "condition": (
        "Condition of the counts",
        "cond(H)",
        "How much rebuilding may amplify errors: 1 is the best there is, and a singular H has none.",
    ),
    "noise_gain": ("Noise gain", "gain", "By how much rebuilding magnifies the noise that a plain average would have."),
    "eigengap": (
        "Eigengap",
        "gap",
        "Gap between the eigenvalues that part the clusters; near 0, their number is a guess.",
    ),
    "affinity_quantiles": (
        "Affinities",
        "affinity",
        "Quantiles of clients' similarity. If all are near 0 or near 1, γ does not fit.",
    ),
    "clip": ("Clipping bound", "norm", "Largest norm of one contribution; longer ones are scaled down to it."),
    "noise": ("Noise", "norm", "Norm of the noise that a client adds in a round, mean over clients."),
}


def keys_of(run: Run) -> list[str]:
    """Names under `extra`, in order of first appearance."""
    seen: dict[str, None] = {}
    for entry in run.rounds:
        seen.update(dict.fromkeys(fields(entry.get("extra"))))
    return [str(key) for key in seen]


def algorithm(run: Run) -> Section | None:
    """Everything under `extra` except noise, which stands with the privacy ledger."""
    keys = [key for key in keys_of(run) if key not in (*NOISE, *FOR_SCORING, *similarity.KEYS)]
    body = figures(*similarity.selection(run), *(measured(run, key) for key in keys))
    name = run.word("algorithm", "algorithm") or "the algorithm"
    lead = "Measurements that the algorithm takes of itself while it runs."
    return Section("algorithm", f"Inside {pretty(name)}", lead, body) if body else None


def measured(run: Run, key: str) -> Html | None:
    """The picture that fits what was recorded: a count matrix, a histogram, or lines."""
    last = run.latest("extra", key)
    if key == "identity_sizes":
        return _identity_sizes(run, last)
    grid = table(last)
    if grid is not None:
        return _matrix(key, grid)
    title, unit, words = KNOWN.get(key, (sentence_case(key), "", ""))
    shown, note = thinned(run)
    values = [dig(run.rounds[i], "extra", key) for i in shown]
    series = lines_of(values, _names_for(run, key))
    if not series:
        return None
    found = {value for one in series for value in one.values if value is not None}
    if len(found) == 1 and len(run.rounds) > 1:  # a flat line is a number
        return figure(title, tag("p", tag("b", plain(found.pop())), " in every round", class_="constant"), words)
    xs = [run.rounds[i]["round"] for i in shown]
    drawn = line_chart(title, words or f"{key} by round", xs, series, unit, plain, log=True, height=190)
    return figure(title, drawn, words + note)


def _names_for(run: Run, key: str) -> list[str]:
    """What the entries of a short list stand for, where that is known: five quantiles, or the clusters."""
    if key.endswith("quantiles"):
        return ["smallest", "lower quarter", "median", "upper quarter", "largest"]
    clusters = number(run.config.get("clusters"))
    return [f"cluster {j}" for j in range(int(clusters))] if clusters else []


def lines_of(values: Sequence[object], entries: Sequence[str] = ()) -> list[Series]:
    """Scalars give one line, short lists one per entry, long lists (one value per client) their spread; tables by name."""
    if any(isinstance(value, dict) for value in values):
        names = list(dict.fromkeys(key for value in values if isinstance(value, dict) for key in value))
        return _present(names, lambda value, i: dig(value, names[i]), values)
    lengths = {len(value) for value in values if isinstance(value, list)}
    if not lengths:
        return _present([""], lambda value, i: value, values)
    longest = max(lengths)
    if longest <= 8:
        names = list(entries) if len(entries) == longest else [str(i) for i in range(longest)]
        return _present(names, _entry, values)
    ordered = [sorted(found) if (found := numbers(value)) else None for value in values]
    spots = {"smallest": 0.0, "median": 0.5, "largest": 1.0}
    return _present(list(spots), lambda v, i: v[round(list(spots.values())[i] * (len(v) - 1))] if v else None, ordered)


def _entry(value: object, i: int) -> object:
    return value[i] if isinstance(value, list) and i < len(value) else None


def _present(names: list[str], get: Callable[..., object], values: Sequence[object]) -> list[Series]:
    lines = [Series(name, [number(get(value, i)) for value in values], hue(i), name) for i, name in enumerate(names)]
    return drawable(lines)


def _matrix(key: str, grid: list[list[float]]) -> Html | None:
    if len(grid) > 30 or len(grid[0]) > 30:
        return None  # a table that nobody could read
    if key == "mingled":
        words = "Row a, column b: clients that showed set a and truly chose b, in the last round. A strong diagonal rebuilds well."
        return figure("Mingled membership counts", matrix("Mingled membership counts", words, grid, "set", "true"))
    title = sentence_case(key)
    return figure(title, matrix(title, "In the last round that recorded it.", grid, "row", "col"))


def _identity_sizes(run: Run, last: object) -> Html | None:
    """|G_j|, the clients that showed each identity, where there is one number per cluster; else how large clients' sets are."""
    found = numbers(last)
    if found is None:
        return None
    counts = table(run.latest("extra", "mingled"))
    if counts is not None and len(counts) == len(found):
        rows = [(f"Cluster {j}", value, hue(j)) for j, value in enumerate(found)]
        words = "Clients that showed each cluster's identity, true or not, in the last round."
        return figure("Clients per shown identity", bars("Clients per shown identity", words, rows), words)
    tally = Counter(int(value) for value in found)
    rows = [(f"{n} identit{'y' if n == 1 else 'ies'}", float(tally[n]), "c0") for n in sorted(tally)]
    words = "How many identities each client showed in the last round: the more, the better its own is hidden."
    return figure("Size of the identity sets", bars("Size of the identity sets", words, rows), words)
