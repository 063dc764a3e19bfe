"""Statements whose unit is the client: its participation, its data and its cluster, over a whole run.

A run is a sequence of noised sums (`ClientRelease`). With one client more or less a sum moves by its L2 sensitivity, with one
replaced by another by twice that: the first is stated as ε, the second beside it (`replaced`), and also bounds what a single
record of a client costs, since a client with another record is another client. Sums over everybody compose exactly; sums over
Poisson samples by the privacy loss distribution (PLD), which dp-accounting discretises so that the ε is never too small.

Randomised answers are about a client that is there whatever it says, so they are stated for a replaced cluster, and composed
with sums for a replaced client.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from covey.errors import CoveyError
from covey.ledger import accountants
from covey.ledger.calibration import analytic_sigma, check_budget
from covey.ledger.entries import EXACT, Entry, entry_of, foreseen, large_delta, number_of, origin
from covey.ledger.events import CLIENT, CLUSTER, EVERYONE, RECORD, ClientRelease, RandomisedAnswer

STEP = 1e-3  # of the PLD's grid: it makes ε a little too large (50 sums of noise 4: by 1e-6)
LEAST_SEARCHED = 0.05
PLD = "PLD"
LEAST_NOISE = 1e-3  # below which no accountant is asked: that is no noise
SIDE = "accuracies, cluster choices and other notes in a run's own folder are the experimenter's, and not covered"
ADDED = "one client, with all its data and its cluster, added or removed; `replaced`: replaced by another"
ZEROED = "all that one client contributes, its cluster included, there or zeros; `replaced`: replaced by another's"
UNLIKELY = 2.0**-127  # what whole numbers add to δ, times 1 + e^ε, for each release: see crypto/noise/shares.py
SPARE = 2.0**-20  # share of δ that is kept for it

Sums = tuple[tuple[float, float], ...]  # (sampling rate, noise), one for each sum


def sums_epsilon(counts: Mapping[tuple[float, float], int], delta: float, replaced: bool = False) -> float:
    """ε of so many sums for each (sampling rate, noise): for one client more or less, or for one replaced."""
    counts = {sum: count for sum, count in counts.items() if count and sum[0] > 0}
    if any(noise < LEAST_NOISE for _, noise in counts):
        return math.inf
    if all(sampling == 1 for sampling, _ in counts):
        squares = sum(count / noise**2 for (_, noise), count in counts.items())
        return accountants.gaussian_epsilon(squares * (4 if replaced else 1), delta)
    return _pld_epsilon(frozenset(counts.items()), delta, replaced, frozenset())


def answers_epsilon(answers: Sequence[tuple[float, int]], delta: float) -> float:
    """ε of randomised answers, (ε, clusters) each: their sum, or less where a δ buys something."""
    pure = sum(epsilon for epsilon, _ in answers)
    if math.isinf(pure) or len(answers) < 2:
        return pure
    return min(pure, _pld_epsilon(frozenset(), delta, True, frozenset(Counter(answers).items())))


def noise_for(epsilon: float, delta: float, sums: int, sampling: float = 1.0) -> float:
    """The least noise with which so many sums cost at most ε: exact without sampling, else by search over the PLD.

    The search depends on nothing but these numbers. An ε that somebody chose after looking at data is not covered by itself.
    """
    check_budget(epsilon, delta)
    if math.isinf(epsilon):
        return 0.0
    return _searched(epsilon, delta, sums, sampling)


@lru_cache(maxsize=256)
def _searched(epsilon: float, delta: float, sums: int, sampling: float) -> float:
    most = (
        (1 + 1e-9) * analytic_sigma(epsilon, delta) * math.sqrt(sums)
    )  # of sums over everybody; priced again, not above ε
    if sampling == 1:
        return most

    def fits(noise: float) -> bool:
        return sums_epsilon({(sampling, noise): sums}, delta) <= epsilon

    high = most
    while not fits(high):  # the grid of the PLD takes a little more than the exact figure
        high *= 1.05
    low = high / 2
    while low > LEAST_SEARCHED and fits(low):  # from above: little noise makes wide distributions, which take long
        low, high = low / 2, low
    while high - low > 1e-3 * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@lru_cache(maxsize=1024)
def _pld_epsilon(
    sums: frozenset[tuple[tuple[float, float], int]],
    delta: float,
    replaced: bool,
    answers: frozenset[tuple[tuple[float, int], int]],
) -> float:
    return float(_distribution(sums, replaced, answers).get_epsilon_for_delta(delta))


@lru_cache(maxsize=16)  # a claim is asked at many δ in succession, and only the last step depends on it
def _distribution(
    sums: frozenset[tuple[tuple[float, float], int]],
    replaced: bool,
    answers: frozenset[tuple[tuple[float, int], int]],
) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    relation = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    whole: Any = None
    for (sampling, noise), count in sums:
        one = pld.from_gaussian_mechanism(
            noise,
            # dp-accounting's sensitivity is of one client more or less; it knows itself what a replaced one does to a sample.
            sensitivity=1.0,
            sampling_prob=sampling,
            value_discretization_interval=STEP,
            neighboring_relation=relation,
        )
        whole = _composed(whole, one, count)
    for (epsilon, clusters), count in answers:
        one = pld.from_randomized_response(
            clusters / (math.exp(epsilon) + clusters - 1),  # the probability of a draw by lot among all of them
            clusters,
            value_discretization_interval=STEP,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
        )
        whole = _composed(whole, one, count)
    return whole


def _composed(whole: Any, one: Any, count: int) -> Any:
    many = one.self_compose(count)
    return many if whole is None else whole.compose(many)


def client_release(histories: Mapping[int, list[ClientRelease]], delta: float) -> Entry:
    """Noised sums over clients."""
    of, grids = _by_client(histories), _grids(histories)
    added = {client: _in_whole_numbers(sums, delta, grids[client]) for client, sums in of.items()}
    other = {client: _in_whole_numbers(sums, delta, grids[client], replaced=True) for client, sums in of.items()}
    every = [event for events in histories.values() for event in events]
    zeroed = any(event.zeroed for event in every)
    least = min(event.worth for event in every)
    amplified = any(event.sampling < 1 for event in every)
    caveat = ["no noise was added, so nothing is guaranteed"] if least < LEAST_NOISE else []
    caveat += large_delta(delta)
    if amplified:
        caveat.append(
            "amplification by sampling holds against those who do not learn who took part in a round: the wire tells"
        )
    if zeroed:
        caveat.append("that a client takes part is seen by the server; all that it contributes is covered")
    worst = max(other.values())
    return entry_of(
        added,
        delta,
        unit=CLIENT,
        units={RECORD: number_of(worst), CLIENT: number_of(max(added.values()))},
        per_step={
            "noise": least,
            "sampling": max(event.sampling for event in every),
            "epsilon": number_of(sums_epsilon({(max(e.sampling for e in every), least): 1}, delta)),
        },
        total={"replaced": number_of(worst), "sums": max(sum(sums.values()) for sums in of.values())},
        composition=PLD if amplified else EXACT,
        adjacency=ZEROED if zeroed else ADDED,
        against="; ".join(dict.fromkeys(event.against for event in every if event.against)),
        sensitivity={"value": 1.0, "is": "joint clipping bound of all that a client adds", "from": "public bound"},
        noise=origin(every),
        caveat=[*caveat, *foreseen(every), SIDE],
    )


def randomised_answer(histories: Mapping[int, list[RandomisedAnswer]], delta: float) -> Entry:
    """Clusters by randomised response."""
    answers = {client: [(event.epsilon, event.clusters) for event in events] for client, events in histories.items()}
    pure = {client: sum(epsilon for epsilon, _ in own) for client, own in answers.items()}
    every = [event for events in histories.values() for event in events]
    worst = max(pure, key=lambda client: pure[client])
    one = max(every, key=lambda event: event.epsilon)
    return entry_of(
        pure,
        0.0,
        unit=CLUSTER,
        units={RECORD: None, CLIENT: None},  # the model that is sent with the answer has no noise
        per_step={
            "epsilon": number_of(one.epsilon),
            "clusters": one.clusters,
            "truth": truth_probability(one.epsilon, one.clusters),
        },
        total={
            "at_delta": {"epsilon": number_of(answers_epsilon(answers[worst], delta)), "delta": delta},
            "answers": max(map(len, answers.values())),
        },
        composition="basic",
        adjacency="the cluster that one client chooses replaced by another",
        sensitivity={"value": 1.0, "is": "a cluster is another one or not", "from": "public bound"},
        noise=origin(every),
        caveat=[*foreseen(every), "only the cluster that is told is covered, not the model that is sent with it"],
    )


def together(spends: Mapping[str, Sequence[tuple[int, int, Any]]], delta: float | None) -> dict[str, Entry]:
    """Sums and answers of the same run as one release, for a replaced client; {} where one of them is missing."""
    kinds = {name: type(entries[0][2]) for name, entries in spends.items()}
    sums = [name for name, kind in kinds.items() if kind is ClientRelease]
    by_lot = [name for name, kind in kinds.items() if kind is RandomisedAnswer]
    if not (sums and by_lot):
        return {}
    releases = [(client, event) for name in sums for _, client, event in spends[name]]
    answers = [(client, event) for name in by_lot for _, client, event in spends[name]]
    chosen = delta or max(event.delta for _, event in releases)
    of = _by_client(_histories(releases))
    said = _histories(answers)
    whole = {
        client: _both(of.get(client, of.get(EVERYONE, Counter())), said.get(client, []), chosen)
        for client in {*of, *said} - ({EVERYONE} if said else set())
    }
    worst = max(whole.values())
    every = [event for _, event in (*releases, *answers)]
    entry = entry_of(
        whole,
        chosen,
        unit=CLIENT,
        units={RECORD: number_of(worst), CLIENT: number_of(worst)},
        per_step={},
        total={"answers": max(map(len, said.values())), "sums": max(sum(c.values()) for c in of.values())},
        composition=PLD,
        adjacency="one client, with all its data and its cluster, replaced by another",
        sensitivity={"value": 2.0, "is": "twice what one client adds", "from": "public bound"},
        noise=origin(every),
        caveat=[*foreseen(every), SIDE],
    )
    rounds = len({round for name in (*sums, *by_lot) for round, _, _ in spends[name]})
    return {" + ".join((*sums, *by_lot)): entry | {"clients": len(whole), "rounds": rounds}}


def told_apart(entries: Mapping[str, Mapping[str, Any]]) -> float | None:
    """How often, at most, anybody says rightly which of two clients took part, by a run's entries; None: they do not say.

    (ε, δ) for a replaced client bounds how far true and false alarms of any test are apart by (e^ε − 1 + 2δ) / (e^ε + 1) (Kairouz,
    Oh, Viswanath, ICML 2015); a guess between two is right in half of that above ½. Where sums and answers were released, the
    entry of both together holds: it is the one with the larger ε. Entries about records, or about a cluster alone, say nothing.
    """
    stated = [
        (entry["total"].get("replaced", entry["epsilon"]), entry["delta"])
        for entry in entries.values()
        if entry.get("unit") == CLIENT and "sums" in entry["total"]
    ]
    if not stated or any(epsilon is None or not math.isfinite(epsilon) for epsilon, _ in stated):
        return None
    epsilon, delta = max(stated)
    apart = math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0)))
    return float(0.5 + 0.5 * min(1.0, apart))


def truth_probability(epsilon: float, clusters: int) -> float:
    """How often a randomised answer is true."""
    return 1 / (1 + (clusters - 1) * math.exp(-epsilon))


def epsilon_of_truth(probability: float, clusters: int) -> float:
    """The ε of answers that are true so often; what is no better than a lot has 0."""
    if not 0 < probability <= 1:
        raise CoveyError(f"{probability} is no probability of a true answer: expected above 0 and at most 1")
    if probability == 1:
        return math.inf
    return max(0.0, math.log(probability * (clusters - 1) / (1 - probability)))


def _both(sums: Mapping[tuple[float, float], int], answers: Sequence[RandomisedAnswer], delta: float) -> float:
    if any(noise < LEAST_NOISE for _, noise in sums) or any(math.isinf(event.epsilon) for event in answers):
        return math.inf
    counts = Counter((event.epsilon, event.clusters) for event in answers)
    if not sums:
        return answers_epsilon([(event.epsilon, event.clusters) for event in answers], delta)
    apart = sums_epsilon(sums, delta, replaced=True) + sum(
        epsilon for (epsilon, _), n in counts.items() for _ in range(n)
    )
    return min(apart, _pld_epsilon(frozenset(sums.items()), delta, True, frozenset(counts.items())))


def _in_whole_numbers(
    counts: Mapping[tuple[float, float], int], delta: float, grid: float, replaced: bool = False
) -> float:
    """ε of sums whose noise is in whole numbers, `grid` further from continuous noise over all of them."""
    if not grid or math.isinf(sums_epsilon(counts, delta)):
        return sums_epsilon(counts, delta, replaced)
    epsilon = sums_epsilon(counts, delta * math.exp(-grid) * (1 - SPARE), replaced) + grid
    unlikely = math.log(UNLIKELY * sum(counts.values())) + epsilon
    if unlikely < math.log(delta * SPARE / 2):
        return epsilon
    # So little noise: by concentrated DP, which holds of whole numbers as they are (Canonne et al. 2020; Bun and Steinke 2016).
    rho = sum(count / noise**2 for (_, noise), count in counts.items()) * (2.0 if replaced else 0.5) + grid
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def _grids(histories: Mapping[int, Sequence[ClientRelease]]) -> dict[int, float]:
    """Client -> what grids add to its ε."""
    common = sum(event.grid for event in histories.get(EVERYONE, ()))
    alone = {client: events for client, events in histories.items() if client != EVERYONE} or {EVERYONE: ()}
    return {client: common + sum(event.grid for event in events) for client, events in alone.items()}


def _by_client(histories: Mapping[int, Sequence[ClientRelease]]) -> dict[int, Counter[tuple[float, float]]]:
    """Client -> how many sums of each (sampling rate, noise); what was spent for everyone counts for each."""
    common = histories.get(EVERYONE, ())
    alone = {client: events for client, events in histories.items() if client != EVERYONE} or {EVERYONE: ()}
    return {
        client: Counter((event.sampling, event.worth) for event in (*common, *events))
        for client, events in alone.items()
    }


def _histories(spends: Sequence[tuple[int, Any]]) -> dict[int, list[Any]]:
    histories: dict[int, list[Any]] = {}
    for client, event in spends:
        histories.setdefault(client, []).append(event)
    return histories
