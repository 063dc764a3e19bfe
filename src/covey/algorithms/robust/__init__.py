"""Averages that bear lying clients: the rules, on a table of models; and the averages that algorithms take by them."""
