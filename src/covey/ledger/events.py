"""The ledger: first say what happened (events, booked with `me.spend`), then price it (`price`).

An ε is never copied from a configuration: it is computed from the noise that was added, per client and over all its rounds,
and stands beside what the paper claims for one step. Where the formal guarantee is weaker than the printed figure, the entry
says so. An event that nobody can price raises.

    {mechanism: {unit, epsilon, delta, units {record, client}, per_step {…}, total {…}, composition, clients, rounds,
                 sensitivity {…}, adjacency, noise, caveat}}

`epsilon` is the worst client's over the whole run; None where nothing is guaranteed. `unit` is what it hides: one record of a
client, a client with all that it holds, or only its cluster; `units` has the ε of the first two, side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.messages import message

PUBLIC = "public bound"
PRIVATE = "private data"
EVERYONE = -1  # in place of a client: spent for all of them, whether they took part or not
RECORD, CLIENT, CLUSTER = (
    "record",
    "client",
    "client's cluster",
)  # what neighbours differ in: one sample of one client, a client with all its samples, or only what it says of its cluster


@message
@dataclass(frozen=True)
class SubsampledGaussian:
    """Steps of DP-SGD on random batches of one client's samples."""

    sampling: float  # q = |b| / n
    noise: float  # σ, in units of the clipping bound
    steps: int
    uses: int  # in how many of these steps one sample takes part at most
    clip: float = 1.0  # C, the sensitivity of a batch's sum
    delta: float = 1e-5
    mechanism: str = "dp_sgd"
    poisson: bool = False  # every step took each sample with probability q; else batches are cut from shuffled epochs
    rounding: float = 0.0  # what the noise's grid adds to C / (its standard deviation): see crypto/noise/source.py
    secret: bool = False  # the noise is the operating system's; else it is keyed, and can be drawn again

    @property
    def worth(self) -> float:
        """σ of the continuous noise that protects as much."""
        return _worth(self.noise, 1.0, self.rounding)


@message
@dataclass(frozen=True)
class GaussianRelease:
    """One vector with Gaussian noise on it."""

    epsilon: float  # what its calibration claims for this release
    delta: float
    sigma: float  # noise in units of `sensitivity`: of the coordinate that got the least
    sensitivity: float  # what the noise was scaled to, in the L2 norm
    sensitivity_from: str = PUBLIC  # or PRIVATE: it is then itself a leak
    growth: float = 1.0  # how many times `sensitivity` neighbouring releases can really be apart
    mechanism: str = "gaussian"
    rounding: float = (
        0.0  # what the noise's grid, and rounding before it, add to (neighbours' distance) / (its deviation)
    )
    secret: bool = False

    @property
    def worth(self) -> float:
        """σ of the continuous noise that protects as much, in units of how far neighbours can be apart."""
        return _worth(self.sigma, self.growth, self.rounding)


@message
@dataclass(frozen=True)
class LaplaceRelease:
    """Records released once each, every coordinate with Laplace noise of scale Δ/ε."""

    epsilon: float  # per coordinate
    coordinates: int  # of one record
    sensitivity: float  # Δ, the largest over the coordinates
    sensitivity_from: str = PUBLIC
    delta: float = 1e-5  # of the ledger's second statement; the mechanism itself has none
    mechanism: str = "laplace"
    rounding: float = 0.0  # what the grid of the noise adds to ε, per coordinate
    secret: bool = False

    @property
    def per_coordinate(self) -> float:
        return self.epsilon + self.rounding


@message
@dataclass(frozen=True)
class ClientRelease:
    """One noised sum over clients, all that is released of it together: models, sizes of clusters, how many were clipped."""

    noise: float  # standard deviation, in units of how far one client more or less moves the sum in the L2 norm
    delta: float
    sampling: float = (
        1.0  # each client was in it with this probability, by a coin that nobody else saw; 1: no amplification
    )
    against: str = ""  # who may see it, and not more
    clients: int = 0
    mechanism: str = "client_dp"
    rounding: float = 0.0  # what grids and floats add to 1 / noise
    secret: bool = False
    grid: float = 0.0  # what the release adds to ε, since its noise is in whole numbers: see crypto/noise/shares.py
    zeroed: bool = False  # a client that is "removed" still sends, zeros with its noise: that it takes part is seen

    @property
    def worth(self) -> float:
        return _worth(self.noise, 1.0, self.rounding)


@message
@dataclass(frozen=True)
class RandomisedAnswer:
    """A client's cluster, told truly with the probability e^ε / (e^ε + k − 1), else one of the others by lot."""

    epsilon: float
    clusters: int
    delta: float = 1e-5  # of the ledger's second statement; an answer has none
    mechanism: str = "randomised_response"
    secret: bool = False


Event = SubsampledGaussian | GaussianRelease | LaplaceRelease | ClientRelease | RandomisedAnswer


def _worth(sigma: float, growth: float, rounding: float) -> float:
    if rounding == 0 or sigma == 0:
        return sigma / growth
    return 1 / (growth / sigma + rounding)
