"""Personalised methods: one model that all share, or layers of it, and something of every client's own. One file each; what
they share: layers that never leave a client (`layers`), and local training taken step by step (`steps`).
"""
