"""A host, and what it is made of: the rows that its clients hold, what they remember, the answers to what their coroutines ask
for, client by client (`answers`) or as one (`as_one`), and how long that took. Where hosts run is not known here.
"""
