"""Beyond AFC-CFL's own tables: its tuning, its defences at equal noise and clipping, and the choices that it leaves open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from covey.papers.afc_cfl.rows import attacked, framed
from covey.papers.afc_cfl.settings import (
    CLOSE,
    DATA,
    NAMES,
    SEEDS,
    SMALL_CLIP,
    adp,
    afc,
    base,
    best_control,
    digits,
    finding,
    ldp,
    matched_budget,
    mean,
    noise_norm,
    noted,
    said,
    target,
    tune,
)
from covey.papers.harness import Cell, Claim, Options, Outcome, Reproduction, cell, claim
from covey.statistics import student_interval

CHOICES: dict[str, dict[str, Any]] = {"as everywhere": {}} | {
    **{f"subsets of {size}": {"subset_size": size} for size in (2, 4, 8, 10)},
    "groups of 2": {"group_size": 2},
    "all of the update, sketched": {"features": "update"},
    "output biases alone": {"features": "bias"},
    "one hidden layer": {"model": "mlp"},
    "present: over 1 % of the samples": {"least": 0.01},
}


def tuning(options: Options) -> Reproduction:
    """Budgets: AFC-CFL's for the paper's F1, then common LDP's (small fixed C) for the same F1 as that."""
    tuned = tune(options, target(options.dataset))
    cells: list[Cell] = []
    for method, by in tuned.tried.items():
        for epsilon, outcomes in by.items():
            row = f"{method}, ε = {epsilon:g}"
            cells += [cell(row, "F1", finding(outcomes, "value")), cell(row, "best control", best_control(outcomes))]
            cells += [cell(row, "noise-aware F1", finding(outcomes, "details", "noise_aware"))]
            cells += [cell(row, "accuracy", [run.accuracy() for run in outcomes])]
            cells += [
                cell(row, "C", noted(outcomes, "clip"), unit=""),
                cell(row, "noise norm", noted(outcomes, "noise"), unit=""),
            ]
    ours, theirs = (
        finding(tuned.tried[method][epsilon], "value")
        for method, epsilon in (("AFC-CFL", tuned.afc), ("common LDP", tuned.ldp))
    )
    off = abs(mean(ours) - tuned.target), abs(mean(theirs) - mean(ours))
    reached = claim(
        "A budget gives AFC-CFL the F1 of the paper's Table 2, and one gives common LDP the same.",
        max(off) <= CLOSE,
        f"Wanted: {tuned.target:.3f}. AFC-CFL at ε = {tuned.afc:g}: {said(ours)}; common LDP at ε = {tuned.ldp:g}: {said(theirs)}.",
        partly=min(off) <= CLOSE,
    )
    settings = {"target F1": tuned.target, "ε of AFC-CFL": tuned.afc, "ε of common LDP": tuned.ldp, "C": SMALL_CLIP}
    title = f"Tuning to equal F1 on {NAMES[options.dataset]}"
    return framed(options, "tune", title, cells, [reached], options.count(SEEDS), settings)


def matched(options: Options) -> Reproduction:
    """The same defences at equal noise and equal clipping: what remains of the advantage.

    Two kinds of equal: the baselines with one C and one σ for all rounds, so that both are equal on average over rounds and
    clients; and AFC-CFL itself with its noise spread evenly, which is equal in every round of every client.
    """
    seeds, data = options.count(SEEDS), DATA[options.dataset]
    cells: list[Cell] = []
    claims: list[Claim] = []
    settings: dict[str, Any] = {}
    for budget in data.matched:
        at = f"ε = {budget:g}: "
        ours = options.run(base(options, defence=afc(budget)), seeds)
        exactly = [mean(noted(ours, name)) for name in ("clip", "noise")]
        clip, noise = map(digits, exactly)
        same = digits(matched_budget(options.dataset, clip, noise))
        small = digits(matched_budget(options.dataset, SMALL_CLIP, noise))
        defences = {
            "AFC-CFL, noise spread evenly": afc(budget, "equal"),
            "common LDP, C and noise matched": ldp(same, clip),
            "ADP, C and first noise matched": adp(same, clip),
            f"common LDP, C = {SMALL_CLIP:g}, noise matched": ldp(small, SMALL_CLIP),
            f"common LDP, C = {SMALL_CLIP:g}, ε of AFC-CFL": ldp(budget, SMALL_CLIP),
        }
        runs = {"AFC-CFL": ours} | {row: options.run(base(options, defence=d), seeds) for row, d in defences.items()}
        for row, outcomes in runs.items():
            cells += attacked(at + row, outcomes)
            cells += [cell(at + row, "C", noted(outcomes, "clip"), unit="")]
            cells += [cell(at + row, "noise norm", noted(outcomes, "noise"), unit="")]
        alpha = exactly[1] / noise_norm(options.dataset, budget, exactly[0])
        claims += [replace(c, why=f"At {at}{c.why}") for c in _claims_matched(runs, alpha)]
        settings |= {
            f"{at}C matched": clip,
            f"{at}ε matched": same,
            f"{at}α of AFC-CFL (root mean square)": digits(alpha),
        }
    title = f"Defences at equal noise and clipping on {NAMES[options.dataset]}"
    return framed(options, "matched", title, cells, claims, seeds, settings)


def _claims_matched(runs: dict[str, list[Outcome]], alpha: float) -> list[Claim]:
    accuracy = {row: [run.accuracy() for run in outcomes] for row, outcomes in runs.items()}
    _, even, same, decaying, small, _ = accuracy
    gaps = {row: [a - b for a, b in zip(accuracy["AFC-CFL"], accuracy[row])] for row in (even, same, decaying, small)}
    low = student_interval(gaps[even])[0]
    return [
        claim(
            "Noise by Fisher information costs less accuracy than equal noise everywhere, at the same clipping.",
            mean(gaps[even]) > CLOSE and low > 0,
            f"AFC-CFL − itself with its noise spread evenly: {said(gaps[even], '+.3f')}; − common LDP with its mean C and "
            f"noise: {said(gaps[same], '+.3f')}. Its α is nearly constant: {alpha:.3f} in root mean square, of a range from "
            "0.3 to 1.3.",
            partly=low > 0,
        ),
        claim(
            f"At equal noise and clipping, common LDP and ADP are within {CLOSE:g} of AFC-CFL in accuracy (independent check).",
            max(abs(mean(gaps[same])), abs(mean(gaps[decaying]))) <= CLOSE,
            f"AFC-CFL − common LDP {said(gaps[same], '+.3f')}; − ADP, whose noise then decays, {said(gaps[decaying], '+.3f')}.",
            partly=min(abs(mean(gaps[same])), abs(mean(gaps[decaying]))) <= CLOSE,
        ),
        claim(
            "The paper's gap is that between a clipping bound that fits and a small fixed one.",
            mean(gaps[small]) > CLOSE >= mean(gaps[same]),
            f"AFC-CFL − common LDP at equal noise: {said(gaps[small], '+.3f')} with C = {SMALL_CLIP:g}, "
            f"{said(gaps[same], '+.3f')} with its own C.",
            partly=mean(gaps[small]) > max(CLOSE, mean(gaps[same])),
        ),
    ]


def choices(options: Options) -> Reproduction:
    """What the paper leaves open, one choice changed at a time: subset size, features, attack model, truth."""
    seeds = options.count(SEEDS)
    table = base(options)
    runs = {
        row: options.run({**table, "attacks": [table["attacks"][0] | choice]}, seeds) for row, choice in CHOICES.items()
    }
    cells = [c for row, outcomes in runs.items() for c in attacked(row, outcomes)]
    strongest = [max(mean(best_control(outcomes)) for row, outcomes in runs.items() if "present" not in row)]
    scores = [mean(finding(outcomes, "value")) for row, outcomes in runs.items() if "present" not in row]
    verdict = claim(
        "Some choice of the attacker's makes the update worth reading (here: beats every control of every choice).",
        max(scores) > strongest[0],
        f"The best attack reaches {max(scores):.3f}, the best attacker that never reads an update {strongest[0]:.3f}; chosen "
        "with the truth in hand on both sides.",
    )
    title = f"Choices of the attacker on {NAMES[options.dataset]}"
    return framed(options, "choices", title, cells, [verdict], seeds)
