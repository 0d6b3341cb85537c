"""The largest causes of a kernel's time that its author can change, each as a sentence with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_harness.diagnostics.profile.accesses import WAVEFRONT_BYTES, Access, Recorded, Traffic, Work
from kernel_harness.diagnostics.profile.expressions import Kind
from kernel_harness.diagnostics.profile.resources import BLOCKS_SM, LANES, WARPS_SM

_MOST_CAUSES = 3
# Causes of different kinds are compared by clocks of one multiprocessor. In each clock, L2 sends it 64 bytes, and it
# accesses shared memory once and issues four instructions of warps. A basic block is taken for two: one and a branch.
_SECTORS, _WAVEFRONTS, _STEPS = "sectors", "wavefronts", "basic blocks"
_CLOCKS = {_SECTORS: 0.5, _WAVEFRONTS: 1.0, _STEPS: 0.5}
_MULTIPROCESSORS = 132  # of an H200. All of them wait for an atomic update of one address
# An access is a cause if it moves this much more than the least possible. Any cause takes this share of all clocks.
_LEAST_RATIO, _LEAST_SHARE = 1.1, 0.01
# A line is divergent if fewer threads take part, each warp executes more basic blocks of it than a guard such as
# `if (i < n)` has, and that costs this share of the kernel's clocks. Blocks are small if fewer threads than this share
# of those that a multiprocessor has room for can run.
_FEW_THREADS, _GUARD_STEPS, _LEAST_DIVERGENT_SHARE = 0.75, 2, 0.05
# A thread can access at most this many bytes at once. A line whose threads access fewer is a cause only if each thread
# executes it at least so often that it could access as many.
_WIDEST_BYTES = 16
NOTHING_WRONG = (
    "No line wastes much memory traffic: each request takes about as few sectors of global memory or wavefronts of "
    "shared memory as the bytes of its threads need. Other shares of the work among threads may need fewer."
)


@dataclass(frozen=True)
class Cause:
    """What makes a kernel slower than it needs to be: a line, its text or expression, and what is wrong there.

    `clocks` is what this costs, in clocks of one multiprocessor, in all launches of the same kernel and size. `share`
    is the part that the line has of all sectors, wavefronts or basic blocks of the call, which `of` names.
    """

    kernel: str
    line: int
    text: str
    problem: str
    clocks: float
    share: float
    of: str

    @property
    def sentence(self) -> str:
        """Returns the line, its text, what is wrong there and what to do, and the line's share."""
        return f"line {self.line}: `{self.text}`: {self.problem}. It has {100 * self.share:.0f}% of all {self.of}."


def largest(recorded: Sequence[Recorded]) -> list[Cause]:
    """Returns up to three causes in the launches of one call, those that cost most clocks first.

    An access that moves at most 10% more than the least possible is no cause, nor is anything that costs less than 1%
    of the clocks of the whole call, or a line with few active threads that costs less than 5% of the clocks of its
    kernel or of which each warp executes at most two basic blocks.
    """
    amounts = [_amounts(each) for each in recorded]
    whole = {of: sum(each.weight * own[of] for each, own in zip(recorded, amounts, strict=True)) for of in _CLOCKS}
    found = (cause for each, own in zip(recorded, amounts, strict=True) for cause in _found(each, own, whole))
    causes = [cause for cause in found if cause.clocks >= _LEAST_SHARE * _clocks(whole)]
    return sorted(causes, key=lambda cause: -cause.clocks)[:_MOST_CAUSES]


def _amounts(recorded: Recorded) -> dict[str, float]:
    """Returns the sectors, wavefronts and basic blocks of the recorded blocks."""
    traffic = [(each.traffic, each.traffic.unrecorded) for each in recorded.accesses]
    return {
        _SECTORS: sum(times * each.sectors for each, times in traffic),
        _WAVEFRONTS: sum(times * each.wavefronts for each, times in traffic),
        _STEPS: sum(each.steps for each in recorded.work),
    }


def _clocks(amounts: Mapping[str, float]) -> float:
    return sum(clocks * amounts[of] for of, clocks in _CLOCKS.items())


def _found(recorded: Recorded, amounts: Mapping[str, float], whole: Mapping[str, float]) -> Iterator[Cause]:
    """Yields the causes in the recorded blocks, which have `amounts` of what all launches of the call have `whole`."""

    def cause(place: tuple[int, str], problem: str, clocks: float, amount: float, of: str) -> Cause:
        share = recorded.weight * amount / max(whole[of], 1)
        return Cause(recorded.launch.kernel, *place, problem, recorded.weight * clocks, share, of)

    shared_takes_longest = amounts[_WAVEFRONTS] * _CLOCKS[_WAVEFRONTS] > amounts[_SECTORS] * _CLOCKS[_SECTORS]
    for access in recorded.accesses:
        place, traffic, times = (access.line, access.text), access.traffic, access.traffic.unrecorded
        of, moved = (_WAVEFRONTS, traffic.wavefronts) if access.shared else (_SECTORS, traffic.sectors)
        if _wastes(traffic):
            clocks = times * _excess_clocks(access, recorded)
            yield cause(place, _problem(access), clocks, times * moved, of)
        elif access.shared and shared_takes_longest and _is_narrow(access, recorded):
            clocks = times * traffic.requests * (1 - traffic.bytes_per_thread / _WIDEST_BYTES)
            yield cause(place, _narrow(access), clocks, times * moved, of)
    room = recorded.launch.threads_per_block / (LANES * WARPS_SM / BLOCKS_SM)
    if recorded.launched_at and room < _FEW_THREADS and recorded.launch.blocks > _MULTIPROCESSORS:
        problem, clocks = _small_blocks(recorded, room), (1 - room) * _clocks(amounts)
        yield cause(recorded.launched_at, problem, clocks, amounts[_STEPS], _STEPS)
    full = recorded.launch.threads_per_block / (LANES * recorded.warps_per_block)
    for work in recorded.work:
        clocks = _CLOCKS[_STEPS] * (full - work.efficiency) * work.steps
        diverges = work.efficiency < _FEW_THREADS * full and work.steps > _GUARD_STEPS * recorded.warps
        if diverges and clocks >= _LEAST_DIVERGENT_SHARE * _clocks(amounts):
            yield cause((work.line, work.text), _divergence(work), clocks, work.steps, _STEPS)


def _wastes(traffic: Traffic) -> bool:
    moved, extra = traffic.sectors + traffic.wavefronts, traffic.extra_sectors + traffic.extra_wavefronts
    return extra > 0 and moved >= _LEAST_RATIO * (moved - extra)


def _excess_clocks(access: Access, recorded: Recorded) -> float:
    """Returns the clocks that the excess of one access costs, summed over its recorded requests.

    The excess is the sectors or wavefronts beyond the least. If repeated atomic updates of one address in global memory
    cause most of these sectors (`_repeats`), only these updates count: they run one after the other, one in each clock
    of the GPU.
    """
    traffic = access.traffic
    if access.shared:
        return _CLOCKS[_WAVEFRONTS] * traffic.extra_wavefronts
    if _repeats(access):
        return traffic.repeated * min(_MULTIPROCESSORS, recorded.launch.blocks)
    return _CLOCKS[_SECTORS] * traffic.extra_sectors


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


def _is_narrow(access: Access, recorded: Recorded) -> bool:
    """Returns whether a thread could load more bytes at once."""
    traffic = access.traffic
    width = traffic.bytes_per_thread
    times = traffic.requests * traffic.unrecorded / recorded.warps
    return access.kind is Kind.LOAD and width < _WIDEST_BYTES and times * width >= _WIDEST_BYTES


def _narrow(access: Access) -> str:
    width = access.traffic.bytes_per_thread
    fewer = f"up to {_number(_WIDEST_BYTES / width)} times fewer loads"
    return (
        f"a thread loads {_number(width)} bytes at a time; let each thread use neighbouring elements and load "
        f"{_WIDEST_BYTES} bytes at once, for example as float4 ({fewer})"
    )


def _divergence(work: Work) -> str:
    return (
        f"only {_number(LANES * work.efficiency)} of the 32 threads of a warp take part here, on average, and the "
        "others wait; let all threads of a warp take the same branch"
    )


def _small_blocks(recorded: Recorded, room: float) -> str:
    return (
        f"each block has {recorded.launch.threads_per_block} threads, so {_number(100 * room)}% of the threads that a "
        "multiprocessor has room for can run at the same time; launch blocks of 128 to 256 threads"
    )


def _number(value: float) -> str:
    """Returns `value` as text with one decimal place, or with none if that place is 0."""
    return f"{value:.1f}".removesuffix(".0")
