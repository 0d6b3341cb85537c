"""How often warps execute each line of a candidate's file in the recorded blocks, and how many threads take part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuda_on_cpu.compile.candidate_file import CandidateFile
from kernel_harness.core.terminal import printable
from kernel_harness.diagnostics.profile.resources import LANES, number

_LONGEST_TEXT = 300


@dataclass(frozen=True)
class Work:
    """The basic blocks of g++'s code that begin on one line of the candidate's file.

    `line` counts from 1, and `text` is the line without the spaces around it. `steps` is how often warps executed these
    basic blocks. One that a warp executes for some of its threads counts once. `threads` is how often threads did.
    """

    line: int
    text: str
    steps: int
    threads: int

    @property
    def efficiency(self) -> float:
        """Returns the mean share of a warp's threads that take part, from 0 to 1."""
        return self.threads / (LANES * self.steps)


def parse(steps: Sequence[Mapping[str, Any]], file: CandidateFile) -> tuple[Work, ...]:
    """Returns what each line of the candidate's file `file` executes, in the order of the lines.

    `steps` are the basic blocks in a worker's message. Code of other files is left out. Raises KeyError, TypeError or
    ValueError if `steps` is malformed.
    """
    sums: dict[int, tuple[int, int]] = {}
    for step in steps:
        warps, threads = number(step["warps"], least=1), number(step["threads"])
        line = _line(step["frames"], file)
        if line is not None:
            before = sums.get(line, (0, 0))
            sums[line] = before[0] + warps, before[1] + threads
    return tuple(Work(line, printable(file.line(line).strip())[:_LONGEST_TEXT], *sums[line]) for line in sorted(sums))


def _line(frames: Sequence[Any], file: CandidateFile) -> int | None:
    for source, at, _ in frames:
        found, line = file.place(str(source), number(at))
        if found == file.name:
            return line
    return None
