"""The leaderboard as a page, a picture and lines for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from covey.papers.cells import Cell
from covey.papers.field.leaderboard import Standing, chosen, label_of, places, standings
from covey.papers.field.leaks import Worst, worst_leaks
from covey.papers.field.published import REMEMBERED
from covey.papers.field.settings import SETTINGS
from covey.papers.harness import Reproduction, stored
from covey.papers.pages.markdown import GENERATED, dataset_name, table, verdict_words
from covey.papers.pages.shapes import Beside
from covey.papers.verdict import FAILS, HOLDS, UNMEASURED, Claim
from covey.report.draw import standing
from covey.report.format import counted, percent
from covey.report.text_table import text_table

PICTURE = "figures/field.svg"
UNKNOWN = "not measured"
UNPROTECTED = (
    "**No row is a private run.** *Private* names what a method was made for: here all of them run without encryption and without "
    "DP noise on models (R-DPCFL and RR-Cluster are made for training under noise and have none), so their ranks are "
    "those of their way of clustering, and what protection costs is not in them: [the frontier](frontier.md), "
    "[their own tables](results.md). What a method mixes by itself stays on at its default: MingledPie's shown sets, "
    "FedCAPrivacy's sketches, PQFed's noise on features (ε = 10 for each of 50 coordinates, which promises nothing)."
)
LEAKS = (
    "From the stored audits ([digits](results/audit-digits/README.md), [hospitals](results/audit-heart/README.md), "
    "[sealed](results/audit-digits-sealed/README.md)), without a defence: the verdict, what, to whom, the attack's score beside "
    "the best guess without it, and how many of the questions that have a meaning are answered. Attacks that covey has not would "
    "add to it."
)
ROTATED, FLAMBY = "rotated", "flamby"
LOOKED_AT = (
    "Of the methods' own repositories, none that we could read says a result in text: IFCA, FedGroup, FlexCFL, PACFL, FLUX, FedRC, "
    "FeSEM, Sattler's, FedRep, Ditto, FedEM, FedTorch (APFL) and pFedMe (which compares Per-FedAvg, in a picture) give code and "
    "settings. FLamby's stores what its own runs gave."
)
NOT_RUN = (
    "PACFL (Fashion-MNIST, CIFAR-10 with 20 % of the labels at each client): its authors draw labels as NIID-Bench does, a "
    "partition that covey has not",
    "FedGroup, FlexCFL (MNIST, 1,000 clients): on the JSON of FedProx's repository, whose cut is lognormal; the file is not here",
    "FedRep, Ditto, FLUX (CIFAR-10, CIFAR-100): convolutional models for thousands of rounds",
)


# Methods of the field in settings of other papers that covey rebuilds: (table, row, column), and why the figures differ.
ELSEWHERE = (
    (
        "mingledpie-table3-mnist",
        "IFCA",
        "Homogeneous",
        "0.6 points above what is printed; we know no reason",
    ),
    ("mingledpie-table3-fashion_mnist", "IFCA", "Homogeneous", "within half a point"),
    ("mingledpie-table3-mnist", "FedProx", "Homogeneous", "what was read and chosen: the paper's page"),
    ("pqfed-table6-mnist", "IFCA, 4 models", "accuracy", "within half a point"),
    (
        "pqfed-table6-cifar10",
        "IFCA, 4 models",
        "accuracy",
        "its layers and learning rate are not known to us",
    ),
    ("fedcaprivacy-table1-mnist", "Dir(0.3) fedavg", "final, global", "what was read and chosen: the paper's page"),
)


def beside(reproductions: Sequence[Reproduction], docs: Path) -> Beside:
    lines, leaks = standings(reproductions), worst_leaks(docs)
    if not lines:
        return Beside({}, [])
    printed = elsewhere(stored(docs)) if (docs / "results").is_dir() else []
    files = {
        "field.md": page(reproductions, lines, leaks, printed),
        PICTURE: picture(lines, len(places(reproductions))),
    }
    return Beside(files, terminal(lines, leaks, len(places(reproductions))))


# ---------------------------------------------------------------- a picture


def picture(lines: Sequence[Standing], of: int) -> str:
    """Ranks with their intervals, and two accuracies."""
    names = [_named(line, of) for line in lines]

    def panel(title: str, share: bool, figure: str) -> standing.Panel:
        marks = [
            standing.Mark(row, getattr(line, figure), line.interval if figure == "rank" else None)
            for row, line in enumerate(lines)
        ]
        return standing.Panel(title, [standing.Line("", marks)], share)

    words = standing.Words(own="mean over places", interval="95 % over seeds")
    panels = [
        panel("mean rank", False, "rank"),
        panel("own test data", True, "own"),
        panel("worst client", True, "worst"),
    ]
    return standing.dots("The field: mean rank over places", names, panels, words)


def _named(line: Standing, of: int) -> str:
    return line.label if line.places == of else f"{line.label} ({line.places} of {of})"


# ---------------------------------------------------------------- a page


def page(
    reproductions: Sequence[Reproduction],
    lines: Sequence[Standing],
    leaks: Mapping[str, Sequence[Worst]],
    printed: Sequence[Sequence[str]] = (),
) -> str:
    every = places(reproductions)
    parts = [
        "# The field: who leads, at which price",
        GENERATED,
        f"![Mean ranks over places, with intervals]({PICTURE})",
        f"{len(lines)} methods in {counted(len(every), 'place')} (a setting on a dataset): {_listed(every)}. A place has a row for "
        "every method whose runs are finished and not refused; who lacks places stands at the end, with means over fewer places "
        "that do not compare. What a client gets is scored, on its own test "
        "data: the **rank** among all methods is a mean over places, its interval the middle 95 % over draws of the seeds.",
        f"**Does clustering pay?** {pays(every)}",
        table(HEAD, [_row(line, leaks.get(line.method, ()), len(every)) for line in lines]),
        "*Worst client*: mean over places of the lowest accuracy that a client has. *Traffic* (up and down, nothing encrypted, so "
        "sealed methods cost more in earnest) and *seconds* (of one core, with whatever else its machine did; places computed "
        "on a GPU have none) are ratios "
        "to FedAvg's. *Worst leak*: of the method without a defence, and how many of the questions that have a meaning are "
        "answered; [scores, and sealed runs](#what-leaks-most).",
        UNPROTECTED,
        absent(every),
        "## Equal footing",
        f"Every method has {_trials(every)} trials in every place, on a seed that no figure uses: learning rates, or every second "
        "of them with two values of the one parameter that decides the method. [The rule, the grid and its limits]"
        "(../src/covey/papers/field/settings.py) were written down before these tables were run, after a first set of tables "
        f"whose rates ended too early{_of_first(every)}; and **Sattler's two values of "
        "eps were picked after a look at runs with seed 0**, which is one of the figures' seeds, since its own rule splits "
        "nothing in so few rounds; its rank may be flattered. A trial is scored on the same test samples as a figure, for "
        "another draw of clients, and one seed tunes. "
        f"Figures are of {_seeds(every)}. {_of_two_codes(every)}"
        "Trials and choices are stored with each table. Rounds, local epochs, "
        "batches, clients and samples are the same for all; methods that are told a number of clusters are told the true one "
        "(five under Dirichlet skew and three among the hospitals, where nobody knows a true one). Rows of single places: "
        "[pages](papers/field/README.md).",
        edges(reproductions, lines),
        *_leaks_table(lines, leaks),
        *_published(reproductions, printed),
        "## What else was asked",
        f"{_questions(reproductions)}The untuned comparison with more clients and rounds: "
        "[baselines](papers/baselines/README.md). How to set any of it: [settings](settings.md).",
        "## Chosen parameters",
        *_parameters(reproductions, lines),
        "## Make it",
        "```\ncovey reproduce field --minutes 30\ncovey reproduce field --minutes 0 --docs\n```",
        "The first runs what is missing in a pool of processes and stops in time, the second makes tables and this page of what is "
        "finished. `covey reproduce field` prints the leaderboard.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


HEAD = (
    "method",
    "family",
    "rank",
    "places",
    "own test data",
    "worst client",
    "traffic ×",
    "seconds ×",
    "worst leak",
)


def _row(line: Standing, leaks: Sequence[Worst], of: int) -> list[str]:
    low, high = line.interval
    return [
        f"[{line.label}](algorithms/{line.method}.md)",
        line.family,
        f"{line.rank:.1f} [{low:.1f}, {high:.1f}]",
        f"{line.places} of {of}",
        percent(line.own),
        percent(line.worst),
        _times(line.traffic),
        _times(line.seconds),
        next((one.short() for one in leaks), UNKNOWN),
    ]


def _leaks_table(lines: Sequence[Standing], leaks: Mapping[str, Sequence[Worst]]) -> list[str]:
    rows = [[line.label, _leak(one)] for line in lines for one in leaks.get(line.method, ())]
    return ["## What leaks most", LEAKS, table(["method", "worst leak"], rows)] if rows else []


def _leak(one: Worst) -> str:
    sealed = "" if one.protection == "none" else f"under {one.protection} "
    return f"{sealed}{one.words()} ({one.dataset})" if one.questions else one.words()


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2g}"


def _listed(every: Sequence[Reproduction]) -> str:
    by_dataset: dict[str, list[str]] = {}
    for one in every:
        by_dataset.setdefault(one.dataset, []).append(
            f"[{_small(SETTINGS[one.table].title)}](papers/field/{one.table}.md) ({one.settings['rows']} rows)"
        )
    return "; ".join(f"{dataset_name(name)}: {', '.join(tables)}" for name, tables in by_dataset.items())


def _small(title: str) -> str:
    return title[:1].lower() + title[1:]


def pays(every: Sequence[Reproduction]) -> str:
    """Where the clustered method that its trials put first is shown to be better than both rivals, and where it is not."""
    outcome: dict[str, list[str]] = {"yes": [], "no": [], "open": []}
    for one in every:
        judged = _of_picked(one)
        if not judged or any(claim.verdict == UNMEASURED for claim in judged):
            continue
        verdicts = [claim.verdict for claim in judged]
        kind = "yes" if all(v == HOLDS for v in verdicts) else "no" if FAILS in verdicts else "open"
        effects = [f"{e.value:+.1f}" for claim in judged for e in claim.effects if e.value is not None]
        outcome[kind].append(f"{_place(one)} ({' and '.join(effects)} points)")
    words = {
        "yes": "Shown to pay, against training alone and against FedAvg with fine-tuning, in",
        "no": "Shown **not** to pay, against one of the two at least, in",
        "open": "Not shown either way in",
    }
    said = [
        f"{words[kind]} {counted(len(where), 'place')}: {', '.join(where)}." for kind, where in outcome.items() if where
    ]
    return " ".join(
        [
            *said,
            "In brackets what the clustered method that its trials put first has over each; intervals are on the pages.",
        ]
    )


def _of_picked(one: Reproduction) -> list[Claim]:
    return [claim for claim in one.claims if "put first" in claim.text]


def absent(every: Sequence[Reproduction]) -> str:
    """Who has no row where, in the words of the run that refused."""
    lines = [
        f"- {label_of(method)}, {_place(one)}: {why}"
        for one in every
        for method, why in one.settings.get("missing", {}).items()
    ]
    return "Rows that are missing, and why:\n\n" + "\n".join(lines) if lines else ""


def edges(reproductions: Sequence[Reproduction], lines: Sequence[Standing]) -> str:
    """How often a method took the last of its rates, where one beyond the grid might have been better; by how many were tried."""
    largest: dict[int, list[str]] = {}
    smallest: dict[int, int] = {}
    choices: dict[int, int] = {}
    for one in places(reproductions):
        for method, fields in one.settings.get("chosen", {}).items():
            tried = one.settings.get("trials", {}).get(method, ())
            rates, many = {trial["lr"] for trial in tried}, len(tried)
            if len(rates) > 1:
                choices[many] = choices.get(many, 0) + 1
                smallest[many] = smallest.get(many, 0) + (fields["lr"] == min(rates))
                largest.setdefault(many, []).extend([method] * (fields["lr"] == max(rates)))
    if not choices:
        return ""
    said = [
        f"in {len(largest[many])} of {count} choices among {many} trials the rate is the largest that the method was tried with, "
        f"in {smallest[many]} the smallest"
        for many, count in sorted(choices.items(), reverse=True)
    ]
    taken = [method for methods in largest.values() for method in methods]
    mostly = [line.label for line in lines if taken.count(line.method) * 3 > 2 * line.places]
    often = f" More than two thirds of the time at the largest: {', '.join(mostly)}." if mostly else ""
    return f"**Rates at the edge of the grid**: {'; '.join(said)}. A rate beyond might have been better.{often}"


def _trials(every: Sequence[Reproduction]) -> str:
    """How many, as stored."""
    counts = sorted({len(tried) for one in every for tried in one.settings.get("trials", {}).values()})
    return " or ".join(map(str, counts))


def _of_first(every: Sequence[Reproduction]) -> str:
    """Which places are still of the first set, which had fewer trials."""
    counts = {one.name: max(map(len, one.settings.get("trials", {}).values()), default=0) for one in every}
    older = [one for one in every if counts[one.name] < max(counts.values())]
    named = sorted({dataset_name(one.dataset) for one in older})
    return f" ({counted(len(older), 'place')} on {' and '.join(named)} are still of that set)" if older else ""


def _seeds(every: Sequence[Reproduction]) -> str:
    """How many, by dataset, or by place where a dataset's places differ."""
    by_dataset: dict[str, set[int]] = {}
    for one in every:
        by_dataset.setdefault(one.dataset, set()).add(_count_of_seeds(one))
    named: dict[int, dict[str, None]] = {}
    for one in every:
        whole = len(by_dataset[one.dataset]) == 1
        named.setdefault(_count_of_seeds(one), {})[dataset_name(one.dataset) if whole else _place(one)] = None
    return ", ".join(f"{count} seeds ({', '.join(names)})" for count, names in sorted(named.items(), reverse=True))


def _count_of_seeds(one: Reproduction) -> int:
    return int(one.settings.get("seeds", 0))


def _of_two_codes(every: Sequence[Reproduction]) -> str:
    """Which places have runs of different code in one table: their methods are not compared alone."""
    mixed = [_place(one) for one in every if len(one.runs.get("code", ())) > 1]
    return f"Runs of more than one state of covey's code stand together in {' and '.join(mixed)}. " if mixed else ""


def _place(one: Reproduction) -> str:
    return f"{one.table.replace('_', ' ')} on {dataset_name(one.dataset)}"


def _questions(reproductions: Sequence[Reproduction]) -> str:
    asked = {"wrong_k": "What a wrong number of clusters costs", "newcomers": "How newcomers with few samples fare"}
    made = {one.table for one in reproductions}
    return "".join(f"[{words}](papers/field/{name}.md). " for name, words in asked.items() if name in made)


def elsewhere(reproductions: Sequence[Reproduction]) -> list[list[str]]:
    """Rows of the table of methods in other papers' settings."""
    known = {one.name: one for one in reproductions}
    rows = []
    for name, row, column, why in ELSEWHERE:
        cell = known[name].sheet().get((row, column)) if name in known else None
        if cell is not None and cell.paper is not None:
            one = known[name]
            where = (
                f"[{one.paper}, {one.table}](papers/{one.paper}/{one.table}.md), {dataset_name(one.dataset)}: {column}"
            )
            rows.append([row, where, _figure(cell.ours, cell.std, cell.n), percent(cell.paper), why])
    return rows


def _published(reproductions: Sequence[Reproduction], printed: Sequence[Sequence[str]]) -> list[str]:
    """Ours in the setting of a method's own authors, beside what they have of it."""
    parts = ["## In their authors' setting"]
    for one in reproductions:
        if one.table not in (ROTATED, FLAMBY):
            continue
        known = [cell for cell in one.cells if cell.ours is not None]
        stored_too = any(cell.paper is not None for cell in known)
        rows = [
            [
                _labelled(one, cell),
                _figure(cell.ours, cell.std, cell.n),
                *["" if cell.paper is None else percent(cell.paper)] * stored_too,
            ]
            for cell in known
        ]
        verdicts = [f"- **{verdict_words(claim.verdict)}**: {claim.text} {claim.why}" for claim in one.claims]
        parts += [
            f"{one.title} ([page](papers/field/{one.table}.md)):",
            table(["", "ours", *["stored"] * stored_too], rows),
            "\n".join(verdicts),
            REMEMBERED if one.table == ROTATED else "",
        ]
    if not any(one.table == ROTATED for one in reproductions):
        parts.append("IFCA's rotated MNIST is set up (`covey reproduce field --table rotated`) and was not run.")
    parts.append(LOOKED_AT)
    if printed:
        parts += [
            "Methods of the field in settings of other papers, rebuilt as far as these are printed:",
            table(["method", "where", "ours", "printed", "the gap"], printed),
        ]
    return [*filter(None, parts), "Not run in their authors' setting: " + "; ".join(NOT_RUN) + "."]


def _labelled(one: Reproduction, cell: Cell) -> str:
    return cell.row if len({other.column for other in one.cells}) == 1 else f"{cell.row}, {cell.column}"


def _figure(value: float | None, std: float | None, n: int) -> str:
    if value is None:
        return "–"
    return percent(value) + (f" ± {100 * std:.2f} ({n})" if std is not None else f" ({n})")


def _parameters(reproductions: Sequence[Reproduction], lines: Sequence[Standing]) -> list[str]:
    parts, words = [], chosen(reproductions)
    for dataset in dict.fromkeys(one.dataset for one in places(reproductions)):
        own = [one for one in places(reproductions) if one.dataset == dataset]
        rows = [[line.label, *(words.get(line.method, {}).get(one.name, "") for one in own)] for line in lines]
        parts += [f"**{dataset_name(dataset)}**", table(["", *(one.table.replace("_", " ") for one in own)], rows)]
    return parts


# ---------------------------------------------------------------- a terminal


def terminal(lines: Sequence[Standing], leaks: Mapping[str, Sequence[Worst]], of: int) -> list[str]:
    rows = [["method", "family", "rank", "own", "worst", "traffic", "seconds", "worst leak"]]
    for line in lines:
        low, high = line.interval
        leak = next((one.words() for one in leaks.get(line.method, ())), UNKNOWN).split(";")[0]
        ranks = f"{line.rank:.1f} [{low:.1f}, {high:.1f}]"
        rows.append(
            [
                _named(line, of),
                line.family,
                ranks,
                percent(line.own),
                percent(line.worst),
                _times(line.traffic),
                _times(line.seconds),
                leak,
            ]
        )
    return [
        "",
        f"mean rank over {counted(of, 'place')}, 95 % over seeds; traffic and seconds × FedAvg's",
        *text_table(rows),
    ]
