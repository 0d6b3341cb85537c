"""Removes folders that a worker could write to, however deep the worker has nested folders in them."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path


def remove(folder: Path) -> None:
    """Removes `folder` and everything in it. Leaves what cannot be removed, without an error.

    `shutil.rmtree` is tried first. It recurses for each level and keeps a descriptor open for it, so it fails at about
    1000 levels. If `folder` still exists, the program `rm` removes what is left. `rm` has no such limit, but takes a
    millisecond to start.
    """
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        with suppress(OSError):
            subprocess.run(["rm", "-rf", "--", folder], stdin=subprocess.DEVNULL, capture_output=True)
