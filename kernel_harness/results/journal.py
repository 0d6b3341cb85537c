"""The file `runs.jsonl`, which stores results: one line of JSON for each result, appended under a lock."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import FileIO
from pathlib import Path

from kernel_harness.core.atomic_file import replace_bytes, replace_text
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.results.record import NotARecord, Result, from_line, to_line

_LOG = logging.getLogger(__name__)


class Unwritable(EnvironmentLacking):
    """The error raised if a file of results cannot be written. The former content of the file is unchanged."""


@contextmanager
def writing(path: Path, other: str = "folder with --results") -> Iterator[None]:
    """Returns a context for code that writes `path` or leaves it unchanged. An OSError in it becomes Unwritable.

    `other` says what the user can name instead, and with which option.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Unwritable(
            f"{path} cannot be written: {error.strerror or error}. What it contained is unchanged. "
            f"{'Free some space, or name' if full else 'Name'} another {other}."
        ) from None


def write(path: Path, text: str, other: str = "folder with --results") -> None:
    """Replaces the content of a file by `text`, atomically. Raises Unwritable (`writing`) if it cannot be written."""
    with writing(path, other):
        replace_text(path, text)


class Journal:
    """The stored results of one problem on one device: the file `runs.jsonl` (or `name`) in `folder`.

    In a folder of results, `folder` is `<problem>/<label>`, where `<label>` is the label of the device.
    """

    def __init__(self, folder: Path, name: str = "runs.jsonl") -> None:
        self.path = folder / name

    def check_writable(self) -> None:
        """Raises Unwritable if the file cannot be written. Creates the file and its folder if they do not exist.

        A run calls this at its start, so that it does not measure results that it then cannot store.
        """
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()

    def append(self, result: Result) -> None:
        """Appends the result as one line (`append_line`). Raises Unwritable if the line cannot be written."""
        append_line(self.path, to_line(result))

    def keep_log(self, result: Result) -> Path | None:
        """Writes the whole log of a result to `logs/<kernel>.log` beside `runs.jsonl`. Returns the path of the log.

        An earlier log of the kernel is replaced. Returns None for a result without a log, and then writes nothing.
        Raises Unwritable if the file cannot be written.
        """
        if not result.log.strip():
            return None
        path = self.path.parent / "logs" / f"{result.kernel}.log"
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(path, result.log.encode(errors="replace"))
        return path

    def read(self) -> list[Result]:
        """Reads every result of the file, oldest first. Returns an empty list if the file does not exist.

        A line that is not a result of the current schema version is skipped. One warning is logged that says how many
        lines were skipped and why.
        """
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        except FileNotFoundError:
            return []
        results, skipped = [], Counter[str]()
        for line in filter(str.strip, lines):
            try:
                results.append(from_line(line))
            except NotARecord as reason:
                skipped[str(reason)] += 1
        if skipped:
            reasons = "; ".join(f"{count} {reason}" for reason, count in skipped.items())
            _warn_once(f"{self.path}: skipped {skipped.total()} of {skipped.total() + len(results)} lines: {reasons}")
        return results


@cache
def _warn_once(text: str) -> None:
    """Logs the warning `text` at most once per process: a command may read a file several times and warn each time."""
    _LOG.warning(text)


def append_line(path: Path, text: str) -> None:
    """Appends `text` as one line to the file `path`, under a lock, and waits until the line is on the disk.

    If a killed run left an incomplete last line, a line break is put after that line first. Raises Unwritable if the
    line cannot be written completely; the file then has no part of it.
    """
    line = text.encode() + b"\n"
    with writing(path), path.open("ab+", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        _append_whole(file, line)


def _append_whole(file: FileIO, line: bytes) -> None:
    """Appends the line to an unbuffered file and syncs the file to the disk.

    Raises OSError if the line cannot be written completely. The file then has no part of the line.
    """
    size = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), size)  # remove a partly written line
        raise
