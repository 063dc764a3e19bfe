"""The recurrence of a GRU over all of its tokens in one launch on a GPU, forwards and backwards (CUDA, `recurrent.cu`). What it
computes, and how autograd and vmap see it, is in `models/recurrence.py`.
"""
