"""Builds a candidate's library from its sources.

This package holds the replacement for torch's load_inline, the compilers, the error messages and the build cache.
"""
