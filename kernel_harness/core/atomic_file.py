"""Replaces files atomically: a reader sees the whole old content or the whole new content, even if a write fails."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Replaces the content of the file at `path` by `text` in UTF-8. Has the errors and effects of `replace_bytes`."""
    replace_bytes(path, text.encode())


def of_text(folder: Path, text: str, name: str) -> Path:
    """Returns the path of a file `name` with this text below `folder`, the same one whenever the text comes again."""
    path = folder / hashlib.sha256(text.encode()).hexdigest()[:12] / name
    if not path.is_file():
        path.parent.mkdir(exist_ok=True)
        replace_text(path, text)
    return path


def replace_bytes(path: Path, content: bytes) -> None:
    """Replaces the content of the file at `path`, and syncs the new content to the disk. Creates a missing file.

    Raises OSError if the write fails. The old content is then intact.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
