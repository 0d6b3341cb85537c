"""The sanitizer: it finds memory errors and races of a kernel, with the emulator or with compute-sanitizer on a GPU."""

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
"""The tools of compute-sanitizer that the sanitizer runs on a GPU, in this order."""
