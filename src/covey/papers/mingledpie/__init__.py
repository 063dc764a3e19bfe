"""`covey reproduce mingledpie`: settings, tables, the paper's printed figures, and a verdict per claim."""
