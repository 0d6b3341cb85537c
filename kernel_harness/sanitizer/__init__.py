"""The verb `sanitize` and what it reads: the emulator's findings, and compute-sanitizer's log on a GPU."""

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")  # compute-sanitizer's
