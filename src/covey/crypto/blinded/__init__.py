"""Rows sealed for one server and blinded by another: one interface, a module per scheme."""
