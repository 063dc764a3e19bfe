"""One file per paper: its experiments, its tables, the paper's figures beside ours, a verdict per claim.
"""
