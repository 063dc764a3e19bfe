"""`covey reproduce afc_cfl`: settings, tables, the paper's printed figures, and a verdict per claim."""
