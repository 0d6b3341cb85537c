"""Checks of correctness: cases, the right answers, and the comparison of a candidate's outputs with them."""
