"""A candidate's file, and the lines of it that the lines of its sources stand for.

Compilers read each source under a neutral name, so that a library depends on nothing but the sources. The messages of
compilers and libraries therefore name this neutral name. This module replaces it by the file that is judged.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from functools import cached_property

from kernel_harness.compile.compiler_log import CompileError
from kernel_harness.compile.sources import Sources

# The judge translates messages, too, and a candidate chooses the texts. So the work is limited: a line of a source is
# compared with this many lines of the file, and only the first lines of a very long source are compared. A source of
# more characters than a candidate's file can have is not translated at all.
_MOST_PLACES, _MOST_LINES, _MOST_CHARACTERS = 8, 20_000, 1 << 20


class CandidateFile:
    """A candidate's file: its content `text`, and `name`, the path that messages show."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self._sources: dict[str, str] = {}  # neutral name -> source
        self._lines: dict[str, list[int]] = {}  # neutral name -> the file's line for each line of the source

    def add(self, sources: Sources) -> None:
        """Registers the C++ and the CUDA source of a load_inline call that this file makes.

        From now on, `place` maps the lines of these sources to lines of this file. They replace the registered sources
        of the same neutral names. A source of more than _MOST_CHARACTERS characters is not registered.
        """
        for name, source in ((sources.cpp_file, sources.cpp), (sources.cuda_file, sources.cuda)):
            self._lines.pop(name, None)
            self._sources.pop(name, None)
            if len(source) <= _MOST_CHARACTERS:
                self._sources[name] = source

    def line(self, number: int) -> str:
        """Returns line `number` of the candidate's file, counted from 1, or "" if there is no such line."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip() if 0 < number <= len(lines) else ""

    def find(self, pattern: str) -> int | None:
        """Returns the number of the line where the regular expression `pattern` first matches, or None without a match.

        The search leaves out the docstring at the top of the candidate's file.
        """
        top = re.match(r'\s*(?:"""|\'\'\')[\s\S]*?(?:"""|\'\'\')', self.text)
        match = re.compile(pattern).search(self.text, top.end() if top else 0)
        return self.text.count("\n", 0, match.start()) + 1 if match else None

    def place(self, file: str, line: int) -> tuple[str, int]:
        """Returns the candidate's file and the line in it if `file` is the neutral name of a source of the candidate.

        Returns `file` and `line` themselves for any other file.
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
        """Returns the error with its place in the candidate's file. An error in another file is returned unchanged."""
        file, line = self.place(error.file, error.line)
        return replace(error, file=file, line=line)

    def translated(self, text: str) -> str:
        """Returns a message with the candidate's file and lines in place of the neutral names and lines of sources."""
        for name in self._sources:
            if name in text:
                text = self._translated(text, name)
        return text

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
    """The lines of a file without indentation, and for each text the indices of the lines that hold it."""

    def __init__(self, text: str) -> None:
        self.lines = [line.strip() for line in text.split("\n")]
        self._where: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines):
            if line:  # an empty line occurs everywhere in the file, so it may extend a run but not start one
                self._where.setdefault(line, []).append(number)

    def near(self, line: str, index: int) -> list[int]:
        """Returns the indices of lines that are equal to `line`: the few that are nearest to `index`."""
        found = self._where.get(line, [])
        first = max(0, bisect_left(found, index) - _MOST_PLACES // 2)
        return found[first : first + _MOST_PLACES]


def author_lines(source: str, file: _Stripped) -> list[int]:
    """Returns, for each line of `source`, the number of the line of the file that it stands for, counted from 1.

    Python code may have concatenated, formatted or indented `source`, but runs of its lines still occur in the file. A
    line outside of these runs continues the numbering of the run before it. A line before the first run gets its number
    by counting back from that run.
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
