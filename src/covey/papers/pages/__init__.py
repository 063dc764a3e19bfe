"""Stored reproductions as pages: figures, claims, tables, in Markdown for `docs/` and in HTML for a browser. Nothing here runs or
judges anything; what is shown is what `docs/results/*.json` holds. `write.py` writes the pages, `shapes.py` says what a figure
shows.
"""
