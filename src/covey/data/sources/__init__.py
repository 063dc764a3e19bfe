"""One reader per dataset, the catalogue of what covey knows, download and check."""

from covey.names import Registry

SOURCES = Registry("dataset", __name__, "covey.datasets")  # a `Source`, or a function that gives a `Dataset`
