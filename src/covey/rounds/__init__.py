"""The round loop of a simulation and what it records of a round. Clients run in `engines`, results are read in `results`."""

from covey.rounds.completion import complete
from covey.rounds.loop import run

__all__ = ["complete", "run"]
