"""covey: private clustered federated learning.

from covey import Experiment, run

result = run(Experiment.of(dataset="digits", algorithm="ifca"))
print(result.accuracy)

The names below are imported when they are first used, so that `import covey` costs nothing.
"""

from importlib import import_module

from covey.version import __version__

TYPE_CHECKING = False  # as checkers read it; `typing` alone would take longer than everything else here
if TYPE_CHECKING:
    from covey.data.dataset import Dataset
    from covey.data.federation import Federation
    from covey.errors import CoveyError
    from covey.experiment.experiment import Experiment
    from covey.rounds.loop import run
    from covey.rounds.result import Result

__all__ = ["CoveyError", "Dataset", "Experiment", "Federation", "Result", "__version__", "run"]

_HOMES = {
    "CoveyError": "covey.errors",
    "Dataset": "covey.data.dataset",
    "Federation": "covey.data.federation",
    "Experiment": "covey.experiment.experiment",
    "Result": "covey.rounds.result",
    "run": "covey.rounds.loop",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'covey' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
