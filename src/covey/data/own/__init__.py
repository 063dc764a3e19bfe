"""Data of one's own: files, folders, tables and arrays become a dataset, by rules that are told or guessed and then said.

One reader for simulations (`read.py`, of a whole federation) and for silos (`silo.py`, of one party's own folder, against what the
federation has agreed on). What covey knows by name is in `sources`; who holds what is cut by `partitions`.
"""
