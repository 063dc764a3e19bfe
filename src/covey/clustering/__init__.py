"""Grouping and scoring of groups: soft spectral clustering, Sattler's bipartition, agreement with a true
partition. Pure array functions.
"""
