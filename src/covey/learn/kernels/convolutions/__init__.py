"""Convolutions of clients side by side, each with weights of its own, by covey's own GPU kernels: any of step 1 as products
(Triton, `convolve.py`), and those of few channels joined with pooling and ReLU (CUDA, `pooled.cu`). Which network gets them,
and how autograd and vmap see them, is in `convolutions.py` and `pooling.py`. On a CPU, where clients go one by one: `narrow.py`.
"""
