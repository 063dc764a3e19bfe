"""Label skew: each client's label proportions are drawn from a Dirichlet distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from covey.data.dataset import Dataset
from covey.data.federation import Federation
from covey.data.holdings import Rows
from covey.data.partitions.dealing import check_clients, generator, hand_out, set_aside
from covey.errors import CoveyError


@dataclass(frozen=True)
class Dirichlet:
    """Client i has label proportions q_i ~ Dir(beta · 1) (`prior = "symmetric"`) or Dir(beta · p) over the
    label prior p (`prior = "label"`, Hsu et al. 2019: far more skewed, since its parameters sum to beta).

    Unequal sizes: the rows of label y are shared in proportion to q_iy, so every row is used. Clients left
    below `minimum` then get rows from the largest clients. Equal sizes: clients draw one after another, in
    random order and without replacement; when a label runs out, its share of q_i falls to the labels that are
    left.

    It always terminates: nothing is redrawn until it fits. Topping up is one pass over the sizes, and a
    client's draw needs at most one pass per label, since every further pass means that a label ran out.
    """

    name: ClassVar[str] = "dirichlet"
    label: ClassVar[str] = "Dirichlet"
    title: ClassVar[str] = "label skew: proportions of labels drawn from a Dirichlet distribution for each client"
    stream: ClassVar[int] = 2

    beta: float = 0.5
    prior: str = "symmetric"  # or "label"
    equal: bool = False
    samples: int = 0  # per client, with equal sizes; 0: all there is
    minimum: int = 10  # no client holds fewer rows
    public: int = 0  # rows that no client holds

    def __post_init__(self) -> None:
        if not (self.beta > 0 and np.isfinite(self.beta)):
            raise CoveyError(f"partition.beta is {self.beta}; it must be above 0 (0.1 is skewed, 100 nearly iid).")
        if self.prior not in ("symmetric", "label"):
            raise CoveyError(f"partition.prior is '{self.prior}'; it is 'symmetric' or 'label'.")
        if self.samples and not self.equal:
            raise CoveyError("partition.samples is the size of equal clients; set partition.equal = true as well.")
        if self.minimum < 1 or self.samples < 0:
            raise CoveyError(
                f"partition.minimum is {self.minimum} and partition.samples {self.samples}; "
                "the first is 1 or more, the second 0 or more."
            )

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        rng = generator(seed, self.stream)
        public, rows = set_aside(np.arange(len(dataset.y_train)), self.public, rng)
        rows, owner = self.share(rows, dataset.y_train[rows], clients, rng)
        held = hand_out(rows, owner, clients, rng)
        return Federation.by_label(dataset, held, public)

    def share(
        self, rows: Rows, labels: NDArray[np.int64], clients: int, rng: np.random.Generator
    ) -> tuple[Rows, NDArray[np.int64]]:
        """(rows, owner of each): `rows` with these `labels` over the clients."""
        check_clients(clients)
        least = max(self.minimum, self.samples)
        if clients * least > len(rows):
            raise CoveyError(
                f"{clients} clients with at least {least} samples each need {clients * least}, but there are "
                f"{len(rows)}; at most {len(rows) // clients} each, or {len(rows) // least} clients, would "
                "work."
            )
        kinds, codes, supply = np.unique(labels, return_inverse=True, return_counts=True)
        alpha = np.full(len(kinds), self.beta)
        if self.prior == "label":
            alpha = self.beta * supply / supply.sum()
        preference = log_dirichlet(alpha, clients, rng)  # [n, labels]
        if self.equal:
            counts = draw_in_turn(preference, supply, self.samples or len(rows) // clients, rng)
        else:
            counts = cut_by_share(preference, supply)

        order = np.lexsort((rng.random(len(rows)), codes))  # label by label, random within
        first = np.cumsum(supply) - supply
        taken = np.concatenate([order[f : f + n] for f, n in zip(first, counts.sum(0))])
        owner = np.concatenate([np.repeat(np.arange(clients), column) for column in counts.T])
        return rows[taken], top_up(owner, clients, self.minimum, rng)


def log_dirichlet(alpha: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Logarithms of `count` Dirichlet draws, [count, len(alpha)].

    In logarithms because Gamma(a) underflows to 0 for small a: Gamma(a) = Gamma(a + 1) · U^(1/a) keeps every
    ratio.
    """
    shape = (count, len(alpha))
    u = np.maximum(rng.random(shape), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):  # a denormal alpha: -inf, clipped on the next line
        gamma = np.log(rng.standard_gamma(alpha + 1.0, shape)) + np.log(u) / alpha
    gamma = np.maximum(gamma, -1e300)
    top = gamma.max(1, keepdims=True)
    return np.asarray(gamma - top - np.log(np.exp(gamma - top).sum(1, keepdims=True)), np.float64)


def cut_by_share(preference: NDArray[np.float64], supply: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts [n, labels]: all rows of each label, cut in proportion to the clients' preferences for it."""
    weight = np.exp(preference - preference.max(0))
    edges = np.cumsum(weight, axis=0)
    edges = np.rint(edges / edges[-1] * supply)  # the last edge is the supply, exactly
    return np.asarray(np.diff(edges, axis=0, prepend=0.0), np.int64)


def draw_in_turn(
    preference: NDArray[np.float64], supply: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Counts [n, labels] with `size` rows per client, drawn client by client while labels last."""
    counts = np.zeros(preference.shape, np.int64)
    left = supply.astype(np.int64)
    for i in rng.permutation(len(preference)):
        want = size
        while want:
            logits = np.where(left > 0, preference[i], -np.inf)
            p = np.exp(logits - logits.max())
            drawn = np.minimum(rng.multinomial(want, p / p.sum()), left)
            counts[i] += drawn
            left -= drawn
            want -= int(drawn.sum())
    return counts


def top_up(owner: NDArray[np.int64], clients: int, minimum: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The owners after every client below `minimum` got rows from the largest ones, which shrink to a common
    level.
    """
    sizes = np.bincount(owner, minlength=clients)
    lacking = np.maximum(minimum - sizes, 0)
    need = int(lacking.sum())
    if not need:
        return owner
    low, high = minimum, int(sizes.max())  # the highest level at which the surplus above it covers the need
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= need else (low, level - 1)
    gives = np.maximum(sizes - low, 0)
    spare = int(gives.sum()) - need  # less than the number of donors, who each keep one row more
    gives[rng.permutation(np.flatnonzero(gives))[:spare]] -= 1

    order = np.lexsort((rng.random(len(owner)), owner))
    rank = np.empty(len(owner), np.int64)  # of each row among its owner's, in random order
    rank[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    given = rng.permutation(np.flatnonzero(rank < gives[owner]))
    owner = owner.copy()
    owner[given] = np.repeat(np.arange(clients), lacking)
    return owner
