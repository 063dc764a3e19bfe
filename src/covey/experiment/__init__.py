"""Everything that determines a run, as one frozen dataclass and its tables. What computes it lives in `engines` and `rounds`."""

from covey.experiment.experiment import Experiment

__all__ = ["Experiment"]
