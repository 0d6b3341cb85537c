"""Results of runs: the record of one result, the file that stores records, and what is computed from records.

Leaderboards, comparisons of two runs, roofline figures and the texts of failures are computed from records.
"""
