"""Formats the estimated time of a profiled call on a GPU as text: unique bytes, intensity, occupancy and the range."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from kernel_harness.core.terminal import Terminal
from kernel_harness.diagnostics.profile import limits
from kernel_harness.diagnostics.profile.estimate import Estimate, Range
from kernel_harness.diagnostics.profile.targets import Target

_HEADERS = (
    "kernel", "launches", "L1 has", "unique bytes", "FLOP/byte", "nearer roof", "occupancy", "waves",
    "empty at the end", "slowest part", "estimated time",
)  # fmt: skip


def paragraphs(estimates: Sequence[Estimate], target: Target, screen: Terminal, *, timed: bool) -> list[str]:
    """Returns the paragraphs about where the time goes on `target`. If `timed` is false, they contain no times.

    The list is empty if `estimates` is. `screen` gives the width to which text is wrapped.
    """
    if not estimates:
        return []
    headers = _HEADERS if timed else _HEADERS[:-2]
    rows = [_row(each, target)[: len(headers)] for each in estimates]
    align = ("left", *["right"] * (len(headers) - 1))
    parts = [tabulate(rows, headers, colalign=align, disable_numparse=True)]
    unknown = sorted({each.recorded.launch.kernel for each in estimates if not each.placed.known})
    if unknown:
        said = "The registers of {} are not known, so the occupancy is that of a kernel with 32 registers per thread."
        parts.append(screen.wrapped(said.format(", ".join(unknown))))
    if timed:
        parts += map(screen.wrapped, [*limits.sentences(estimates, target), _total(estimates, target)])
    return parts


def total(estimates: Sequence[Estimate]) -> Range:
    """Returns the estimated time of all launches, one after the other."""
    return sum((each.time for each in estimates), Range(0.0, 0.0))


def milliseconds(time: Range) -> str:
    """Returns a range of times as text, such as "2.1 to 5.4 ms"."""
    return f"{1e3 * time.low_s:.2g} to {1e3 * time.high_s:.2g} ms"


def _row(estimate: Estimate, target: Target) -> list[str]:
    recorded, counts, placed = estimate.recorded, estimate.counts, estimate.placed
    hits = 1 - counts.l2_sectors / counts.sectors if counts.sectors else 0.0
    unique = counts.dram_bytes[0]
    intensity = counts.executed.flops / unique if unique else 0.0
    ridge = target.float32_flops_per_s / target.dram_bytes_per_s
    return [
        recorded.launch.kernel, str(recorded.launches), f"{100 * hits:.0f}%", _bytes(unique), f"{intensity:.3g}",
        "compute" if intensity > ridge else "memory", f"{100 * placed.occupancy.share:.0f}%", f"{placed.waves:.2f}",
        f"{100 * placed.tail:.0f}%", estimate.limit, milliseconds(estimate.time),
    ]  # fmt: skip


def _total(estimates: Sequence[Estimate], target: Target) -> str:
    time = total(estimates)
    return (
        f"Estimated time on {target.name}: {milliseconds(time)}, {1e3 * time.middle_s:.2g} ms in the middle. This is "
        "an estimate from counts and published figures, not a measurement. The lower end assumes that all parts of the "
        "GPU work at once at their published rates, the upper end that they work in turn. The shares of the causes "
        "refer to the upper end. Work of libraries, such as cuBLAS, is not included."
    )


def _bytes(count: float) -> str:
    unit, size = next(((u, s) for u, s in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= s), ("B", 1))
    return f"{count / size:.3g} {unit}"
