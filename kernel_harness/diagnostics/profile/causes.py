"""The largest causes of a kernel's time that its author can change, each as a sentence with its line and its share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_harness.diagnostics.profile.accesses import SECTOR_BYTES, WAVEFRONT_BYTES, Access, Traffic
from kernel_harness.diagnostics.profile.estimate import LOADS_TOGETHER, SCHEDULERS, Estimate, beside, waiting_s
from kernel_harness.diagnostics.profile.expressions import Kind
from kernel_harness.diagnostics.profile.targets import L2_BYTES_PER_CLOCK_SM, Target
from kernel_harness.diagnostics.profile.work import LANES, Work

_MOST_CAUSES = 3
# An access is a cause if it moves this much more than the least possible. Any cause costs this much of the time.
_LEAST_RATIO, _LEAST_SHARE = 1.1, 0.01
# A line is divergent if fewer threads take part, and it costs this much of the time. A guard such as `if (i < n)` is
# not.
_FEW_THREADS, _LEAST_DIVERGENT_SHARE = 0.75, 0.05
# A thread can access at most this many bytes at once. A line whose threads access fewer is a cause only if each thread
# executes it at least so often that it could access as many, and if accesses are what takes long.
_WIDEST_BYTES, _NARROW_LIMITS = 16, ("issue", "L1 and shared memory")
NOTHING_WRONG = (
    "No line wastes much memory traffic: each request takes about as few sectors of global memory or wavefronts of "
    "shared memory as the bytes of its threads need. Other shares of the work among threads may need fewer."
)


@dataclass(frozen=True)
class Cause:
    """What makes a kernel slower than it needs to be: a line, its text or expression, and what is wrong there.

    `cost_s` is the time in seconds that this costs at published rates, in all launches of the same kernel and size.
    `share` is `cost_s` divided by the estimated time of the whole call if the GPU's parts worked one after the other,
    but at most 1.
    """

    kernel: str
    line: int
    text: str
    problem: str
    cost_s: float
    share: float

    @property
    def sentence(self) -> str:
        """Returns the line, its text, what is wrong there and what to do."""
        return f"line {self.line}: `{self.text}`: {self.problem}."


def largest(estimates: Sequence[Estimate], target: Target) -> list[Cause]:
    """Returns up to three causes in the launches of one call, those that cost most time first.

    `estimates` are those for `target`. An access that moves at most 10% more than the least possible is no cause, nor
    is anything that costs less than 1% of the time of the whole call, or a line with few active threads that costs less
    than 5% of the time of its kernel.
    """
    whole_s = sum(each.in_turn_s for each in estimates)
    causes = [
        Cause(each.recorded.launch.kernel, line, text, problem, cost_s, min(1.0, cost_s / whole_s))
        for each in estimates
        for line, text, problem, cost_s in _found(each, target)
        if cost_s >= _LEAST_SHARE * whole_s
    ]
    return sorted(causes, key=lambda cause: -cause.cost_s)[:_MOST_CAUSES]


def _found(estimate: Estimate, target: Target) -> Iterator[tuple[int, str, str, float]]:
    recorded = estimate.recorded
    per_s = min(target.multiprocessors, recorded.launch.blocks) * target.clock_hz
    for access in recorded.accesses:
        if _wastes(access.traffic):
            cost_s = _cost_s(access, target, per_s)
            yield access.line, access.text, _problem(access), recorded.weight * access.traffic.unrecorded * cost_s
        elif _is_narrow(access, estimate):
            yield access.line, access.text, _narrow(access), _narrow_cost_s(access, estimate, per_s)
    small = _small_blocks(estimate, target, per_s)
    if small:
        yield small
    full = recorded.launch.threads_per_block / (LANES * recorded.warps_per_block)
    for work in recorded.work:
        cost_s = recorded.weight * (full - work.executed.efficiency) * work.executed.instructions / SCHEDULERS / per_s
        few = work.executed.efficiency < _FEW_THREADS * full
        if work.line and few and cost_s >= _LEAST_DIVERGENT_SHARE * estimate.in_turn_s:
            yield work.line, work.text, _divergence(work), cost_s


def _wastes(traffic: Traffic) -> bool:
    needed = traffic.moved_bytes - traffic.excess_bytes
    return traffic.excess_bytes > 0 and traffic.moved_bytes >= _LEAST_RATIO * needed


def _cost_s(access: Access, target: Target, per_s: float) -> float:
    """Returns the seconds that the excess of one access costs, summed over its recorded requests.

    In shared memory, the excess is the wavefronts beyond the least. Each takes one clock of a multiprocessor. In global
    memory, the excess is the sectors beyond the least. If repeated atomic updates of one address cause most of these
    sectors (`_repeats`), only these updates count: they run one after the other, one in each clock of the GPU.
    Otherwise the cost is the longer of two times: the time in which the L1 caches move all these sectors, and the time
    in which the L2 cache moves those that miss the L1 caches. `per_s` is the number of clocks per second of all
    multiprocessors in use together.
    """
    traffic = access.traffic
    if access.shared:
        return traffic.extra_wavefronts / per_s
    if _repeats(access):
        return traffic.repeated / target.clock_hz
    missed = 1 - traffic.l1_sectors / max(traffic.sectors, 1)
    excess = SECTOR_BYTES * traffic.extra_sectors
    return max(missed * excess / L2_BYTES_PER_CLOCK_SM, excess / WAVEFRONT_BYTES) / per_s


def _repeats(access: Access) -> bool:
    """Returns whether the access is an atomic update, and updates of one address cause most of its excess.

    The excess is that of sectors in global memory, and of wavefronts in shared memory.
    """
    traffic = access.traffic
    excess, each = traffic.extra_sectors, 1.0
    if access.shared:
        excess, each = traffic.extra_wavefronts, traffic.least_wavefronts / max(traffic.requests, 1)
    return access.kind is Kind.ATOMIC and 2 * each * traffic.repeated > excess


def _problem(access: Access) -> str:
    traffic = access.traffic
    if _repeats(access):
        threads = _number((traffic.requests + traffic.repeated) / traffic.requests)
        return (
            f"{threads} threads of each warp update the same address, one after the other; combine the values of the "
            "warp first and let one thread update"
        )
    if access.shared:
        return _bank_conflict(access)
    verb = {Kind.LOAD: "read", Kind.STORE: "write", Kind.ATOMIC: "update", Kind.COPY: "write"}[access.kind]
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
    if traffic.bytes_per_thread < traffic.distance < WAVEFRONT_BYTES:
        return (
            f"{what}, because the addresses of neighbouring threads are {traffic.distance} bytes apart; let "
            "neighbouring threads access neighbouring elements"
        )
    what += ", because its threads access rows that begin in the same banks"
    if traffic.bytes_per_thread > _WIDEST_BYTES / 2:
        return f"{what}; lengthen the rows by {_WIDEST_BYTES} bytes, so that each still begins at a multiple of them"
    return (
        f"{what}; lengthen the rows by one element, but by {_WIDEST_BYTES} bytes if threads also access them "
        f"{_WIDEST_BYTES} bytes at a time"
    )


def _is_narrow(access: Access, estimate: Estimate) -> bool:
    """Returns whether a thread could load more bytes at once, and that would shorten what takes long."""
    traffic, recorded = access.traffic, estimate.recorded
    width = traffic.bytes_per_thread
    times = traffic.requests * traffic.unrecorded / (recorded.blocks * recorded.warps_per_block)
    often = times * width >= _WIDEST_BYTES
    return access.kind is Kind.LOAD and width < _WIDEST_BYTES and often and estimate.limit in _NARROW_LIMITS


def _narrow(access: Access) -> str:
    width = access.traffic.bytes_per_thread
    fewer = f"up to {_number(_WIDEST_BYTES / width)} times fewer loads"
    return (
        f"a thread loads {_number(width)} bytes at a time; let each thread use neighbouring elements and load "
        f"{_WIDEST_BYTES} bytes at once, for example as float4 ({fewer})"
    )


def _narrow_cost_s(access: Access, estimate: Estimate, per_s: float) -> float:
    """Returns the seconds that the instructions of avoidable loads take, with the integers and branches beside them."""
    counts = estimate.counts
    avoidable = estimate.recorded.weight * access.traffic.unrecorded * access.traffic.requests
    avoidable *= 1 - access.traffic.bytes_per_thread / _WIDEST_BYTES
    return avoidable * (1 + beside(counts.executed, counts.requests) / counts.requests) / SCHEDULERS / per_s


def _divergence(work: Work) -> str:
    return (
        f"only {_number(LANES * work.executed.efficiency)} of the 32 threads of a warp take part here, on average, and "
        "the others wait; let all threads of a warp take the same branch"
    )


def _small_blocks(estimate: Estimate, target: Target, per_s: float) -> tuple[int, str, str, float] | None:
    """Returns a cause if blocks are so small that threads or multiprocessors idle, else None.

    The values are the line that launches the kernel, its text, what is wrong, and the cost in seconds.
    """
    recorded, fits = estimate.recorded, estimate.placed.occupancy
    threads, warps = recorded.launch.threads_per_block, recorded.warps_per_block
    idle = 1 - threads / (LANES * warps)
    crowded = fits.limit == "blocks" and recorded.launch.blocks > target.multiprocessors
    if not recorded.launched_at or not (crowded or idle > 1 - _FEW_THREADS):
        return None
    counts = estimate.counts
    instructions = counts.executed.instructions + counts.global_requests + counts.shared_requests
    cost_s = idle * (instructions / SCHEDULERS + counts.global_requests + counts.wavefronts) / per_s
    if crowded:
        waiting = waiting_s(recorded, counts, estimate.placed, target) / LOADS_TOGETHER
        cost_s += (1 - fits.share) * waiting
    line, text = recorded.launched_at
    return line, text, (
        f"each block has {threads} threads, so {_number(100 * fits.share * threads / (LANES * warps))}% of the threads "
        "that a multiprocessor has room for can run at the same time; launch blocks of 128 to 256 threads"
    ), cost_s  # fmt: skip


def _number(value: float) -> str:
    """Returns `value` as text with one decimal place, or with none if that place is 0."""
    return f"{value:.1f}".removesuffix(".0")
