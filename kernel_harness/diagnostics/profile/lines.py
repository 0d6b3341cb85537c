"""Formats what each line of a candidate's file does to memory as text: tables by kernel, and the largest causes."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from kernel_harness.core.terminal import Terminal
from kernel_harness.diagnostics.profile.accesses import SECTOR_BYTES, Access, Recorded, Work
from kernel_harness.diagnostics.profile.causes import NOTHING_WRONG, largest
from kernel_harness.diagnostics.profile.resources import LANES

_LONGEST_TEXT = 48
_GLOBAL = (
    "global memory", "", "requests", "bytes/thread", "sectors/request", "least", "bytes asked", "bytes moved",
    "efficiency",
)  # fmt: skip
_SHARED = (
    "shared memory", "", "requests", "bytes/thread", "wavefronts/request", "least", "ways", "extra wavefronts",
)  # fmt: skip
_WORK = ("executed", "basic blocks", "active threads")
_MOST_WORK = 12  # lines of the table of basic blocks


def paragraphs(recorded: Sequence[Recorded], screen: Terminal) -> list[str]:
    """Returns the paragraphs of a profile about lines: tables for each recorded launch, then the largest causes.

    The list is empty if nothing was recorded. The causes are left out if no access belongs to a line. `screen` gives
    the width to which text is wrapped.
    """
    parts = []
    for each in recorded:
        parts += [screen.wrapped(_sampling(each)), *_tables(each.accesses), *_basic_blocks(each, screen)]
    if not any(each.accesses for each in recorded):
        return parts
    several = len({each.launch.kernel for each in recorded}) > 1
    causes = [
        f"{i}. {f'{cause.kernel}, ' if several else ''}{cause.sentence}" for i, cause in enumerate(largest(recorded), 1)
    ]
    said = ["Largest causes:", *causes] if causes else [NOTHING_WRONG]
    parts.append(screen.wrapped("\n".join(said)))
    return parts


def _basic_blocks(recorded: Recorded, screen: Terminal) -> list[str]:
    """Returns a table of what the 12 busiest lines execute, and a text about branches. May be empty."""
    busiest = sorted(recorded.work, key=lambda each: -each.steps)
    chosen = sorted(busiest[:_MOST_WORK], key=lambda each: each.line)
    if not chosen:
        return []
    align = ("left", *["right"] * (len(_WORK) - 1))
    table = tabulate([_work_row(each) for each in chosen], _WORK, colalign=align, disable_numparse=True)
    active = sum(each.threads for each in recorded.work) / sum(each.steps for each in recorded.work)
    text = f"On average {active:.1f} of the 32 threads of a warp take part in a basic block of g++'s code."
    return [table, screen.wrapped(text)]


def _work_row(work: Work) -> list[str]:
    return [_short(work.line, work.text), str(work.steps), f"{LANES * work.efficiency:.1f}"]


def _short(line: int, text: str) -> str:
    return f"line {line}: {text if len(text) <= _LONGEST_TEXT else f'{text[: _LONGEST_TEXT - 3]}...'}"


def _sampling(recorded: Recorded) -> str:
    launch = recorded.launch
    several = recorded.recorded_launches
    text = f"{launch.kernel}, by line: "
    if recorded.complete:
        text += f"all accesses {f'of {several} launches ' if several > 1 else ''}were recorded."
    else:
        text += (
            f"sampled, {recorded.blocks} of {several * launch.blocks} blocks were recorded. The numbers are those of "
            "the sample."
        )
    if recorded.left_out:
        text += f" {recorded.left_out} accesses of threads are left out: more than 1024 by a thread at one place."
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
    return [_short(access.line, access.text), str(access.kind)]


def _global_row(access: Access) -> list[str]:
    traffic = access.traffic
    return [
        *_place(access), str(traffic.requests), f"{traffic.bytes_per_thread:.3g}",
        _ratio(traffic.sectors, traffic.requests),
        _ratio(traffic.least_sectors, traffic.requests), str(traffic.asked_bytes), str(SECTOR_BYTES * traffic.sectors),
        f"{100 * traffic.least_sectors / traffic.sectors:.0f}%",
    ]  # fmt: skip


def _shared_row(access: Access) -> list[str]:
    traffic = access.traffic
    return [
        *_place(access), str(traffic.requests), f"{traffic.bytes_per_thread:.3g}",
        _ratio(traffic.wavefronts, traffic.requests),
        _ratio(traffic.least_wavefronts, traffic.requests), str(traffic.ways),
        str(traffic.extra_wavefronts),
    ]  # fmt: skip


def _ratio(amount: int, requests: int) -> str:
    return f"{amount / requests:.2f}".rstrip("0").rstrip(".")
