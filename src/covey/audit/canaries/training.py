"""Tests of a defence: canaries among the samples that a client trains on, looked for in the models that it releases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.audit.canaries import guesses, worlds
from covey.audit.canaries.challenge import Challenge, challenge, federation
from covey.audit.canaries.claims import Claim, claims, worst_claim
from covey.audit.canaries.mechanism import Public, Trials, released, training_trials
from covey.audit.canaries.verdict import LedgerTest
from covey.data.dataset import Dataset
from covey.engines.hosts.host import Outcome
from covey.engines.prepare import device_of
from covey.experiment.experiment import Experiment
from covey.learn.flat import Network
from covey.learn.kernels.linear import is_stack
from covey.randomness import generator

ROUNDS = 2  # of two worlds: enough to see noise that is drawn twice
TRIALS, FEWEST = 4000, 240
WORK = 2e11  # additions and products that each test may cost, roughly: some 15 seconds of two cores
REUSE = 10.0  # times as much where weights are used at many places, as convolutions and attention do
CANARIES, PLANTED = 100, 500  # in one client, and in all clients of one run


@dataclass(frozen=True)
class Subject:
    """A defence as one experiment uses it."""

    experiment: Experiment
    network: Network
    data: Dataset
    public: Public
    samples: int  # of a tested client
    deployed: bool

    def plant(self, replaced: bool, canaries: int, starts: int) -> Challenge:
        seed = self.experiment.seed
        return challenge(self.network, self.data, replaced, canaries, starts, seed, device_of(self.experiment))

    def trials(self, planted: Challenge, coins: Sequence[NDArray[np.bool_]]) -> Trials:
        held = federation(planted, coins, self.samples)
        return training_trials(self.experiment, self.network, held, planted.starts, self.public, self.deployed)

    @property
    def work(self) -> float:
        """Of one client in one round: products with its weights, its noise, and a look at all of its samples."""
        plan, samples = self.experiment.training.plan(1), self.samples
        batch = min(plan.batch_size or samples, samples)
        reuse = 1.0 if is_stack(self.network) else REUSE
        return reuse * self.network.d * (plan.steps_for(samples) * (6.0 * batch + 60.0) + 6.0 * samples)

    def test(self, claim: Claim, seen: worlds.Worlds | guesses.Guesses, **more: Any) -> LedgerTest:
        claimed = claim.epsilon if math.isfinite(claim.epsilon) else None
        known: dict[str, Any] = {
            "mechanism": claim.mechanism,
            "claimed": claimed,
            "delta": claim.delta,
            "deployed": self.deployed,
        }
        return LedgerTest(**known, **more, **asdict(seen))


def tests(subject: Subject, trials: int) -> list[LedgerTest]:
    """Two worlds, then one run; [] where the defence books nothing. `trials` of two worlds; 0: as many as take a while."""
    probe = subject.plant(False, 1, 1)
    [[[outcome]]] = subject.trials(probe, [np.zeros(1, bool)]).turns([0], 1)
    booked = claims([outcome])
    if not booked:
        return []
    # By the size of the work and not by the clock: the same experiment is tested alike everywhere.
    affordable = int(min(max(WORK / (ROUNDS * subject.work), FEWEST), TRIALS))
    replaced = booked[0].replaced
    return [_two_worlds(subject, replaced, trials or affordable), _one_run(subject, replaced)]


def _two_worlds(subject: Subject, replaced: bool, trials: int) -> LedgerTest:
    rounds, seed = min(ROUNDS, subject.experiment.training.rounds), subject.experiment.seed
    planted = subject.plant(replaced, 1, rounds)
    there = generator(seed, "two worlds").permutation(np.arange(trials) % 2 == 0)
    clients = subject.trials(planted, [there[i : i + 1] for i in range(trials)])
    probes = planted.directions[:, 0].T.double()
    known: list[NDArray[np.float64]] = []
    first: list[list[Outcome]] = []
    for group in clients.turns(range(trials), rounds):
        if not known:
            first = group
            probes = torch.cat([probes, _weighed(group, there[: len(group)], probes)], 1)  # [d, f]
        known += [_projections(turns, planted.starts, probes) for turns in group]
    claim = worst_claim(first)
    scores = worlds.discriminant(np.stack(known), there)
    seen = worlds.compare(scores, there, claim.curve, claim.delta)
    return subject.test(claim, seen, method="two worlds", rounds=rounds, trials=trials)


def _projections(turns: list[Outcome], starts: Tensor, probes: Tensor) -> NDArray[np.float64]:
    """How far each release of a trial moved along each probe."""
    moved = []
    for round, outcome in enumerate(turns):
        for model in released(outcome):
            change = model.cpu().double() - starts[round % len(starts)].double()
            moved.append(change @ probes)
    return torch.cat(moved).numpy()


def _weighed(group: list[list[Outcome]], there: NDArray[np.bool_], directions: Tensor) -> Tensor:
    """The directions once more, every coordinate by its precision: right where coordinates have noise of their own."""
    models = torch.stack([released(turns[0])[0].cpu().double() for turns in group])
    world = torch.from_numpy(there)
    rest = torch.cat([part - part.mean(0) for part in (models[world], models[~world]) if len(part)])
    variance = rest.square().mean(0)
    relative = variance / variance.max() if variance.max() > 0 else torch.ones_like(variance)
    return directions / relative.clamp(min=1e-12)[:, None]


def _one_run(subject: Subject, replaced: bool) -> LedgerTest:
    work, each = subject.work, min(subject.samples, CANARIES)
    rounds = int(min(subject.experiment.training.rounds, max(1, WORK // work)))
    clients = int(min(-(-PLANTED // each), max(1, WORK // (work * rounds))))
    planted = subject.plant(replaced, each, 1)
    rng = generator(subject.experiment.seed, "one run")
    coins = [rng.random(each) < 0.5 for _ in range(clients)]
    everyone = subject.trials(planted, coins)
    turns = [outcomes for group in everyone.turns(range(clients), rounds) for outcomes in group]
    claim = worst_claim(turns)
    told_apart = _estimator(planted)
    scores = [_evidence(outcomes, planted, told_apart) for outcomes in turns]
    seen = guesses.judge(scores, coins, claim.epsilon, claim.delta)
    return subject.test(claim, seen, method="one run", rounds=rounds, trials=each * clients)


def _estimator(planted: Challenge) -> Tensor:
    """[m, d]: least squares of a change of the model by the canaries' directions, with a ridge where two are alike."""
    directions = planted.directions[0].double()
    alike = directions @ directions.T
    solved: Tensor = torch.linalg.solve(alike + 0.1 * torch.eye(len(alike), dtype=torch.float64), directions)
    return solved


def _evidence(turns: list[Outcome], planted: Challenge, estimator: Tensor) -> NDArray[np.float64]:
    """How much of each canary is in all the models that a client released."""
    start = planted.starts[0].double()
    change = sum((model.cpu().double() - start for outcome in turns for model in released(outcome)), torch.zeros(()))
    return (estimator @ change).numpy()
