"""A candidate's file, and a map from the lines of its load_inline sources to lines of the file.

A compiler reads each source under a neutral file name, which is made from load_inline's argument `name`. It does not
depend on the candidate's path, so equal sources make equal libraries. Messages of compilers and libraries contain this
name and lines of the source. This module replaces them by the candidate's file and its lines.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from cuda_on_cpu.compile.compiler_log import CompileError
from cuda_on_cpu.compile.sources import Sources

# The judge translates messages, too, and a candidate chooses the texts. So the work is limited: a line of a source is
# compared with this many lines of the file, and only the first lines of a very long source are compared. A source of
# more characters than a candidate's file can have is not translated at all.
_MOST_PLACES, _MOST_LINES, _MOST_CHARACTERS = 8, 20_000, 1 << 20
# What the emulator says of a function or constant of the driver that it lacks. It does not know the caller's line.
_OF_DRIVER = re.compile(r"cuda\.h:0: (?=the emulation cannot run (?P<name>c[uU]\w+|CU_\w+)\.)")


def source_text(path: Path) -> str:
    """Returns the text of a source file without a byte order mark. Bytes that are not UTF-8 become U+FFFD."""
    return path.read_text(encoding="utf-8-sig", errors="replace")


class CandidateFile:
    """A candidate's file. Maps lines of the sources that it gives to load_inline to lines of the file.

    `text` is the content of the file. `name` is the path that messages show for it.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self._sources: dict[str, str] = {}  # neutral name -> source
        self._lines: dict[str, list[int]] = {}  # neutral name -> the file's line for each line of the source

    def add(self, sources: Sources) -> None:
        """Registers the C++ and the CUDA source of a load_inline call that this file makes.

        From now on, `place` maps the lines of these sources to lines of this file. Sources that were registered before
        under the same neutral names are removed. A source of more than 1 Mi characters is not registered.
        """
        for name, source in ((sources.cpp_file, sources.cpp), (sources.cuda_file, sources.cuda)):
            self._lines.pop(name, None)
            self._sources.pop(name, None)
            if len(source) <= _MOST_CHARACTERS:
                self._sources[name] = source

    def line(self, number: int) -> str:
        """Returns line `number` of the file, counted from 1, without spaces at its end; "" if there is no such line."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip() if 0 < number <= len(lines) else ""

    def owns(self, file: str) -> bool:
        """Returns whether `file` is the name of this file."""
        return file == self.name

    def text_of(self, file: str) -> str:
        """Returns the content of this file, whose name is `file`."""
        return self.text

    def place_of(self, source: str, line: int) -> int | None:
        """Returns the line of the file that became line `line` of `source`, or None. Lines count from 1.

        `source` is a function of this file, as text.
        """
        if source.split("\n", 1)[0].strip() not in self._stripped.lines:
            return None
        return author_lines(source, self._stripped)[line - 1]

    def find(self, pattern: str) -> int | None:
        """Returns the line, counted from 1, where the regular expression `pattern` first matches, or None.

        The search leaves out the docstring at the top of the candidate's file. None means that nothing matches.
        """
        top = re.match(r'\s*(?:"""|\'\'\')[\s\S]*?(?:"""|\'\'\')', self.text)
        match = re.compile(pattern).search(self.text, top.end() if top else 0)
        return self.text.count("\n", 0, match.start()) + 1 if match else None

    def place(self, file: str, line: int) -> tuple[str, int]:
        """Returns the name of the candidate's file, and its line that became line `line` of the source called `file`.

        `file` is the neutral name of a registered source, and lines count from 1. A line after the source's end
        continues the numbering of its last line. For any other file, returns `file` and `line` themselves.
        """
        if file not in self._sources:
            return file, line
        if file not in self._lines:
            self._lines[file] = author_lines(self._sources[file], self._stripped)
        lines = self._lines[file]
        if 0 < line <= len(lines):
            return self.name, lines[line - 1]
        return self.name, max(1, lines[-1] + line - len(lines))

    @cached_property
    def _stripped(self) -> _Stripped:
        return _Stripped(self.text)

    def moved(self, error: CompileError) -> CompileError:
        """Returns the error with its file and line mapped by `place`. An error in no registered source is unchanged."""
        file, line = self.place(error.file, error.line)
        return replace(error, file=file, line=line)

    def translated(self, text: str) -> str:
        """Returns the message `text` with the candidate's file and lines in place of neutral names and source lines."""
        for name in self._sources:
            if name in text:
                text = self._translated(text, name)
        return _OF_DRIVER.sub(lambda found: self._first_use(found["name"]) or found[0], text)

    def _first_use(self, name: str) -> str:
        line = self.find(rf"\b{name}")
        return f"{self.name}:{line}: " if line else ""

    def _translated(self, text: str, name: str) -> str:
        label = re.escape(name)
        # g++ writes `file:line`, torch also `"file":line`, nvcc also `file(line)` and `line 7 of "file"`.
        numbered = rf'\bline (?P<of>\d{{1,9}}(?!\d))(?P<between>\s+of "?){label}'
        pattern = re.compile(rf"{numbered}|(?<![\w.-]){label}(?:(?P<mark>\"?[:(])(?P<at>\d{{1,9}}(?!\d)))?")

        def own(match: re.Match[str]) -> str:
            if match["of"]:
                return f"line {self.place(name, int(match['of']))[1]}{match['between']}{self.name}"
            if match["at"]:
                return f"{self.name}{match['mark']}{self.place(name, int(match['at']))[1]}"
            return self.name

        return pattern.sub(own, text)


class _Stripped:
    """The lines of a file without spaces at both ends, and for each such line, unless empty, where it occurs."""

    def __init__(self, text: str) -> None:
        self.lines = [line.strip() for line in text.split("\n")]
        self._where: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines):
            if line:  # an empty line occurs everywhere in the file, so it may extend a run but not start one
                self._where.setdefault(line, []).append(number)

    def near(self, line: str, index: int) -> list[int]:
        """Returns the indices of at most eight lines around `index` that are equal to `line`, a stripped line."""
        found = self._where.get(line, [])
        first = max(0, bisect_left(found, index) - _MOST_PLACES // 2)
        return found[first : first + _MOST_PLACES]


def author_lines(source: str, file: _Stripped) -> list[int]:
    """Returns, for each line of `source`, the number of the line of `file` that it comes from, counted from 1.

    Python code may have concatenated, formatted or indented `source`, but runs of its lines still occur in the file. A
    line outside of these runs continues the numbering of the run before it. A line before the first run gets its number
    by counting back from that run. Lines of `source` after the first 20,000 are left out.
    """
    lines = [line.strip() for line in source.split("\n", _MOST_LINES)[:_MOST_LINES]]
    out: list[int] = []
    following, found = 0, False
    while len(out) < len(lines):
        i = len(out)
        runs = [(_run(lines, i, file.lines, at), at) for at in file.near(lines[i], following)]
        if not runs:
            following += 1
            out.append(following)
            continue
        # The longest run is the right one. Of equally long ones, it is the one that goes on in the file, not back.
        size, start = max(runs, key=lambda run: (run[0], run[1] >= following, -abs(run[1] - following)))
        if not found:
            out = [max(1, start + 1 - i + j) for j in range(i)]
        found, following = True, start + size
        out.extend(range(start + 1, following + 1))
    return out


def _run(lines: list[str], i: int, theirs: list[str], at: int) -> int:
    """Returns how many lines of `lines`, from index `i` on, are equal to those of `theirs` from index `at` on."""
    size = 0
    while i + size < len(lines) and at + size < len(theirs) and lines[i + size] == theirs[at + size]:
        size += 1
    return size
