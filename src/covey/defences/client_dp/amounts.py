"""How a budget is split over what a round releases: changes of models, sizes of clusters, how many were clipped.

Each part gets Gaussian noise in units of its own sensitivity; together they are one Gaussian release, whose noise z follows from
1/z² = Σ 1/z_part². So a share s of the budget is a share of 1/z²: its part has noise z / √s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Amounts:
    """Standard deviations, in units of how far one client more or less moves that part in the L2 norm."""

    changes: float  # of C, on every number of every block
    sizes: float = 0.0  # of 1, on every size of a block; 0: sizes are not released
    within: float = 0.0  # of ½, on the sum of bits; 0: not released

    @classmethod
    def split(cls, noise: float, sizes: float, within: float) -> Amounts:
        """z over the parts, by their shares of the budget; changes get the rest."""
        rest = 1.0 - sizes - within
        return cls(noise / math.sqrt(rest), _part(noise, sizes), _part(noise, within))

    @property
    def joint(self) -> float:
        """z of all parts as one release; 0: no noise."""
        if self.changes == 0:
            return 0.0
        return 1 / math.sqrt(sum(1 / part**2 for part in (self.changes, self.sizes, self.within) if part > 0))


def _part(noise: float, share: float) -> float:
    return noise / math.sqrt(share) if share > 0 else 0.0
