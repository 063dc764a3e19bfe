"""The networks, as plain torch modules, each with what it reads and how it is built for an input (`Spec`), and what else an
experiment's `model` may be (`choice`): a module or a function of the user's own (`own`), adapters of a frozen base (`lora`).

No training code: `covey.learn` computes with them, as flat vectors.
"""

from covey.names import Registry

MODELS = Registry("model", __name__, "covey.models")
