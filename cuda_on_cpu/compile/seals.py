"""Tells whether files have changed: a seal is a file's size and hash."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

Seal: TypeAlias = list[Any]  # as JSON has it: the size in bytes, and a SHA-256 in hex

_WHOLE_BYTES = 16 << 20
_EDGE_BYTES = 1 << 20
# The files that one build has read are hashed at each use of its product, so a build may not make that take long.
_MOST_READ_BYTES = 256 << 20
# The time of a file's last change may be this much too early, because a file system's clock advances in steps.
_CLOCK_STEP_S = 0.05


def of_read(paths: Sequence[str], since: float) -> dict[str, Seal | None]:
    """Returns a dict from each path in `paths`, which a build has read, to the seal of its file, or to None without.

    A file has no seal if it is missing, is not a regular file, or was changed since the build began at `since`, in
    seconds since the epoch. A file also has no seal if this file and all existing files before it in `paths`, sealed or
    not, have more than 256 MiB together. Each file counts with its size, but with at most 16 MiB. The limit is needed
    because a candidate may have chosen the paths.
    """
    seals: dict[str, Seal | None] = {}
    left = _MOST_READ_BYTES
    for path in paths:
        seal = None
        with contextlib.suppress(OSError, ValueError):  # ValueError: a path with a zero byte
            found = Path(path).stat()
            left -= min(found.st_size, _WHOLE_BYTES)
            if left >= 0 and max(found.st_mtime, found.st_ctime) < since - _CLOCK_STEP_S:
                seal = _of_foreign(Path(path))
        seals[path] = seal
    return seals


def unchanged(seals: Mapping[str, Seal | None]) -> bool:
    """Returns whether all files in `seals`, which `of_read` has returned, still have theirs. One without has not."""
    return all(seal is not None and seal == _of_foreign(Path(path)) for path, seal in seals.items())


def of_folder(folder: Path) -> dict[str, Seal]:
    """Returns the seals of all files below `folder`, by their paths from it. Raises OSError if one cannot be read."""
    return {str(path.relative_to(folder)): _of(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _of_foreign(path: Path) -> Seal | None:
    """Returns the seal of a file that others may change; None if it is not regular or cannot be read.

    Reading a device or a pipe could block or have side effects, so only a regular file is read. Some devices, such as a
    watchdog, act when they are opened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        # Another process may replace the file at any time, so the open file is examined, too.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return _of_open(file) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (OSError, ValueError):
        return None


def _of(path: Path) -> Seal:
    """Returns the file's size in bytes and its SHA-256 in hex. Above 16 MiB, only the first and last MiB are hashed."""
    with path.open("rb") as file:
        return _of_open(file)


def _of_open(file: BinaryIO) -> Seal:
    size = os.fstat(file.fileno()).st_size
    total = hashlib.sha256()
    if size <= _WHOLE_BYTES:
        total.update(file.read(size))
    else:
        total.update(file.read(_EDGE_BYTES))
        file.seek(-_EDGE_BYTES, os.SEEK_END)
        total.update(file.read(_EDGE_BYTES))
    return [size, total.hexdigest()]
