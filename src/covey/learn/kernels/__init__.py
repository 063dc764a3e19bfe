"""How a wave of training jobs is computed: closed forms, a loop, stacked clients, streams. All agree; `kernels.py` chooses."""
