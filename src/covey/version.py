"""The version, as a leaf: whoever needs it does not import the package's front door."""

__version__ = "0.1.0"
