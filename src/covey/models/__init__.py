"""The networks, as plain torch modules, the registry with their parameter counts, and where their training starts.

No training code: `covey.learn` computes with them, as flat vectors.
"""

from covey.models.classifier import Classifier
from covey.models.registry import MODELS, Spec, spec
from covey.models.start import initial, layers, parameters, personal_mask

__all__ = ["MODELS", "Classifier", "Spec", "initial", "layers", "parameters", "personal_mask", "spec"]
