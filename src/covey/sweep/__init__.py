"""Many runs of one experiment side by side: combinations, processes, their comparison."""

from covey.sweep.grid import sweep

__all__ = ["sweep"]
