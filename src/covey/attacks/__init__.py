"""Observers with a vantage point. Each sees exactly what that party received and ends with a finding beside its controls.
No attack reads the truth before it is scored.
"""

from covey.names import Registry

ATTACKS = Registry("attack", __name__, "covey.attacks", ("name", "begin", "observe", "end_round", "finding"))
