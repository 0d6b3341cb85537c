"""The temporary folder of a suite or a pool. It holds a folder for each evaluator, and is removed also after a kill.

The driver and its evaluators hold a lock on the folder. If all of them were killed, the lock is free, and the next
suite on the machine removes the folder.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from kernel_harness.core import folder_removal

_PREFIX = "kernel-harness-suite-"
_LOCK = "lock"


class Workplace:
    """A new temporary folder, locked by this process and by each process that inherits the file descriptor `lock`.

    A Workplace is a context manager, which removes the folder at its end. The constructor removes the folders of suites
    whose processes have all been killed.
    """

    def __init__(self) -> None:
        remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def __enter__(self) -> Workplace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        folder_removal.remove(self.folder)
        os.close(self.lock)


def leave(own: Path) -> None:
    """Removes `own`, an evaluator's folder in a Workplace's folder, and that folder if it has no other evaluator's.

    An evaluator whose driver was killed calls this at its end.
    """
    folder_removal.remove(own)
    with suppress(OSError):
        if not any(path.is_dir() for path in own.parent.iterdir()):
            folder_removal.remove(own.parent)


def remove_abandoned() -> None:
    """Removes the temporary folders of suites whose driver and evaluators have all ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder_removal.remove(folder)
            finally:
                os.close(lock)
