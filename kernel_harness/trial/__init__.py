"""One candidate from its file to its verdict: a Trial owns its worker process and says which state it is in."""
