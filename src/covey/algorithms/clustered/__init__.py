"""Clustered methods whose server finds the clusters: by updates, models, losses or what clients tell of their data. One file each;
what they share is in `groups`.
"""
