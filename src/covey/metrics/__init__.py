"""How good predictions are: metrics by name, what they are computed from, and their spread over clients.

A metric says for which tasks it is, whether more is better and whether it is a share. Which models are tested on which samples
is not decided here: see `engines/evaluation.py`.
"""

from covey.names import Registry

METRICS = Registry("metric", __name__, "covey.metrics")
