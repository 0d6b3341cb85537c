"""One run: the order in which candidates are built, checked and timed."""
