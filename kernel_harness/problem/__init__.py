"""Finds kernel files and problem files, executes problem files, and replaces their size constants."""
