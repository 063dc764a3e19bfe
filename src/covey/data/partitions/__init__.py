"""Ways to cut a dataset over clients: pure functions of labels, parameters and a seed, with what they share (dealing)."""

from covey.names import Registry

PARTITIONS = Registry("partition", __name__, "covey.partitions", ("name", "make"))
