"""covey: private clustered federated learning.

from covey import Experiment, run

result = run(Experiment.of(dataset="digits", algorithm="ifca"))
print(result.accuracy)
"""

__version__ = "0.1.0"

from covey.errors import CoveyError
from covey.experiment import Experiment
from covey.result import Result
from covey.run import run  # also the name of the module: the function is what `covey.run` means from here on

__all__ = ["CoveyError", "Experiment", "Result", "__version__", "run"]
