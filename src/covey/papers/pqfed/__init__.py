"""`covey reproduce pqfed`: settings, tables, the paper's printed figures, and a verdict per claim."""
