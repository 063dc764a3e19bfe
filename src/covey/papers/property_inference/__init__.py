"""`covey reproduce property_inference`: settings, tables, the paper's printed figures, and a verdict per claim."""
