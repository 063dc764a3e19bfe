"""The split of the property-inference papers: one victim and one attacker hold all samples that have the
property.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from covey.data.dataset import UNKNOWN, Dataset
from covey.data.federation import Federation
from covey.data.holdings import Rows
from covey.data.partitions.dealing import check_clients, generator, hand_out, look_alikes, set_aside
from covey.data.partitions.dirichlet import Dirichlet
from covey.errors import CoveyError, nearest


@dataclass(frozen=True)
class PropertySplit:
    """Victim and attacker hold half of the property rows each; all clients, these two included, share the
    others by a Dirichlet split over the main label. Rows whose attribute is unknown are left out.

    The attacker's auxiliary data are its own rows, so they are disjoint from the victim's. `notes` carries
    `victim`, `attacker` and the row arrays `victim_property`, `victim_other`, `attacker_property`,
    `attacker_other`. The control of `placebo = true` is a federation whose "property" means nothing: a random
    subset of the other rows with the label shares of the real one, which is left out altogether.
    """

    name: ClassVar[str] = "property"
    label: ClassVar[str] = "Property split"
    title: ClassVar[str] = "one victim and one attacker hold all rows that have a property"
    stream: ClassVar[int] = 5
    plants_property: ClassVar[bool] = True

    attribute: str = "glasses"
    value: int = 1  # a row has the property when its attribute equals this
    victim: int = 0
    attacker: int = 1
    beta: float = 1.0  # of the Dirichlet split of the other rows; the papers do not state it
    minimum: int = 32  # other rows that every client has: one batch
    public: int = 0  # other rows that no client holds
    placebo: bool = False

    def __post_init__(self) -> None:
        Dirichlet(beta=self.beta, minimum=self.minimum)  # refuses what it cannot use
        if self.victim == self.attacker:
            raise CoveyError(f"victim and attacker are both client {self.victim}; they must differ.")

    def make(self, dataset: Dataset, clients: int, clusters: int, seed: int) -> Federation:
        check_clients(clients)
        outside = [i for i in (self.victim, self.attacker) if not 0 <= i < clients]
        if outside:
            raise CoveyError(f"client {outside[0]} is to be victim or attacker, but clients are 0 to {clients - 1}.")
        rng = generator(seed, self.stream)
        marked, others, excluded = self._rows(dataset, rng)

        half = (len(marked) + 1) // 2
        holders = np.where(np.arange(len(marked)) < half, self.victim, self.attacker)
        public, others = set_aside(others, self.public, rng)
        others, owner = Dirichlet(beta=self.beta, minimum=self.minimum).share(
            others, dataset.y_train[others], clients, rng
        )
        held = hand_out(np.concatenate([marked, others]), np.concatenate([holders, owner]), clients, rng)
        return Federation.by_label(
            dataset,
            held,
            public,
            property=f"{self.attribute} = {self.value}" + (" (placebo)" if self.placebo else ""),
            victim=self.victim,
            attacker=self.attacker,
            victim_property=marked[:half],
            victim_other=np.sort(others[owner == self.victim]),
            attacker_property=marked[half:],
            attacker_other=np.sort(others[owner == self.attacker]),
            excluded=excluded,
        )

    def _rows(self, dataset: Dataset, rng: np.random.Generator) -> tuple[Rows, Rows, int]:
        """(property rows in random order, other rows, number of rows left out)."""
        if self.attribute not in dataset.attributes:
            known = tuple(dataset.attributes)
            tail = nearest(self.attribute, known) if known else "; it has none: take lfw, utkface, yelp or yelp-like"
            raise CoveyError(f"{dataset.name} has no attribute '{self.attribute}'{tail}")
        values = np.asarray(dataset.attributes[self.attribute])
        marked = rng.permutation(np.flatnonzero(values == self.value))
        unknown = values == (UNKNOWN if values.dtype == np.uint8 else -1)  # wider types hold numbers of people
        others = np.flatnonzero((values != self.value) & ~unknown)
        if len(marked) < 2:
            raise CoveyError(
                f"{len(marked)} training rows of {dataset.name} have {self.attribute} = {self.value}; "
                "victim and "
                f"attacker need at least one each (values there are: {np.unique(values).tolist()[:20]})."
            )
        if self.placebo:
            marked = look_alikes(dataset.y_train, marked, others, rng)
            others = np.setdiff1d(others, marked, assume_unique=True)
        return marked, others, len(values) - len(marked) - len(others)
