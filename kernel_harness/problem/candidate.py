"""Lists kernel files and reads their texts. Runs no kernel file."""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

from kernel_harness.core.paths import shown
from kernel_harness.core.terminal import printable

_LONGEST_TITLE = 300
# The characters at the start of a file in which its docstring is looked for, and the tokens that may precede it.
_MOST_BEFORE_CODE = 1 << 16
_BEFORE_CODE = (tokenize.COMMENT, tokenize.NL)
# A worker accepts a file of 1 MB. The rest of a longer one is not read, so that no file fills the memory.
_MOST_CHARACTERS = 1 << 24
_BUILDS = re.compile(r"\b(?:load_inline|cpp_extension|create_cuda_op)\b")
_IMPORTS_TRITON = re.compile(r"^[ \t]*(?:import\b.*|from[ \t]+)\btriton\b", re.MULTILINE)


@dataclass(frozen=True)
class Candidate:
    """One kernel that is judged.

    `name` is its name in results, usually the file's name without suffix. `source` is the file's text at the time when
    it was read. Later changes of the file have no effect. The file at `path` may be missing or have another text:
    `source` can also be a text that the caller gave, or come from a git revision.
    """

    name: str
    path: Path
    source: str

    @property
    def sha256(self) -> str:
        """Returns the SHA-256 of the kernel file's text, in hex."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def title(self) -> str:
        """Returns the author's description of the kernel, as one line of at most 300 printable characters.

        For a Python file, it is the first line of the file's docstring. For a `.cu` file, it is the first line that is
        not empty, if this line begins a comment; `//` or `/*` at its start is removed. Otherwise the description is
        empty.
        """
        return printable(self._first_line)[:_LONGEST_TITLE]

    @property
    def names_a_build(self) -> bool:
        """Returns whether the source has the word load_inline, cpp_extension or create_cuda_op, also in a comment."""
        return _BUILDS.search(self.source) is not None

    @property
    def imports_triton(self) -> bool:
        """Returns whether the file imports Triton. The emulated device runs such kernels in Triton's interpreter."""
        return imports_triton(self.source)

    @property
    def _first_line(self) -> str:
        if self.path.suffix == ".cu":
            first = self.source.lstrip().split("\n", 1)[0]
            return first.lstrip("/* ").strip() if first.startswith(("//", "/*")) else ""
        return inspect.cleandoc(_docstring(self.source[:_MOST_BEFORE_CODE])).split("\n", 1)[0]


def _docstring(source: str) -> str:
    """Returns the docstring at the start of Python code, or an empty text without one.

    The text is also empty if the docstring consists of several joined strings, or shares its line with other code.
    Reads no further than the docstring. A syntax tree of the whole file can take memory of 2000 times the file's size.
    """
    words = (t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in _BEFORE_CODE)
    try:
        first, following = next(words), next(words)
        if first.type != tokenize.STRING or following.type != tokenize.NEWLINE:
            return ""
        text = ast.literal_eval(first.string)
    except (SyntaxError, ValueError, tokenize.TokenError, StopIteration):
        return ""
    return text if isinstance(text, str) else ""


def imports_triton(source: str) -> bool:
    """Returns whether the Python code `source` imports Triton."""
    return _IMPORTS_TRITON.search(source) is not None


def read(path: Path) -> Candidate:
    """Returns the kernel file at `path` as a Candidate. Raises OSError if the file cannot be read.

    Bytes that are not UTF-8 become U+FFFD. Only the first 2^24 characters are read.
    """
    name = printable(path.stem).replace("\n", "\ufffd").replace("\t", "\ufffd")
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return Candidate(name, path, file.read(_MOST_CHARACTERS))


def files(folder: Path) -> list[Path]:
    """Returns the paths of the `.py` and `.cu` files directly in `folder`, sorted; empty if it is not a folder.

    Names that begin with `_` or a dot are left out. So are pipes and devices, because reading one may never end.
    """
    if not folder.is_dir():
        return []
    found = (p for p in folder.iterdir() if p.suffix in (".py", ".cu") and not p.name.startswith(("_", ".")))
    return sorted(p for p in found if p.is_file())


def file_name(candidate: Candidate) -> str:
    """Returns the path of the candidate's file as text. It is relative if the file is below the current folder."""
    return shown(candidate.path)
