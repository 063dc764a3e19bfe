"""The networks, as plain torch modules, each with what it reads and how it is built for an input (`Spec`).

No training code: `covey.learn` computes with them, as flat vectors.
"""

from covey.names import Registry

MODELS = Registry("model", __name__, "covey.models", ("layout", "title", "build"))
