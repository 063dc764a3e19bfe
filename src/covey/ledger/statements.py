"""What the ledger says about each kind of event: per step, over the run, and what the figure does not promise."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from covey.ledger import accountants, clients
from covey.ledger.calibration import analytic_epsilon, analytic_sigma, classic_epsilon
from covey.ledger.entries import EXACT, Entry, entry_of, foreseen, number_of, origin, say
from covey.ledger.events import (
    PRIVATE,
    ClientRelease,
    GaussianRelease,
    LaplaceRelease,
    RandomisedAnswer,
    SubsampledGaussian,
)

BESIDE = "what is sent beside the protected vector (a cluster choice, a sample count) is not covered"
FEW = 16  # clients with different sampling rates that are priced one by one


def subsampled_gaussian(histories: Mapping[int, list[SubsampledGaussian]], delta: float) -> Entry:
    """DP-SGD: what is proved for the batches that were drawn leads.

    A sample of shuffled epochs is in `uses` batches, each a Gaussian release. Only batches that were sampled by Poisson may claim
    more, by Rényi accounting; what shuffled ones would cost if they had been is told beside.
    """
    counts = {client: Counter(events) for client, events in histories.items()}
    rates = {event.sampling for count in counts.values() for event in count}
    amplified, plain = {}, {}
    priced: dict[frozenset[tuple[tuple[float, float], int]], float] = {}
    for client, count in counts.items():
        steps: dict[tuple[float, float], int] = defaultdict(int)
        for event, times in count.items():
            # Rounded up where there are many: ε grows with the rate, so the figure stays a bound.
            rate = event.sampling if len(rates) <= FEW else _round_up(event.sampling)
            steps[rate, event.worth] += event.steps * times
        history = frozenset(steps.items())
        if history not in priced:
            priced[history] = accountants.subsampled_gaussian_epsilon(steps, delta)
        amplified[client] = priced[history]
        squares = sum(times * event.uses * _inverse_square(event.worth) for event, times in count.items())
        plain[client] = accountants.gaussian_epsilon(squares, delta)
    every = {event for count in counts.values() for event in count}
    step = max(every, key=lambda e: (-e.noise, e.sampling))  # the one that costs most
    q, sigma = step.sampling, step.noise
    unamplified = max(plain.values())
    poisson = all(event.poisson for event in every)
    proved = {client: min(amplified[client], plain[client]) if poisson else plain[client] for client in counts}
    by_sampling = any(amplified[client] < plain[client] for client in counts)
    caveat = ["no noise was added, so nothing is guaranteed"] if sigma == 0 else []
    if by_sampling and not poisson:
        caveat.append(
            "batches are cut from shuffled epochs, for which no amplification by sampling is proved; with Poisson-sampled ones "
            f"(defence.sampling = 'poisson') it would be ε = {say(max(amplified.values()))}"
        )
    return entry_of(
        proved,
        delta,
        per_step={
            "epsilon": number_of(accountants.subsampled_gaussian_epsilon({(q, sigma): 1}, delta)),
            "moments_accountant": number_of(accountants.moments_epsilon(q, sigma, 1, delta)),
            "sampling": q,
            "noise": sigma,
        },
        total={
            "without_amplification": number_of(unamplified),
            "with_poisson_sampling": number_of(max(amplified.values())),
            "steps": max(map(_steps, counts.values())),
        },
        composition="RDP" if by_sampling and poisson else EXACT,
        adjacency="one sample of one client added or removed (its gradients there or zero)",
        sensitivity={
            "value": max(e.clip for e in every),
            "is": "clipping bound C of a sample's gradient",
            "from": "public bound",
        },
        noise=origin(every),
        caveat=[*caveat, *foreseen(every), BESIDE],
    )


def gaussian(histories: Mapping[int, list[GaussianRelease]], delta: float) -> Entry:
    """Gaussian releases: the paper's calibration and the exact statement side by side."""
    truly = {
        client: accountants.gaussian_epsilon(sum(_inverse_square(e.worth) for e in events), delta)
        for client, events in histories.items()
    }
    every = [event for events in histories.values() for event in events]
    least = min(e.sigma for e in every)
    claimed = max(e.epsilon for e in every)
    growth = max(e.growth for e in every)
    worst = classic_epsilon(least, delta)
    weakest = min(e.worth for e in every)
    exact = analytic_epsilon(weakest, delta)
    private = any(e.sensitivity_from == PRIVATE for e in every)
    caveat = []
    if weakest == 0:
        caveat.append("no noise was added, so nothing is guaranteed")
    elif worst > claimed * (1 + 1e-6):
        caveat.append(
            f"the claimed ε = {say(claimed)} is not the worst case: the coordinate or round with the least noise has {say(worst)}"
        )
    if private:
        caveat.append(
            "the clipping bound and the shape of the noise are read from private data unprotected, "
            "so every ε here is conditional on them"
        )
    if growth > 1:
        caveat.append(
            f"the noise fits one step, but over all steps of a round a sample can move the model {say(growth)} times as far"
        )
    if worst > 1 and weakest > 0:
        caveat.append("the classic calibration is not proved above ε = 1, so the totals rest on the analytic one")
    return entry_of(
        truly,
        delta,
        per_step={
            "claimed": number_of(claimed),
            "classic": number_of(worst),
            "classic_is_proved": worst <= 1,
            "analytic": number_of(exact),
            "sigma": least,
            "sigma_analytic": 0.0 if math.isinf(claimed) else analytic_sigma(claimed, delta),
        },
        total={"releases": max(map(len, histories.values()))},
        composition=EXACT,
        adjacency="one sample of one client replaced",
        sensitivity=_range(e.sensitivity for e in every)
        | {"is": "2 η C/|b|", "from": PRIVATE if private else "public bound"},
        noise=origin(every),
        caveat=[*caveat, *foreseen(every), BESIDE],
    )


def laplace(histories: Mapping[int, list[LaplaceRelease]], delta: float) -> Entry:
    """Laplace releases: ε per coordinate as printed, per record as it adds up."""
    pure = {client: sum(e.per_coordinate * e.coordinates for e in events) for client, events in histories.items()}
    renyi = max(accountants.laplace_epsilon(_coordinates(events), delta) for events in histories.values())
    every = [event for events in histories.values() for event in events]
    one = max(every, key=lambda e: e.epsilon * e.coordinates)
    record = one.epsilon * one.coordinates
    private = any(e.sensitivity_from == PRIVATE for e in every)
    caveat = [
        f"the claimed ε = {say(one.epsilon)} is per coordinate: a record has {one.coordinates}, so it spends {say(record)}"
    ]
    if private:
        caveat.append(
            "the sensitivity is read from private data, so it leaks itself and the guarantee is conditional on it"
        )
    return entry_of(
        pure,
        0.0,
        per_step={
            "per_coordinate": number_of(one.epsilon),
            "per_record": number_of(record),
            "coordinates": one.coordinates,
        },
        total={
            "per_record_by_rdp": {"epsilon": number_of(renyi), "delta": delta},
            "releases": max(map(len, histories.values())),
        },
        composition="basic",
        adjacency="one record of one client replaced by another within the bounds",
        sensitivity=_range(e.sensitivity for e in every)
        | {"is": "range of a coordinate", "from": PRIVATE if private else "public bound"},
        noise=origin(every),
        caveat=[*caveat, *foreseen(every)],
    )


STATEMENTS: dict[type, Callable[[Any, float], Entry]] = {
    SubsampledGaussian: subsampled_gaussian,
    GaussianRelease: gaussian,
    LaplaceRelease: laplace,
    ClientRelease: clients.client_release,
    RandomisedAnswer: clients.randomised_answer,
}


def _coordinates(events: Iterable[LaplaceRelease]) -> Counter[float]:
    """ε of a coordinate -> how many such coordinates of one record were released."""
    counts: Counter[float] = Counter()
    for event in events:
        counts[event.per_coordinate] += event.coordinates
    return counts


def _steps(count: Counter[SubsampledGaussian]) -> int:
    return sum(event.steps * times for event, times in count.items())


def _range(values: Iterable[float]) -> Entry:
    known = list(values)
    return {"smallest": number_of(min(known)), "largest": number_of(max(known))}


def _inverse_square(sigma: float) -> float:
    return 1 / sigma**2 if sigma > 0 else math.inf


def _round_up(rate: float) -> float:
    """To two significant digits, at most 1."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return min(1.0, math.ceil(rate / unit - 1e-9) * unit)
