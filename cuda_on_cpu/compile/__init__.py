"""Builds a library from sources: compilers, light headers, error messages and the build cache.

This package also replaces torch's load_inline.
"""
