"""Fuzzing that stays: a target for every reader of what others wrote, and for every party's `handle`.

`python -m fuzz` (with `PYTHONPATH=tests`) runs them and prints how many inputs each has had; `make fuzz` does so for an hour.
`test_fuzz.py` runs all of them for a minute in `make test`. Why two drivers: docs/decisions, 30.
"""
