"""Everything that determines a run, as one frozen dataclass and its tables, and the presets, which are plain tables.

What computes it lives in `engines` and `rounds`. Import `covey.experiment.experiment`: this package imports nothing, so that
presets are read without torch.
"""
