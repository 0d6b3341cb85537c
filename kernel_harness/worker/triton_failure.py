"""Describes errors with which Triton's compiler refuses a candidate's kernel, in a worker with or without a GPU."""

from __future__ import annotations

import linecache
from typing import Any

from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.emulator.triton_compiler import is_refusal
from kernel_harness.core.errors import line_in


def refused(error: BaseException, file: str) -> tuple[str, int | None] | None:
    """Returns one line on the mistake, and its line in the candidate's `file`, if Triton refuses to compile a kernel.

    The line is that of the statement in the kernel. For a lack of resources, such as too much shared memory, it is that
    of the launch. It is None if the statement is in another file. Returns None if `error` is of another kind.
    """
    if not is_refusal(error):
        return None
    innermost = error  # of a device function, where the outer ones name the calls
    while innermost.__cause__ is not None and is_refusal(innermost.__cause__):
        innermost = innermost.__cause__
    node = getattr(innermost, "node", None)
    if node is None or not hasattr(node, "lineno"):
        return _first_line(str(error)), line_in(file, error)
    told = str(getattr(innermost, "error_message", "") or innermost.__cause__ or type(innermost).__name__)
    line = _line_of(str(getattr(innermost, "src", "")), node, file)
    where = "" if line else f" (at {node.lineno}:{node.col_offset} of the kernel)"
    return f"{_first_line(told)}{where}", line


def _line_of(source: str, node: Any, file: str) -> int | None:
    """Returns the line of `file` that is line `node.lineno` of a function with the text `source` in it, or None."""
    return CandidateFile(file, "".join(linecache.getlines(file))).place_of(source, int(node.lineno))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.split("\n") if line.strip()), "")
