"""Everything that touches modules and gradients: flat vectors, work requests, training plans, the kernels that
compute them and evaluation. Importable with torch and numpy alone; nothing outside this folder knows what a
layer is.
"""
