"""Kernel files -> Candidates: found, read once, and named. None of them is run here."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

from kernel_harness.terminal import printable

_LONGEST_TITLE = 300


@dataclass(frozen=True)
class Candidate:
    """One kernel file as it was when it was read; what happens to the file later does not matter."""

    name: str
    path: Path
    source: str

    @property
    def sha256(self) -> str:
        """Of the source."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def title(self) -> str:
        """The idea: the first line of the docstring, or of a `.cu` file's first comment, as far as it can be shown."""
        return printable(self._first_line)[:_LONGEST_TITLE]

    @property
    def _first_line(self) -> str:
        if self.path.suffix == ".cu":
            first = self.source.lstrip().split("\n", 1)[0]
            return first.lstrip("/* ").strip() if first.startswith(("//", "/*")) else ""
        try:
            doc = ast.get_docstring(ast.parse(self.source))
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return ""
        return doc.split("\n", 1)[0] if doc else ""


def read(path: Path) -> Candidate:
    """The candidate in a file. Raises OSError."""
    name = printable(path.stem).replace("\n", "\ufffd").replace("\t", "\ufffd")
    return Candidate(name, path, path.read_text(encoding="utf-8", errors="replace"))


def files(folder: Path) -> list[Path]:
    """Every kernel file of a folder, by name. A leading underscore hides a file."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix in (".py", ".cu") and not p.name.startswith(("_", ".")))
