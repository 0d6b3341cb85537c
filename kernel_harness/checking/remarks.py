"""Composes remarks on a kernel that passed. A remark advises a reviewer to read the source and changes no verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence

LEAST_SHARE = 0.1
"""If the candidate's own kernels do a smaller share of the work, from 0 to 1, a remark says so.

If torch only prepares memory, the candidate's kernels do far more of the work. A kernel that the candidate launches
only for show does far less.
"""

_COMPILES = r"^\s*@torch\.compile\b|^[^#]*\btorch\.compile\("


def on(source: str, launches: int | None, own_share: float | None, *, emulated: bool) -> list[str]:
    """Returns the remarks on a candidate: a library does the work, or torch.compile runs with another backend.

    `source` is the text of the candidate's file. `launches` is the number of the candidate's own kernels that one call
    launches. `own_share` is the share of the work that these kernels do, from 0 to 1; a library may do the work if it
    is below LEAST_SHARE. With `emulated`, it is the share of the output's elements, otherwise of the time on a GPU.
    `launches` and `own_share` are None if unknown.
    """
    found = []
    if launches == 0:
        found.append("Remark: the candidate launched no kernel of its own; a library does the work.")
    elif own_share is not None and own_share < LEAST_SHARE:
        found.append(_little_work(own_share, emulated))
    if emulated and (number := _first_line(_COMPILES, source.split("\n"))) is not None:
        found.append(
            f"Remark: line {number} uses torch.compile, which runs with the backend aot_eager, since there is no GPU."
        )
    return found


def _little_work(own_share: float, emulated: bool) -> str:
    if emulated:
        same = f"{1 - own_share:.2%} of the output is the same without the candidate's own kernels"
        return f"Remark: {same}; a library may do the work."
    share = f"{own_share:.2%}" if own_share >= 1e-4 else "less than 0.01%"
    return f"Remark: the candidate's own kernels take {share} of the time on the GPU; a library does the rest."


def _first_line(pattern: str, lines: Sequence[str]) -> int | None:
    """Returns the number, from 1, of the first line that contains the regular expression; None if no line does."""
    return next((i for i, line in enumerate(lines, 1) if re.search(pattern, line)), None)
