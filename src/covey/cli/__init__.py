"""The command line: argument handling, grouped as `covey --help` shows it. What a command does lives elsewhere."""
