"""Says, for each kernel, which part of a GPU takes longest at published rates, and what would make it shorter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_harness.diagnostics.profile.estimate import Counts, Estimate
from kernel_harness.diagnostics.profile.expressions import Kind
from kernel_harness.diagnostics.profile.targets import Target

_MOST_KERNELS = 3
# A part is named if it takes this share of the longest part's time, or of the sum at the upper end.
_NEAR, _OF_SUM = 0.2, 0.1
# With fewer FMAs for each loaded value, more outputs for each thread are worth a try.
_FEW_FMAS = 4
# Arithmetic that takes this share of the longest part's time is the limit that other changes come near.
_FLOOR = 0.5
_REMEDIES: Mapping[str, str] = {
    "DRAM": "Only fewer bytes are faster: a smaller type, or no intermediate result in global memory.",
    "L2": "These are sectors that L1 does not have. Keep values that threads share in shared memory or in registers.",
    "atomics": "Updates of one address follow one another. Combine values in a warp or a block first.",
    "float32": "Only fewer operations are faster, or tensor cores.",
    "float64": "Only fewer operations are faster, or float32 if its precision suffices.",
    "special functions": "Use fewer divisions, roots and functions, or intrinsics such as __expf if they are precise "
    "enough.",
    "conversions": "Convert each value once.",
    "tensor cores": "Only fewer products are faster, or a smaller type.",
    "launch": "One kernel in place of several takes fewer launches.",
}
_ARITHMETIC = ("float32", "float64")


def sentences(estimates: Sequence[Estimate], target: Target) -> list[str]:
    """Returns a text for each of the three kernels that take longest: its longest part, its remedy and the next parts.

    `estimates` are those for `target`. The times are the lower ends of the parts.
    """
    longest = sorted(estimates, key=lambda each: -each.time.middle_s)[:_MOST_KERNELS]
    return [_sentence(each, target) for each in longest]


def _sentence(estimate: Estimate, target: Target) -> str:
    limit, parts = estimate.limit, estimate.parts
    near = sorted((part for part in parts if parts[part] >= _NEAR * parts[limit]), key=lambda part: -parts[part])
    others = ", ".join(f"{part} {_ms(parts[part])}" for part in near if part != limit)
    what = "the issue of instructions" if limit == "issue" else limit
    text = f"{estimate.recorded.launch.kernel}: at published rates, {what} takes longest, {_ms(parts[limit])}. "
    text += _remedy(estimate, limit)
    if others:
        text += f" Other parts: {others}."
    alone = max(_ARITHMETIC, key=lambda part: parts[part])
    if limit not in _ARITHMETIC and parts[alone] >= _FLOOR * parts[limit]:
        text += f" {alone} operations alone take {_ms(parts[alone])}, so only fewer of them are faster than that"
        fast = target.tensor32_flops_per_s if alone == "float32" else target.tensor64_flops_per_s
        text += ", or tensor cores." if fast else "."
    return f"{text} {_upper_end(estimate)}"


def _upper_end(estimate: Estimate) -> str:
    whole = estimate.in_turn_s
    if estimate.alone_s > whole:
        return f"At the upper end, warps wait for one load after the other, {_ms(estimate.alone_s)}."
    longest = sorted(estimate.in_turn.items(), key=lambda part: -part[1])
    named = ", ".join(f"{part} {_ms(s)}" for part, s in longest if s >= _OF_SUM * whole)
    return f"At the upper end, the parts work in turn: {named}."


def _remedy(estimate: Estimate, limit: str) -> str:
    counts = estimate.counts
    if limit == "issue":
        whole = counts.executed.arithmetic + counts.requests
        shares = (
            f"{_percent(counts.executed.arithmetic, whole)} of the instructions are arithmetic, "
            f"{_percent(counts.shared_requests, whole)} accesses to shared memory and "
            f"{_percent(counts.global_requests, whole)} accesses to global memory (without integers and control)."
        )
        return f"{shares} {_reuse(estimate)}".strip()
    if limit == "L1 and shared memory":
        whole = counts.wavefronts + counts.through_l1
        shares = f"{_percent(counts.wavefronts, whole)} of it is for accesses to shared memory (wavefronts)."
        return f"{shares} {_reuse(estimate)}".strip()
    if limit == "latency":
        fits = estimate.placed.occupancy
        return (
            f"Warps wait for their loads. Let more warps run at the same time (occupancy {100 * fits.share:.0f}%, "
            f"limited by {fits.limit}), or let each thread begin several loads before it uses the first."
        )
    return _REMEDIES[limit]


def _reuse(estimate: Estimate) -> str:
    """Returns a sentence about how often a loaded value is used; empty for a kernel without FMAs or shared loads."""
    weight = estimate.recorded.weight
    words = sum(
        weight * each.traffic.unrecorded * each.traffic.requests * each.traffic.bytes_per_thread / 4
        for each in estimate.recorded.accesses
        if each.shared and each.kind is Kind.LOAD
    )
    if not words or not _fmas(estimate.counts):
        return ""
    of_each = _fmas(estimate.counts) / words
    text = f"A thread executes {of_each:.2g} FMAs for each 4 bytes that it loads from shared memory."
    if of_each < _FEW_FMAS:
        text += (
            " If it computes several outputs from the same values, for example four rows by four columns of a matrix, "
            "it loads fewer."
        )
    return text


def _fmas(counts: Counts) -> float:
    return counts.executed.fma32 + counts.executed.fma64


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f}%"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
