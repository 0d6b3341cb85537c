"""The names of the build cache's folder and of environment variables, which a program around this package may replace.

This module imports nothing, so that such a program can call `use` first of all.
"""

from __future__ import annotations


class _Names:
    """The names in use."""

    prefix, folder = "CUDA_ON_CPU", "cuda-on-cpu"


def use(prefix: str, folder: str) -> None:
    """Sets the prefix of the environment variables, and the name of the build cache's folder in the user's caches.

    Both are set before any other module of this package is used, and once in a process.
    """
    _Names.prefix, _Names.folder = prefix, folder


def variable(name: str) -> str:
    """Returns the name of an environment variable, such as `CUDA_ON_CPU_CACHE` for `CACHE`."""
    return f"{_Names.prefix}_{name}"


def folder() -> str:
    """Returns the name of the build cache's folder in the folder of the user's caches."""
    return _Names.folder
