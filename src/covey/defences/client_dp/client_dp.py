"""Client-level DP: McMahan et al., Learning Differentially Private Recurrent Language Models, ICLR 2018, over any sum of clients.

Hides one client with all its data, its cluster and whether it took part, from whoever sees the models. `noise` says who adds it
and so whom it protects against: `protocol.py` has the steps, `summation.py` the ways, `docs/guarantee.md` the theorem.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from covey.algorithms.contract import Client, Coroutine
from covey.algorithms.sums.contributions import METHODS, is_summed
from covey.config import later
from covey.defences.client_dp.amounts import Amounts
from covey.defences.client_dp.clipping import check_clip
from covey.defences.client_dp.correlated import column_norm
from covey.defences.client_dp.protocol import Protected, Steps
from covey.defences.client_dp.summation import Central, Local
from covey.defences.contract import CLIPPING, Terms
from covey.defences.randomised_response import RandomisedResponse
from covey.errors import CoveyError, meant
from covey.learn.work import Train
from covey.ledger.calibration import check_delta
from covey.ledger.clients import noise_for
from covey.measures import Measure
from covey.strength import Strength

SERVER, CLIENTS, LOCAL, AUTO = "server", "clients", "local", "auto"
WAYS = (AUTO, SERVER, CLIENTS, LOCAL)
POISSON, TURNS = "poisson", "turns"
WHOLE_NUMBERS = 1 + 2.0**-12  # more noise, for what a grid costs: the ε that was asked for holds all the same
_DELTA = re.compile(r"1/clients(?:\^([0-9.]+))?")


@dataclass(frozen=True)
class ClientDP:
    name: ClassVar[str] = "client_dp"
    label: ClassVar[str] = "Client-level DP"
    title: ClassVar[str] = "clipped changes of whole clients, a noised sum (McMahan et al. 2018)"
    measures: ClassVar[Mapping[str, Measure]] = {"clip": CLIPPING}
    strengths: ClassVar[tuple[Strength, ...]] = (
        Strength("epsilon", (100.0, 30.0, 10.0, 3.0, 1.0), "ε", "budget of a whole client over the run"),
    )

    epsilon: float = 8.0  # over the whole run, for one client more or less; inf: clipping alone
    delta: float | str = "1/clients^1.1"  # or a number
    noise_multiplier: float = 0.0  # > 0: this noise, in units of what one client adds, in place of a search for ε's
    clip: float = 1.0  # C, of all that a client adds in a round; the first one where it adapts
    quantile: float = 0.0  # > 0: C follows this quantile of the norms
    quantile_share: float = 0.05  # of the budget, for that
    clip_rate: float = 0.2  # how fast C follows
    noise: str = AUTO  # by the "server"; a share by each of the "clients", inside a sealed sum; all by each, "local"
    histogram: float = 0.1  # share of the budget for the noised sizes of clusters; 0: clusters count as equally large
    min_size: float = 0.0  # a cluster with fewer clients, by its noised size, keeps its model
    band: int = 1  # > 1: later rounds take noise back, over so many rounds; for clients that answer in turns
    momentum: float = 0.0  # of the server, on noised means
    server_lr: float = 1.0
    identity_epsilon: float = 0.0  # > 0: the cluster itself by randomised response, ε of one answer …
    identity_every: int = 0  # … which is given anew after so many rounds; 0: once
    quorum: int = later(0)  # t: clients that open a sealed sum together; 0: more than half of those in a round
    corrupted: int = later(-1)  # c: clients that may side with the server; −1: t − 1, all that open nothing together
    survivors: float = later(0.9)  # of those in a round: a sealed sum with fewer in it is not opened

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise CoveyError(f"defence.epsilon is {self.epsilon}: a privacy budget must be above 0")
        if isinstance(self.delta, str) and not _DELTA.fullmatch(self.delta):
            raise CoveyError(
                f"defence.delta is {self.delta!r}: expected a number, or '1/clients^1.1' with a power of yours"
            )
        if not isinstance(self.delta, str):
            check_delta(self.delta)
        check_clip(float(self.clip), "defence.clip")
        if self.noise not in WAYS:
            raise CoveyError(f"defence.noise is {self.noise!r}: choose {', '.join(WAYS)}{meant(self.noise, WAYS)}")
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0):
            raise CoveyError(
                f"defence.noise_multiplier is {self.noise_multiplier}: expected 0 (search) or a number above"
            )
        if not 0 <= self.quantile < 1 or not 0 <= self.clip_rate <= 1:
            raise CoveyError(
                f"defence.quantile is {self.quantile} and defence.clip_rate {self.clip_rate}: expected a quantile from 0 (none) to "
                "below 1, and a rate from 0 to 1"
            )
        if not (0 <= self.histogram < 1 and 0 < self.quantile_share < 1 and self.histogram + self.quantile_share < 1):
            raise CoveyError(
                f"defence.histogram is {self.histogram} and defence.quantile_share {self.quantile_share}: they are shares of one "
                "budget, of which something must be left for the models"
            )
        if self.band < 1 or self.identity_every < 0 or self.min_size < 0:
            raise CoveyError(
                "defence.band must be at least 1, defence.identity_every and defence.min_size not negative"
            )
        if not (0 <= self.momentum < 1 and math.isfinite(self.server_lr) and self.server_lr > 0):
            raise CoveyError(
                f"defence.momentum is {self.momentum} and defence.server_lr {self.server_lr}: expected 0 to below 1, and above 0"
            )
        if self.identity_epsilon:
            self._answers()  # refuses what is none

    def train(self, me: Client, work: Train) -> Coroutine:
        """Training itself is as ever: what is bounded is what comes of it."""
        return (yield work)

    def choose(self, me: Client, losses: Tensor) -> int:
        return self._answers().choose(me, losses) if self.identity_epsilon else int(losses.argmin())

    def around(self, algorithm: Any, terms: Terms) -> Protected:
        self._check(algorithm, terms)
        steps = Steps(self.min_size, self.quantile, self.clip_rate, self.momentum, self.server_lr)
        return Protected(algorithm, self._summation(algorithm, terms), terms, self.clip, steps)

    def delta_of(self, clients: int) -> float:
        if not isinstance(self.delta, str):
            return self.delta
        power = _DELTA.fullmatch(self.delta)
        delta = math.pow(clients, -float((power and power.group(1)) or 1.0))
        check_delta(delta)
        return delta

    def way(self, encryption: str) -> str:
        """Who adds the noise."""
        sealed = encryption != "none"
        if self.noise == AUTO:
            return CLIENTS if sealed else SERVER
        if (self.noise == CLIENTS) != sealed:
            raise CoveyError(
                f"defence.noise is {self.noise!r} and encryption '{encryption}': shares of noise are added inside sealed sums, and "
                "sealed sums get their noise from clients; set both or neither"
            )
        return self.noise

    def joint_noise(self, terms: Terms, sampling: float) -> float:
        """z of one sum: as given, or the least with which the whole run costs ε."""
        if self.noise_multiplier:
            return self.noise_multiplier
        return column_norm(self.band) * noise_for(self.epsilon, self.delta_of(terms.clients), answers(terms), sampling)

    def _summation(self, algorithm: Any, terms: Terms) -> Any:
        way, delta = self.way(terms.encryption), self.delta_of(terms.clients)
        blocks = algorithm.blocks(terms)
        if way == CLIENTS:
            return self._sealed(algorithm, terms, delta)
        sampling = terms.share if way == SERVER and terms.sampling == POISSON else 1.0
        amounts = self.amounts(algorithm, terms, sampling)
        if way == LOCAL:
            return Local(amounts, blocks, delta, terms.clients)
        return Central(
            amounts,
            blocks,
            algorithm.counted,
            getattr(algorithm, "one_part", True),
            delta,
            terms.clients,
            sampling,
            self.band,
            terms.sampling == TURNS,
        )

    def _sealed(self, algorithm: Any, terms: Terms, delta: float) -> Any:
        from covey.defences.client_dp.sealed import Circle, Sealed, carrier_of  # lattices take a moment to import

        if self.band > 1:
            raise CoveyError(
                "defence.band takes back noise that the server drew, and clients draw theirs: set band = 1"
            )
        amounts = self.amounts(algorithm, terms, 1.0, 1.0 if self.noise_multiplier else WHOLE_NUMBERS)
        if not amounts.changes:
            raise CoveyError(
                "defence.epsilon is inf: a sealed sum without noise would be opened to everybody; set a finite epsilon"
            )
        circle = Circle.of(terms, self.quorum, self.corrupted, self.survivors)
        return Sealed(amounts, algorithm.blocks(terms), delta, circle, carrier_of(terms.encryption))

    def amounts(self, algorithm: Any, terms: Terms, sampling: float, more: float = 1.0) -> Amounts:
        """The noise of each part."""
        joint = more * self.joint_noise(terms, sampling)
        return Amounts.split(
            joint, self.histogram if algorithm.counted else 0.0, self.quantile_share if self.quantile else 0.0
        )

    def _answers(self) -> RandomisedResponse:
        return RandomisedResponse(self.identity_epsilon, self.identity_every)

    def _check(self, algorithm: Any, terms: Terms) -> None:
        """Refuses what the theorem does not cover."""
        if not is_summed(algorithm):
            raise CoveyError(
                f"client-level DP needs an algorithm whose round is a sum over clients, and {algorithm.name} has no own "
                f"{', '.join(METHODS)}: take fedavg, fedprox, scaffold, ifca or fedsoft"
            )
        if getattr(algorithm, "weighting", "clients") != "clients":
            raise CoveyError(
                f"algorithm.weighting is {algorithm.weighting!r}: a client that weighs what its number of samples says has no "
                "bounded influence; set algorithm.weighting = 'clients'"
            )
        if getattr(algorithm, "aggregation", "mean") != "mean":
            raise CoveyError(
                f"algorithm.aggregation is {algorithm.aggregation!r}: only a sum is noised; set algorithm.aggregation = 'mean'"
            )
        if getattr(algorithm, "selection", 0):
            raise CoveyError("algorithm.selection draws clients by what they state: set algorithm.selection = 0")
        if terms.stops_early:
            raise CoveyError(
                "training.target ends a run by accuracies that nothing protects, so its length would tell: leave it out"
            )
        if self.identity_epsilon:
            self._answers().around(algorithm, terms)
        if self.band > 1 and (terms.sampling != TURNS or round(1 / terms.share) < self.band):
            raise CoveyError(
                f"defence.band is {self.band}: noise may be taken back over so many rounds only if no client answers twice within "
                f"them; set participation.sampling = 'turns' and participation.share = {1 / self.band:.3g} or less"
            )


def answers(terms: Terms) -> int:
    """In how many rounds one client may count."""
    return -(-terms.rounds // round(1 / terms.share)) if terms.sampling == TURNS else terms.rounds
