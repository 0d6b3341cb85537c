"""Formats a profile as text: a table of kernel launches, and a table of the kernels' resources and occupancy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from kernel_harness.core.terminal import Terminal
from kernel_harness.diagnostics.profile.resources import Assembled, Launched, Resources, base_name, occupancy
from kernel_harness.results.cells import table

# If no launch of a kernel is known, its occupancy is shown for these block sizes.
_USUAL_THREADS = (128, 256, 512, 1024)
# The fields of a launch that the table of launches shows: numbers of operations, and of bytes.
_COUNTS = (
    ("barriers", "warp_operations"), ("global_read", "global_written", "shared_read", "shared_written"),
)  # fmt: skip


def tables(launched: Sequence[Launched] | None, assembled: Sequence[Assembled], screen: Terminal) -> list[str]:
    """Returns the paragraphs of a profile: tables of launches and of the kernels' resources, with remarks.

    `launched` has the kernel launches of the profiled call. It is None on a GPU, where the harness does not count
    launches. `assembled` has nvcc's reports about the kernels. `screen` gives the width to which text is wrapped.
    """
    parts = []
    if launched:
        parts += [
            launches(launched),
            "The bytes are those that loads and stores request. A GPU's caches are not emulated.",
        ]
    elif launched is not None:
        parts.append("The call launched no kernel of its own. A library that did the work is not profiled.")
    found = [kernel for each in assembled for kernel in each.kernels]
    if found:
        parts += [resources(found, launched or ()), _advice(found)]
    parts += [f"Registers, shared memory and occupancy are not known: {a.missing}" for a in assembled if a.missing]
    return [screen.wrapped(part) if "\n" not in part else part for part in parts if part]


def launches(launched: Sequence[Launched]) -> str:
    """Returns a table of kernel launches with their sizes, memory traffic, barriers and warp operations.

    Consecutive launches of one kernel with equal grid, block and dynamic shared memory share a row, which shows the
    sums.
    """
    rows = []
    for _, equal in groupby(launched, key=lambda one: one.configuration):
        same = list(equal)
        first = same[0]
        operations, moved = ([sum(getattr(one, name) for one in same) for name in names] for names in _COUNTS)
        threads = sum(one.blocks * one.threads_per_block for one in same)
        sizes = (_size(first.grid), _size(first.block))
        rows.append([first.kernel, len(same), *sizes, threads, *operations, *map(size_text, moved)])
    headers = [
        "kernel", "launches", "grid", "block", "threads", "barriers", "warp ops", "global read", "written",
        "shared read", "written",
    ]  # fmt: skip
    return table(headers, rows, align=("left", *["right"] * (len(headers) - 1)))


def resources(kernels: Sequence[Resources], launched: Sequence[Launched]) -> str:
    """Returns a table of the kernels' resources for sm_90 and their occupancy on an H200.

    It has one row for each kernel, number of threads in a block and amount of dynamic shared memory that occur together
    in `launched`. A kernel without a launch there gets one row each for blocks of 128, 256, 512 and 1024 threads.
    """
    rows = []
    for kernel in kernels:
        mine = [one for one in launched if base_name(one.kernel) == base_name(kernel.kernel)]
        sizes = sorted({(one.threads_per_block, one.dynamic_shared_bytes) for one in mine})
        for threads, dynamic in sizes or [(threads, 0) for threads in _USUAL_THREADS]:
            fits = occupancy(kernel.registers, kernel.shared_bytes + dynamic, threads)
            rows.append([
                base_name(kernel.kernel), kernel.registers, size_text(kernel.shared_bytes + dynamic),
                size_text(kernel.spill_store_bytes + kernel.spill_load_bytes), size_text(kernel.stack_bytes), threads,
                fits.blocks, f"{100 * fits.share:.0f}%", fits.limit,
            ])  # fmt: skip
    headers = [
        "sm_90", "registers", "shared", "spills", "stack", "threads/block", "blocks/SM", "occupancy", "limited by",
    ]  # fmt: skip
    return table(headers, rows, align=("left", *["right"] * 7, "left"))


def _advice(kernels: Sequence[Resources]) -> str:
    spilling = [base_name(k.kernel) for k in kernels if k.spill_store_bytes or k.spill_load_bytes]
    if not spilling:
        return ""
    return (
        f"{', '.join(spilling)}: registers spill to memory. Let each thread keep fewer values. If the kernel has "
        "__launch_bounds__, let them demand fewer threads or blocks, which allows a thread more registers."
    )


def _size(size: Sequence[int]) -> str:
    return " x ".join(map(str, size[: max(1, len(size) - next((i for i, n in enumerate(reversed(size)) if n > 1), 2))]))


def size_text(count: int) -> str:
    """Returns `count` bytes as text, with a unit of powers of ten."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
