"""A lock on a folder, which ends with its process at the latest."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kernel_harness.core.errors import UserError


def locked(folder: Path, refusal: str) -> int:
    """Locks a folder and returns a file descriptor whose closing unlocks it.

    Raises UserError with the text `refusal` if another process has locked it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UserError(refusal) from None
    return descriptor
