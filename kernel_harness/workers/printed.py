"""What a worker prints: the judge reads it from a pipe and keeps the end of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select

_KEPT_BYTES = 64 * 1024
_PIPE_BYTES = 1 << 20


class Printed:
    """The end of what a worker has printed. `pipe` is the descriptor from which the judge reads it.

    `count` is the number of bytes that have been read. `is_open` says whether a process still holds the other end.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        os.set_blocking(pipe, False)
        with contextlib.suppress(OSError):  # a larger pipe means fewer context switches for a worker that prints much
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._kept = b""
        self.count = 0
        self.is_open = True

    def fileno(self) -> int:
        """Returns the pipe's descriptor, so that `select` accepts a Printed."""
        return self._pipe

    def read(self) -> None:
        """Reads what the pipe holds, and keeps its last _KEPT_BYTES bytes. A full pipe would block the worker."""
        try:
            data = os.read(self._pipe, _PIPE_BYTES)
        except BlockingIOError:
            return
        self.is_open = bool(data)  # at the end of file, the pipe is always readable
        self.count += len(data)
        self._kept = (self._kept + data)[-_KEPT_BYTES:]

    @property
    def text(self) -> str:
        """Returns the end of what the worker has printed so far."""
        for _ in range(64):
            if not self.is_open or not select.select([self], [], [], 0)[0]:
                break
            self.read()
        return self._kept.decode(errors="replace")

    def close(self) -> None:
        """Closes the pipe. What was read is kept."""
        self.is_open = False
        os.close(self._pipe)
