"""Everything that touches modules and gradients. Importable with torch and numpy alone; nothing outside this folder
knows what a layer is.

`work` is what clients ask for and `machine` answers it: `flat` turns networks into vectors, `samples` holds the data,
`wave` lays training jobs out, `kernels` chooses between `linear`, `loop` and `stacked`, which share the update `rule`, the
`objective` and (side by side) `batched` and `graph`; `evaluate` gives losses and outputs.
"""
