"""The command's verbs: each module has a verb's help, its arguments, and `main`, which hands them to a room.

Modules here import nothing heavy: `--help`, completion and a mistake in the options are answered at once.
"""
