"""What people look at: progress, pictures, the HTML report. Reads results, computes none.

`page` writes the files, from `sections` of one run or a `comparison` of several; `findings`, `labels` and `format` put attacks,
names and numbers into words; `draw` draws, and its `markup` makes escaping impossible to forget; `assets` is what all pages wear.
`terminal`, `progress` and `notebook` are for those who watch a run.
"""
