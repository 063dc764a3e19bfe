"""The local page of `covey ui`: the runs of a folder, live. It reads and shows; it starts, changes and deletes nothing.

`scan` looks for runs, `index` keeps what they say up to date, `operation` shows a party of a deployment, `server` answers the
browser. Reports and comparisons are rendered by `covey.report` from the files of a run at the moment they are asked for: no file of
the folder is ever sent as it is.
"""
