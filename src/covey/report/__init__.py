"""What people look at: progress, pictures, the HTML report. Reads results, computes none.

`page` writes the files. `folder` reads a run; `summary`, `training`, `clusters`, `protection`, `measurements` and `about` turn it
into sections, `comparison` several runs into one page; `svg`, `grids` and `marks` draw;
`markup` makes escaping impossible to forget, `dress` is what all pages wear.
"""
