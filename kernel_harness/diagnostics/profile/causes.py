"""The largest causes of wasted memory traffic in the recorded accesses of a profile, each as a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_harness.diagnostics.profile.accesses import Access, Recorded, Traffic
from kernel_harness.diagnostics.profile.expressions import Kind

_MOST_CAUSES = 3
# An access is a cause if it moves this much more than the least possible, and this much of all bytes that are moved.
_LEAST_RATIO, _LEAST_SHARE = 1.1, 0.01
NOTHING_WRONG = (
    "No line wastes much memory traffic: the accesses of the warps take about as few sectors of global memory and "
    "wavefronts of shared memory as their bytes need."
)


@dataclass(frozen=True)
class Cause:
    """An access that moves more bytes than it needs, and its kernel.

    `excess_bytes` is an estimate for the whole launch, in proportion to the recorded warps.
    """

    kernel: str
    access: Access
    excess_bytes: float

    @property
    def sentence(self) -> str:
        """Returns the line, its text, what is wrong there and what to do."""
        return f"line {self.access.line}: `{self.access.text}`: {_problem(self.access)}."


def largest(recorded: Sequence[Recorded]) -> list[Cause]:
    """Returns up to three causes, those that move most bytes beyond the least possible first.

    Accesses within 10% of the least possible, and those whose excess is less than 1% of all bytes, are no causes.
    """
    all_bytes = sum(each.weight * access.traffic.moved_bytes for each in recorded for access in each.accesses)
    causes = [
        Cause(each.launch.kernel, access, each.weight * access.traffic.excess_bytes)
        for each in recorded
        for access in each.accesses
        if _wastes(access.traffic)
    ]
    causes = [cause for cause in causes if cause.excess_bytes >= _LEAST_SHARE * all_bytes]
    return sorted(causes, key=lambda cause: -cause.excess_bytes)[:_MOST_CAUSES]


def _wastes(traffic: Traffic) -> bool:
    needed = traffic.moved_bytes - traffic.excess_bytes
    return traffic.excess_bytes > 0 and traffic.moved_bytes >= _LEAST_RATIO * needed


def _problem(access: Access) -> str:
    traffic = access.traffic
    if access.shared:
        return _bank_conflict(access)
    if access.kind is Kind.ATOMIC and traffic.repeated > traffic.sectors - traffic.least_sectors:
        threads = _number(1 + traffic.repeated / traffic.requests)
        return (
            f"{threads} threads of each warp update the same address, one after the other; combine the values of the "
            "warp first and let one thread update"
        )
    verb = {Kind.LOAD: "read", Kind.STORE: "write", Kind.ATOMIC: "update"}[access.kind]
    moved, asked = _number(traffic.sectors / traffic.requests), _number(traffic.asked_bytes / traffic.requests)
    what = f"each warp {verb}s {moved} sectors of 32 bytes for {asked} bytes"
    fewer = f"{_number(traffic.sectors / traffic.least_sectors)} times fewer sectors"
    if traffic.aligned_sectors == traffic.least_sectors:
        return f"{what}, because its addresses begin inside a sector; align them to 32 bytes ({fewer})"
    return f"{what}; let neighbouring threads {verb} neighbouring addresses ({fewer})"


def _bank_conflict(access: Access) -> str:
    traffic = access.traffic
    needed, least = traffic.wavefronts / traffic.requests, traffic.least_wavefronts / traffic.requests
    what = (
        f"{traffic.ways}-way bank conflicts in shared memory: each warp takes {_number(needed)} wavefronts instead of "
        f"{_number(least)}"
    )
    if access.kind is Kind.ATOMIC:
        return f"{what}; let the threads of a warp update different addresses, in different banks"
    return f"{what}; let the threads of a warp access different banks, for example by one more column in each row"


def _number(value: float) -> str:
    """Returns a number with at most one decimal place, without one if it is whole."""
    return f"{value:.1f}".removesuffix(".0")
