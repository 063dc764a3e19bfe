"""The command line, a file for each heading of `covey --help`: experiment, look, deploy (and keys), data.

Nothing but argument handling: what a command does lives elsewhere and is imported when the command runs, so that help, lists
and refusals cost no torch.
"""
