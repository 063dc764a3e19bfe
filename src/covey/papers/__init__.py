"""One file per paper: its experiments, its tables, the paper's figures beside ours, a verdict per claim. `harness.py` says
what a table is and runs it, `present.py` writes it down. Nothing here trains, attacks or encrypts.
"""

# paper -> the module with its TITLE and TABLES; imported only when asked for
PAPERS = {
    "baselines": "covey.papers.baselines",
    "mingledpie": "covey.papers.mingledpie",
    "pqfed": "covey.papers.pqfed",
}
