"""The version, as a leaf: whoever needs it does not import the package's front door.

`PROTOCOL` is what parties of a deployment speak with each other. It changes where a letter, or what must be done with one, is not
understood by the covey before; versions of covey with the same protocol run together.
"""

__version__ = "0.1.0"
PROTOCOL = 4
