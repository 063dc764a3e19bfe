"""What people look at: progress, pictures, the HTML report. Reads results, computes none.
"""
