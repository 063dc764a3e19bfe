"""Who takes part in a round, and with how much work: pure functions of the seed and the round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.config import later
from covey.errors import CoveyError, meant
from covey.randomness import generator

FIXED, POISSON, TURNS = "fixed", "poisson", "turns"
SAMPLINGS = (FIXED, POISSON, TURNS)


@dataclass(frozen=True)
class Participation:
    """Client sampling, drop-outs, joiners and device heterogeneity."""

    share: float = 1.0  # of the clients that have joined, drawn anew each round
    dropout: float = 0.0  # probability that a drawn client is lost in a round; its work does not count
    vanish: float = later(0.0)  # probability that a client that has replied answers nothing more in its round
    drops: tuple[tuple[int, int], ...] = ()  # (round, client): drop-outs by schedule
    initial: int = 0  # clients present from the first round; 0: all
    join: int = 0  # this many more …
    join_every: int = 0  # … every so many rounds
    newcomer_samples: int = later(0)  # that those who join later hold at most; 0: as many as others
    # Whether those who join later have labels. Without, they train nothing: they take part once, in the round they come in
    # (whatever `share` draws; who drops out then is not asked again), where the algorithm places them by their samples
    # (`introduce`), and use what it hands them from then on
    newcomer_labels: bool = later(True)
    # "fixed": as many in each round; "poisson": each by a coin of its own; "turns": client i in every 1/share-th round, from the
    # (i mod 1/share)-th on
    sampling: str = later("fixed")
    slowest: float = 1.0  # device heterogeneity: E_i = d_i · E with d_i ~ U[slowest, 1]
    # Asynchronous rounds, as FedBuff has them: a round ends with so many replies, whoever they are from; 0: it waits for all
    buffer: int = later(0)
    max_staleness: int = later(10)  # rounds: a client that takes longer sends nothing and begins anew
    staleness_power: float = later(0.5)  # what a reply of τ rounds ago changes is multiplied by (1 + τ)^-power
    delay: float = later(0.0)  # simulated: a client's work takes 1 + delay · |z_i|, z_i ~ N(0, 1), of a time of its own

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise CoveyError(f"participation.share is {self.share}: it must be above 0 and at most 1")
        if self.sampling not in SAMPLINGS:
            raise CoveyError(
                f"participation.sampling is {self.sampling!r}: choose {', '.join(SAMPLINGS)}{meant(self.sampling, SAMPLINGS)}"
            )
        if self.sampling == TURNS and abs(1 / self.share - round(1 / self.share)) > 1e-6:
            raise CoveyError(f"participation.share is {self.share}: clients take turns in 1 of 2, 3, 4 … rounds")
        if not 0 <= self.dropout < 1:
            raise CoveyError(f"participation.dropout is {self.dropout}: it must be at least 0 and below 1")
        if not 0 <= self.vanish < 1:
            raise CoveyError(f"participation.vanish is {self.vanish}: it must be at least 0 and below 1")
        if not 0 < self.slowest <= 1:
            raise CoveyError(f"participation.slowest is {self.slowest}: it must be above 0 and at most 1")
        if min(self.initial, self.join, self.join_every) < 0 or (self.join > 0) != (self.join_every > 0):
            raise CoveyError("participation.join and participation.join_every go together and must not be negative")
        if self.join and not self.initial:
            raise CoveyError("participation.join needs participation.initial: how many clients are there at first?")
        if self.newcomer_samples < 0 or (self.newcomer_samples and not self.join):
            raise CoveyError(
                f"participation.newcomer_samples is {self.newcomer_samples}: a number of 0 or more, of clients that join later "
                "(participation.initial, join and join_every)"
            )
        if not self.newcomer_labels and not self.join:
            raise CoveyError(
                "participation.newcomer_labels = false is of clients that join later: set participation.initial, join and "
                "join_every, or leave it out"
            )
        if self.buffer < 0 or self.max_staleness < 0 or self.staleness_power < 0 or not 0 <= self.delay < 1e6:
            raise CoveyError(
                "participation.buffer, max_staleness, staleness_power and delay must not be negative, and delay be below 1e6"
            )
        if self.buffer and (self.share < 1 or self.sampling != FIXED or self.initial or self.dropout or self.drops):
            raise CoveyError(
                "participation.buffer makes rounds asynchronous, and all clients are at work then: leave out participation.share, "
                "sampling, dropout, drops and initial, or buffer"
            )
        if any(len(pair) != 2 for pair in self.drops):
            raise CoveyError("participation.drops holds pairs [round, client]")

    def joined(self, round: int, clients: int) -> int:
        """How many clients (the first so many) have joined by this round (rounds count from 1)."""
        if not self.initial:
            return clients
        more = self.join * ((round - 1) // self.join_every) if self.join_every else 0
        return min(clients, self.initial + more)

    def arrival(self, client: int) -> int:
        """The first round of a client; 0: it has been there from the beginning, or never comes."""
        if not self.initial or client < self.initial or not self.join_every:
            return 0
        return 1 + self.join_every * (1 + (client - self.initial) // self.join)

    def unlabelled(self, client: int) -> bool:
        return not self.newcomer_labels and client >= self.initial

    def participants(self, seed: int, round: int, clients: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(those whose replies arrive, those who were drawn but dropped out), both in order."""
        present = self.joined(round, clients)
        drawn = np.arange(present)
        if self.sampling == TURNS:
            turns = int(1 / self.share + 0.5)
            drawn = drawn[drawn % turns == (round - 1) % turns]
        elif self.sampling == POISSON:
            drawn = np.flatnonzero(generator(seed, round, "participants").random(present) < self.share)
        elif self.share < 1:
            count = max(1, round_half_up(self.share * present))
            drawn = np.sort(generator(seed, round, "participants").permutation(present)[:count])
        lost = np.zeros(len(drawn), np.bool_)
        if self.dropout:
            lost = generator(seed, round, "dropout").random(clients)[drawn] < self.dropout
        for when, who in self.drops:
            if when == round:
                lost |= drawn == who
        return drawn[~lost], drawn[lost]

    def vanished(self, seed: int, round: int, clients: int) -> NDArray[np.bool_]:
        """[clients]: who is gone between its reply and a further question of the same round."""
        gone: NDArray[np.bool_] = generator(seed, round, "vanish").random(clients) < self.vanish
        return gone

    def speeds(self, seed: int, clients: int) -> NDArray[np.float64]:
        """d_i of every client, fixed for the run."""
        return generator(seed, "devices").uniform(self.slowest, 1.0, clients)

    def durations(self, seed: int, clients: int) -> NDArray[np.float64]:
        """How long each client's work takes, in simulated time: half-normal, as FedBuff's authors draw it; fixed for the run."""
        return 1.0 + self.delay * np.abs(generator(seed, "delays").standard_normal(clients))


def round_half_up(value: float) -> int:
    return int(value + 0.5)
