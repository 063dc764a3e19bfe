"""The networks, as plain torch modules, the registry with their parameter counts.

No training code: `covey.learn` computes with them, as flat vectors.
"""

from covey.models.classifier import Classifier
from covey.models.registry import MODELS, Spec, spec

__all__ = ["MODELS", "Classifier", "Spec", "spec"]
