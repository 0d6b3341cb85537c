"""The files of a program that calls load_inline or load, to which messages and findings refer."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from cuda_on_cpu.compile.candidate_file import CandidateFile, source_text

_LIBRARIES = (
    Path(__file__).resolve().parents[1], Path(torch.__file__).resolve().parent, Path("/usr/include"), Path("/usr/lib"),
)  # fmt: skip


class ProgramFiles:
    """The files of a program in this process: Python files that call load_inline, and sources that are files."""

    def __init__(self) -> None:
        self._callers: dict[str, CandidateFile] = {}

    def of_caller(self) -> CandidateFile:
        """Returns the file that the code of the innermost call outside of torch and of this package is in.

        Its text is empty if the code is in no file, as in an interactive Python.
        """
        frame = sys._getframe(1)
        while frame.f_back and _is_library(frame.f_code.co_filename):
            frame = frame.f_back
        path = frame.f_code.co_filename
        name = _shown(path)
        if name not in self._callers:
            text = source_text(Path(path)) if Path(path).is_file() else ""
            self._callers[name] = CandidateFile(name, text)
        return self._callers[name]

    def place(self, file: str, line: int) -> tuple[str, int]:
        """Returns the file and the line that became line `line` of the source called `file` (`CandidateFile.place`).

        If no file has given such a source to load_inline, returns the shown path of `file`, and `line`.
        """
        for each in self._callers.values():
            placed = each.place(file, line)
            if placed != (file, line):
                return placed
        return _shown(file), line

    def translated(self, text: str) -> str:
        """Returns the message `text` with places in the program's Python files (`CandidateFile.translated`)."""
        for each in self._callers.values():
            text = each.translated(text)
        return text

    def owns(self, file: str) -> bool:
        """Returns whether `file`, a path as `place` returns it, is a file of the program."""
        path = Path(file)
        return file in self._callers or (path.is_file() and bool(path.suffix) and not _is_library(file))

    def text_of(self, file: str) -> str:
        """Returns the content of a file of the program. It is empty if the file cannot be read."""
        if file in self._callers:
            return self._callers[file].text
        return source_text(Path(file)) if Path(file).is_file() else ""


def _is_library(path: str) -> bool:
    return any(Path(path).resolve().is_relative_to(folder) for folder in _LIBRARIES)


def _shown(path: str) -> str:
    """Returns `path` relative to the current folder if it is an absolute path below that folder, else `path`."""
    folder = Path.cwd()
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path
