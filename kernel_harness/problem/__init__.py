"""Finds and reads problem files and kernel files, and sets problems to a shape."""
