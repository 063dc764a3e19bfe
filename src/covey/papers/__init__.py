"""One file per paper: its experiments, its tables, the paper's figures beside ours, a verdict per claim. `harness.py` says
what a table is and runs it, `present.py` writes it down. Nothing here trains, attacks or encrypts.
"""

# paper -> the module with its TITLE and TABLES; imported only when asked for
PAPERS = {
    "afc_cfl": "covey.papers.afc_cfl.tables",
    "baselines": "covey.papers.baselines",
    "fedcaprivacy": "covey.papers.fedcaprivacy.tables",
    "field": "covey.papers.field.tables",
    "mingledpie": "covey.papers.mingledpie.tables",
    "pqfed": "covey.papers.pqfed.tables",
    "property_inference": "covey.papers.property_inference.tables",
}
