"""covey: private clustered federated learning.

from covey import Experiment, run

result = run(Experiment.of(dataset="digits", algorithm="ifca"))
print(result.accuracy)
"""

__version__ = "0.1.0"

from covey.errors import CoveyError
from covey.experiment.experiment import Experiment
from covey.rounds.loop import (
    run,  # also the name of the module: the function is what `covey.rounds.loop` means from here on
)
from covey.rounds.result import Result

__all__ = ["CoveyError", "Experiment", "Result", "__version__", "run"]
