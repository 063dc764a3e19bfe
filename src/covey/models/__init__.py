"""The networks, as plain torch modules, and the registry with their parameter counts. No training code.
"""
