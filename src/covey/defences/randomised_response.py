"""Randomised response over clusters: Warner 1965; Kairouz, Oh and Viswanath 2016 for k answers.

A client takes part in the cluster that fits it best with the probability e^ε / (e^ε + k − 1), else in one of the others by lot, and
trains that cluster's model. Its answer is given anew only in rounds that are known beforehand; between them it stays, whatever the
client would choose, so that a run costs ε for each answer. Every cluster gets at least k / (e^ε + k − 1) of an equal share of the
clients in expectation, however few prefer it.

What is covered is the cluster that is told. The model that is sent with it is not, unless another noise is on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.defences.contract import Terms
from covey.errors import CoveyError
from covey.learn.work import Train
from covey.ledger.clients import truth_probability
from covey.ledger.events import RandomisedAnswer
from covey.strength import Strength

_ANSWER = "randomised cluster"  # in a client's memory


@dataclass(frozen=True)
class RandomisedResponse:
    name: ClassVar[str] = "randomised_response"
    label: ClassVar[str] = "Randomised response"
    title: ClassVar[str] = "clients tell, and train, a cluster that is theirs with a known probability"
    strengths: ClassVar[tuple[Strength, ...]] = (
        Strength("epsilon", (8.0, 4.0, 2.0, 1.0, 0.5), "ε", "budget of one answer"),
    )

    epsilon: float = 1.0  # of one answer
    every: int = 0  # rounds between two answers; 0: one for the whole run

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise CoveyError(f"the ε of a randomised answer is {self.epsilon}: a privacy budget must be above 0")
        if self.every < 0:
            raise CoveyError(f"answers are given anew after {self.every} rounds: expected 0 (once) or more")

    def around(self, algorithm: Any, terms: Terms) -> Any:
        """The algorithm as it is, if its clients tell a cluster: under another nothing would be hidden, unsaid."""
        if not vars(type(algorithm)).get(
            "chooses", False
        ):  # of its own: a class that inherits may choose in another way
            raise CoveyError(
                f"randomised response answers for clients that choose a cluster, and those of {algorithm.name} are not asked: take "
                "algorithm = 'ifca'"
            )
        return algorithm

    def train(self, me: Client, work: Train) -> Coroutine:
        return (yield work)

    def choose(self, me: Client, losses: Tensor) -> int:
        """The answer that stands, or a new one where one is due; only a new one is spent."""
        best, k = int(losses.argmin()), len(losses)
        period = (me.round - 1) // self.every if self.every else 0
        given = me.memory.get(_ANSWER)
        if given is not None and given[0] == period and given[1] < k:
            return int(given[1])
        answer = best if k == 1 else self._answer(me, best, k)
        me.memory[_ANSWER] = [period, answer]
        me.spend(RandomisedAnswer(self.epsilon, k, secret=me.noise.secret))
        return answer

    def _answer(self, me: Client, best: int, k: int) -> int:
        coin, place = _draws(me, k - 1)
        return best if coin < truth_probability(self.epsilon, k) else (best + 1 + place) % k


def _draws(me: Client, others: int) -> tuple[float, int]:
    """A uniform number and one of the others, secret in a silo."""
    if me.secret is None:
        random = me.random("randomised response")
        return float(random.random()), int(random.integers(others))
    word, lot = me.secret.bits(1, 2)[0].tolist()
    return math.ldexp(word, -63), lot % others  # off by k 2^-63 from equal chances
