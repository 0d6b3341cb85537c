"""Formats what each line of a candidate's file does to memory as text: tables by kernel, and the largest causes."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from kernel_harness.core.terminal import Terminal
from kernel_harness.diagnostics.profile.accesses import SECTOR_BYTES, Access, Recorded
from kernel_harness.diagnostics.profile.causes import NOTHING_WRONG, largest

_LONGEST_TEXT = 48
_GLOBAL = (
    "global memory", "", "requests", "sectors/request", "least", "bytes asked", "bytes moved", "efficiency",
)  # fmt: skip
_SHARED = (
    "shared memory", "", "requests", "wavefronts/request", "least", "ways", "extra wavefronts",
)  # fmt: skip


def paragraphs(recorded: Sequence[Recorded], screen: Terminal) -> list[str]:
    """Returns the paragraphs of a profile about lines: tables for each recorded launch, then the largest causes.

    Returns no paragraph if no access was recorded. `screen` gives the width to which text is wrapped.
    """
    parts = []
    for each in recorded:
        parts += [screen.wrapped(_sampling(each)), *_tables(each.accesses)]
    if not any(each.accesses for each in recorded):
        return parts
    several = len({each.launch.kernel for each in recorded}) > 1
    causes = [
        f"{i}. {cause.sentence[:-1]} ({cause.kernel})." if several else f"{i}. {cause.sentence}"
        for i, cause in enumerate(largest(recorded), 1)
    ]
    said = ["Largest causes of memory traffic beyond the least possible:", *causes] if causes else [NOTHING_WRONG]
    parts.append(screen.wrapped("\n".join(said)))
    return parts


def _sampling(recorded: Recorded) -> str:
    launch = recorded.launch
    text = f"{launch.kernel}, by line: "
    if recorded.complete:
        text += "all accesses were recorded."
    else:
        text += (
            f"sampled, {recorded.blocks} of {launch.blocks} blocks and {recorded.warps} of {recorded.warps_per_block} "
            "warps of each were recorded. The numbers are those of the sample."
        )
    if recorded.left_out:
        text += f" {recorded.left_out} accesses of threads are left out: more than 1024 by a warp at one place."
    if not recorded.accesses:
        text += " No access belongs to a line of the file."
    if recorded.elsewhere:
        text += f" {recorded.elsewhere} requests are not shown, such as those inside of libraries."
    return text


def _tables(accesses: Sequence[Access]) -> list[str]:
    parts = []
    for headers, row, shared in ((_GLOBAL, _global_row, False), (_SHARED, _shared_row, True)):
        rows = [row(each) for each in accesses if each.shared is shared]
        if rows:
            align = ("left", "left", *["right"] * (len(headers) - 2))
            parts.append(tabulate(rows, headers, colalign=align, disable_numparse=True))
    return parts


def _place(access: Access) -> list[str]:
    text = access.text if len(access.text) <= _LONGEST_TEXT else f"{access.text[: _LONGEST_TEXT - 3]}..."
    return [f"line {access.line}: {text}", str(access.kind)]


def _global_row(access: Access) -> list[str]:
    traffic = access.traffic
    return [
        *_place(access), str(traffic.requests), _ratio(traffic.sectors, traffic.requests),
        _ratio(traffic.least_sectors, traffic.requests), str(traffic.asked_bytes), str(SECTOR_BYTES * traffic.sectors),
        f"{100 * traffic.least_sectors / traffic.sectors:.0f}%",
    ]  # fmt: skip


def _shared_row(access: Access) -> list[str]:
    traffic = access.traffic
    return [
        *_place(access), str(traffic.requests), _ratio(traffic.wavefronts, traffic.requests),
        _ratio(traffic.least_wavefronts, traffic.requests), str(traffic.ways),
        str(traffic.wavefronts - traffic.least_wavefronts),
    ]  # fmt: skip


def _ratio(amount: int, requests: int) -> str:
    return f"{amount / requests:.2f}".rstrip("0").rstrip(".")
