"""From what a property attack gathered to its score: one random forest for all clusters, and the area under its ROC curve.

Apart from the attack so that gathering can happen on a machine without scikit-learn: `Evidence` is arrays alone.
The forest is fitted on simulated rows. Observed rows, which are the test, reach it only to be scored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.attacks.contract import Truth
from covey.errors import CoveyError
from covey.messages import message
from covey.randomness import generator, key

OTHER, PROPERTY, PLACEBO = 0, 1, 2  # what went into a simulated row
CONTROLS = ("shuffled truth", "placebo property")
Rows = NDArray[np.floating[Any]]
Whole = NDArray[np.int64]


@message
@dataclass(frozen=True)
class Evidence:
    """Feature rows: simulated ones with their kind; observed ones with their round and cluster."""

    simulated: Rows  # [m, f]
    kind: Whole  # [m] OTHER, PROPERTY or PLACEBO
    size: Whole  # [m] updates averaged in it
    observed: Rows  # [n, f]
    round: Whole  # [n]
    cluster: Whole  # [n]
    without_own: Rows  # [n, f] observed, less the attacker's own share of it; [0, f]: not gathered
    cosine: Rows  # [n] similarity with the same cluster's update a round before; nan: there was none


@message
@dataclass(frozen=True)
class Labels:
    """The truth about observed rows."""

    property: Whole  # [n] 1: a property batch went into this cluster in this round
    victim: NDArray[np.bool_]  # [n] whether the victim was in it


@dataclass(frozen=True)
class Scores:
    auc: float
    low: float
    high: float
    controls: dict[str, float]
    details: dict[str, Any]
    placebo: tuple[float, float, float] | None = None  # AUC and interval of the forest that learnt the placebo


def labels_of(truth: Truth, round: Whole, cluster: Whole) -> Labels:
    """What really went into each (round, cluster): the victim may have been elsewhere, and may change its cluster."""
    victim = truth.federation.notes["victim"]
    facts = [truth.notes[r - 1].get(victim, {}) for r in round]  # type: ignore[call-overload]
    there = np.array(["property" in fact and fact.get("cluster", 0) == j for fact, j in zip(facts, cluster)], bool)
    shown = np.array([fact.get("property", 0) for fact in facts], np.int64)
    return Labels(shown * there, there)


def judge(evidence: Evidence, labels: Labels, seed: int, trees: int = 100, remove_own: bool = False) -> Scores:
    """AUC over the rounds of the victim's cluster with a bootstrap interval, beside its controls.

    Observed rows are scored by a forest that learnt from groups of the assumed size; rows less the attacker's own share by one
    that learnt from groups of one fewer. `remove_own` says which of the two is the score; the other is in the details. The
    controls are a forest that learnt a placebo (rows without the property, with its label shares) and shuffled truth. The
    placebo's reads the models: what it reaches is not the property, but it tells which rounds were odd.
    """
    rows = labels.victim
    truth = labels.property[rows]
    sizes = evidence.size.max(), evidence.size.min()
    tested = {"own contribution kept": (evidence.observed, int(sizes[0]))}
    if len(evidence.without_own):
        tested["own contribution removed"] = (evidence.without_own, int(sizes[1]))
    chosen = list(tested)[-1 if remove_own else 0]
    scores = {name: forest(evidence, PROPERTY, trees, seed, size)(seen) for name, (seen, size) in tested.items()}
    score = scores[chosen]
    low, high = interval(score[rows], truth, seed)
    controls = {CONTROLS[0]: shuffled(score[rows], truth, seed)}
    placebo = None
    if (evidence.kind == PLACEBO).any():
        seen, size = tested[chosen]
        other = forest(evidence, PLACEBO, trees, seed, size)(seen[rows])
        controls[CONTROLS[1]] = auc(other, truth)
        placebo = (controls[CONTROLS[1]], *interval(other, truth, seed))
    details = {
        "rows scored": int(rows.sum()),
        "of them with the property": int(truth.sum()),
        "rows the forest learnt from": int(((evidence.kind != PLACEBO) & (evidence.size == tested[chosen][1])).sum()),
        "over all clusters": auc(score, labels.property),
        **{name: auc(one[rows], truth) for name, one in scores.items() if name != chosen},
    }
    return Scores(auc(score[rows], truth), low, high, controls, details, placebo)


def forest(evidence: Evidence, positive: int, trees: int, seed: int, size: int = 0) -> Any:
    """A function from rows [n, f] to the probability [n] that they hold what `positive` rows hold.

    It learns from simulated groups of this size; 0: from the largest.
    """
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ModuleNotFoundError as absent:
        raise CoveyError(
            "scoring a property attack needs scikit-learn, which is not installed here: install it, or save the evidence "
            "and score it elsewhere"
        ) from absent
    chosen = (evidence.kind == OTHER) | (evidence.kind == positive)
    chosen &= evidence.size == (size or evidence.size.max())
    kind = evidence.kind[chosen] == positive
    if kind.all() or not kind.any():
        raise CoveyError("a property attack simulated updates of one kind only: give the attacker rows of both kinds")
    rows = evidence.simulated[chosen].astype(np.float32)
    centre, spread = rows.mean(0), rows.std(0) + 1e-8
    fitted = RandomForestClassifier(trees, min_samples_leaf=2, random_state=key(seed, "forest") % 2**31, n_jobs=1)
    # By columns: trees read a feature at a time, and the rows of many processes are more than their caches hold.
    fitted.fit(np.asfortranarray((rows - centre) / spread), kind)
    return lambda x: fitted.predict_proba((x.astype(np.float32) - centre) / spread)[:, 1] if len(x) else np.zeros(0)


def auc(score: Rows, truth: Whole) -> float:
    """Area under the ROC curve, ties counted half; nan where one of the two kinds is missing."""
    return float(_areas(score, truth[None] == 1)[0])


def interval(score: Rows, truth: Whole, seed: int, draws: int = 500) -> tuple[float, float]:
    """95 % bootstrap interval, both kinds resampled on their own. It covers the rounds of one run, not other partitions."""
    positive, negative = score[truth == 1], score[truth == 0]
    if not len(positive) or not len(negative):
        return 0.0, 1.0
    random, times = generator(seed, "bootstrap"), np.empty((draws, len(truth)))
    for drawn in times:  # how often each is drawn
        for part in np.split(drawn, [len(positive)]):
            part[:] = np.bincount(random.integers(0, len(part), len(part)), minlength=len(part))
    # Pairs in the right order, and half of those that tie: all sums are of halves, hence exact in any order.
    ahead = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    won = ((times[:, : len(positive)] @ ahead) * times[:, len(positive) :]).sum(1)
    low, high = np.quantile(won / (len(positive) * len(negative)), [0.025, 0.975])
    return float(low), float(high)


def shuffled(score: Rows, truth: Whole, seed: int, draws: int = 50) -> float:
    """Mean AUC against a truth in random order: what the counts alone give."""
    random = generator(seed, "shuffle")
    orders = np.stack([random.permutation(truth) for _ in range(draws)]) == 1
    return float(np.mean(_areas(score, orders)))


def _areas(score: Rows, truths: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Of each of the truths [t, n], which have equally many rows of a kind."""
    from scipy.stats import rankdata

    positive = int(truths[0].sum())
    negative = len(score) - positive
    if not positive or not negative:
        return np.full(len(truths), np.nan)
    ranks = truths @ rankdata(score)
    return np.asarray((ranks - positive * (positive + 1) / 2) / (positive * negative))
