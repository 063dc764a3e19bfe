"""The first screen: what was trained, how well, how private, at what cost, in words and four numbers."""

from __future__ import annotations

from functools import partial

from covey.attacks.finding import Finding
from covey.files import number
from covey.report.draw.layout import Tile
from covey.report.draw.marks import covey, spark, stacked_bar, track
from covey.report.draw.markup import Html, join, tag
from covey.report.findings import axis_of, colour_of, name_of, place_of, read_findings, score, verdict_of
from covey.report.format import NBSP, counted, duration, figure_of, percent, plain, sentence_case, size
from covey.report.labels import label
from covey.report.sections.clusters import choices
from covey.report.sections.privacy import read_ledger
from covey.report.sections.quality import beside_in_words, worst_in_words
from covey.report.sections.training import phases_of
from covey.results.contents import Run, dig, numbers
from covey.results.declared import Declared, declared
from covey.results.follow import ordered
from covey.results.measured import measured


def headline(run: Run) -> str:
    """'IFCA trained 5 models for 120 clients on MNIST'; where nobody says how many models, no number."""
    own = declared(run)
    data = run.word("dataset") or str(run.federation.get("dataset") or "")
    what = "gave every client a model of its own" if own.trains == "own" else f"trained {_models(own)}".strip()
    who = f" for {counted(run.clients, 'client')}" if run.clients and own.trains != "own" else ""
    return f"{own.label or 'This run'} {what}{who}" + (f" on {label('dataset', data)}" if data else "")


def _models(own: Declared) -> str:
    if own.models is None:
        return ""
    return "one model" if own.models == 1 else counted(own.models, "model")


def led(run: Run) -> tuple[str, ...]:
    """The kinds of accuracy, the one that leads first."""
    ended = dig(run.result, "accuracy")
    evaluated = (entry["accuracy"] for entry in reversed(run.rounds) if isinstance(entry.get("accuracy"), dict))
    return ordered(ended if isinstance(ended, dict) and ended else next(evaluated, None))


def main_accuracy(run: Run) -> tuple[float, str] | None:
    """The accuracy that leads, and what it is: of the clusters where there are true ones, else the clients', else global."""
    kinds = {
        "average_cluster": "mean of the cluster models, each on its own cluster's test data",
        "client_mean": "mean over clients, each on its own distribution",
        "global": "on the whole test set",
    }
    for key in led(run):
        words = kinds[key]
        if (value := number(run.final("accuracy", key))) is not None:
            return value, words
    return None


def lede(run: Run) -> list[str]:
    """Paragraphs under the headline: how well, then how private. Each sentence stands only where its facts are known."""
    said: list[str] = []
    guarded: list[str] = []
    leading = main_accuracy(run)
    rounds = f"After {counted(run.done_rounds, 'round')}" if run.done_rounds else "So far"
    if leading:
        said.append(f"{rounds} accuracy is {percent(leading[0])}, {leading[1]}.")
    if beside := beside_in_words(run):
        said.append(beside)
    target = number(run.result.get("rounds_to_target"))
    if target is not None:
        said.append(f"The target accuracy was reached in round {int(target)}.")
    ari = number(run.final("clustering", "ari"))
    nmi = number(run.final("clustering", "nmi"))
    right = number(run.final("clustering", "accuracy"))
    if right is not None:
        indices = [f"{name} {value:.2f}" for name, value in (("ARI", ari), ("NMI", nmi)) if value is not None]
        said.append(
            f"{percent(right)} of the clients ended in their true cluster"
            + (f" ({', '.join(indices)})." if indices else ".")
        )
    shields = [
        *(
            [f"updates travelled encrypted ({label('encryption', scheme)})"]
            if (scheme := run.word("encryption"))
            else []
        ),
        *([f"the defence was {label('defence', defence)}"] if (defence := run.word("defence")) else []),
    ]
    plain_text = "updates travelled in the clear" if "encryption" in run.result or "encryption" in run.config else ""
    if shields or plain_text:
        sentence = " and ".join(shields) or plain_text
        guarded.append(sentence[:1].upper() + sentence[1:] + ".")
    if attacks := read_findings(run):
        guarded.append(_worst_in_words(attacks[0]))
    return [" ".join(paragraph) for paragraph in (said, guarded) if paragraph]


def _worst_in_words(worst: Finding) -> str:
    watching = f" watching as the {place}," if (place := place_of(worst)) else ""
    against = f" where guessing gives {score(worst, worst.chance)}" if worst.chance is not None else ""
    return (
        f"The strongest attack, “{name_of(worst)}”,{watching} scores {score(worst, worst.value)}{against} "
        f"({verdict_of(worst)})."
    )


def tiles(run: Run) -> list[Tile]:
    return [_accuracy(run), _privacy(run), _traffic(run), _time(run)]


def _accuracy(run: Run) -> Tile:
    leading = main_accuracy(run)
    if leading is None:
        return _other_metric(run)
    words = [worst] if (worst := worst_in_words(run)) else []
    per_cluster = numbers(run.final("accuracy", "per_cluster"))
    if per_cluster and len(per_cluster) > 1:
        words.append(f"Clusters from {percent(min(per_cluster))} to {percent(max(per_cluster))}.")
    whole = number(run.final("accuracy", "global"))
    if whole is not None and whole != leading[0]:
        words.append(f"Whole test set: {percent(whole)}.")
    if (spread := seeds(run)) is not None:
        words.insert(0, spread)
    key = next(k for k in led(run) if number(run.final("accuracy", k)) is not None)
    clusters = number(run.final("accuracy", "average_cluster"))
    if key != "average_cluster" and clusters is not None and clusters != leading[0]:
        words.append(f"Mean of the clusters, which nobody knows to be true ones: {percent(clusters)}.")
    return Tile("Accuracy", percent(leading[0]), " ".join(words), spark(run.series("accuracy", key)))


def _other_metric(run: Run) -> Tile:
    """What leads where there is no accuracy: the last of the usual metrics of the task."""
    if not (every := measured(run)):
        return Tile("Accuracy", "–", "Not evaluated.")
    one = next((one for one in every if one.name != "loss"), every[0])
    mean, worst = one.figure("mean"), one.figure("worst")
    if mean is None:
        return Tile(one.name.upper(), "–", "Not known.")
    words = "Mean over clients." + ("" if worst is None else f" Worst client: {figure_of(worst, one.as_share)}.")
    return Tile(one.name.upper(), figure_of(mean, one.as_share), words, spark(run.series("metrics", one.name, "mean")))


def seeds(run: Run) -> str | None:
    """'97.1 ± 0.3 % over 5 seeds', where the run was repeated."""
    count = number(dig(run.result, "seeds", "n"))
    if count is None:
        return None
    for key in led(run):
        mean, deviation = (number(dig(run.result, "seeds", part, f"accuracy.{key}")) for part in ("mean", "std"))
        if mean is not None and deviation is not None:
            return f"{100 * mean:.1f} ± {100 * deviation:.1f}{NBSP}% over {counted(int(count), 'seed')}."
    return f"{counted(int(count), 'seed')}."


def _privacy(run: Run) -> Tile:
    findings, ledger = read_findings(run), read_ledger(run)
    spends = [
        f"{label('defence', name)}: ε = {plain(epsilon)}"
        for name, entry in ledger
        if (epsilon := number(entry.get("epsilon"))) is not None
    ]
    if findings:
        worst = findings[0]
        against = f" Guessing: {score(worst, worst.chance)}." if worst.chance is not None else ""
        seen_from = f" ({place})" if (place := place_of(worst)) else ""
        among = f", by the strongest of {len(findings)} attacks" if len(findings) > 1 else ""
        words = f"{sentence_case(worst.verdict)}{among}: {name_of(worst)}{seen_from}.{against}"
        picture = track(
            axis_of(worst),
            worst.value,
            worst.interval,
            worst.chance,
            (),
            partial(score, worst),
            colour_of(worst),
            ticks=False,
        )
        return Tile(
            "Privacy: strongest attack",
            score(worst, worst.value),
            " ".join([words, *(f"{s}." for s in spends)]),
            picture,
        )
    if spends:
        largest = max(n for _, e in ledger if (n := number(e.get("epsilon"))) is not None)
        return Tile("Privacy", f"ε = {plain(largest)}", " ".join(f"{s}." for s in spends) + " No attack was run.")
    if ledger:
        names = ", ".join(label("defence", name) for name, _ in ledger)
        return Tile("Privacy", "no guarantee", f"{names}: no finite ε. No attack was run.")
    words = "No attack was run and no noise was accounted for. `covey audit` runs every attack that applies."
    return Tile("Privacy", "not audited", words_with_code(words))


def _traffic(run: Run) -> Tile:
    up, down = (number(run.final("bytes", way)) for way in ("up", "down"))
    if up is None and down is None:
        return Tile("Cost", "–", "No traffic was recorded.")
    parts = [("up", up or 0.0, "c0"), ("down", down or 0.0, "c1")]
    words = f"per client and round: {size(up or 0)} up, {size(down or 0)} down."
    return Tile("Cost", size((up or 0) + (down or 0)), words, stacked_bar(parts, size))


def _time(run: Run) -> Tile:
    phases = [one for one in phases_of(run) if one[1] > 0]
    total = number(dig(run.result, "seconds", "total")) or sum(value for _, value, _ in phases)
    if not total:
        return Tile("Time", "–", "No time was recorded.")
    words = ""
    if phases:
        name, value, _ = max(phases, key=lambda phase: phase[1])
        words = f"{100 * value / total:.0f} % of it in “{sentence_case(name).lower()}”."
    if run.done_rounds:
        words += f" {duration(total / run.done_rounds)} per round."
    return Tile("Time", duration(total), words, stacked_bar(phases, duration))


def flock(run: Run) -> tuple[Html, str] | None:
    """The clients as dots, by true cluster where known, coloured by their last choice; and its caption."""
    _, picked = choices(run)
    if not picked:
        return None
    last, truth = picked[-1], run.true_clusters
    known = truth is not None and len(truth) == len(last)
    label = truth if known and truth is not None else last
    names = sorted(set(label))
    if len(names) > 40:
        return None
    groups = [[last[i] for i in range(len(last)) if label[i] == name] for name in names]
    picture, stands_for = covey(groups, [f"{'true ' if known else ''}cluster {name}" for name in names])
    words = "Each dot is a client" if stands_for == 1 else f"Each dot is {stands_for} clients"
    words += (
        ", each group a true cluster, each colour the model it trains."
        if known
        else ", coloured by the model it trains."
    )
    if known and any(len({c for c in group if c >= 0}) > 1 for group in groups):
        words += " A ring marks those that differ from most of their group."
    return picture, words


def badges(run: Run) -> list[tuple[str, str]]:
    """(kind, words) that qualify every number below them."""
    marks = []
    stand_in = run.result.get("stand_in") or run.federation.get("stand_in")
    if stand_in:
        words = str(stand_in) if isinstance(stand_in, str) else "generated stand-in data"
        marks.append(("warn", f"{words}; no figure here holds for the real data"))
    start = run.result.get("start")
    if isinstance(start, str) and start:
        marks.append(("fact", f"{start}; who looks for clusters has no such samples, see docs/algorithms/ifca.md"))
    planned = run.planned_rounds
    reached = run.result.get("rounds_to_target") == run.done_rounds  # a run may end as soon as it meets its target
    if not run.result or (planned is not None and run.done_rounds < planned and not reached):
        words = f"stopped after round {run.done_rounds}" + (f" of {planned}" if planned else "")
        marks.append(("warn", f"{words}; `covey resume` goes on"))
    sample = run.federation.get("listed")
    if isinstance(sample, list):
        words = f"figures over clients are of {len(sample):,} of {run.clients or 0:,} clients, drawn by the seed"
        marks.append(("fact", f"{words}; `evaluation.clients = 0` evaluates all"))
    marks += [("warn", problem) for problem in run.problems]
    seed = run.result.get("seed", run.config.get("seed"))
    facts = [
        ("model", run.word("model")),
        ("encryption", run.word("encryption")),
        ("defence", run.word("defence")),
        ("seed", None if seed is None else str(seed)),
    ]
    return marks + [
        ("fact", f"{name} {value if name == 'seed' else label(name, value)}") for name, value in facts if value
    ]


def words_with_code(sentence: str) -> Html:
    """Backticks in our own sentences become <code>; everything is escaped first."""
    return join(tag("code", part) if i % 2 else part for i, part in enumerate(sentence.split("`")))
