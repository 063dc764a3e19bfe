"""Observers with a vantage point. Each sees exactly what that party received and ends with a finding beside its controls.
No attack reads the truth before it is scored.
"""

ATTACKS: dict[str, type] = {}
