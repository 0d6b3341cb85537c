"""Builds a candidate's library from its sources.

This package replaces torch's load_inline, runs the compilers, writes the error messages and keeps the build cache.
"""
