"""Estimates the time of a profiled call on a GPU, as a range, from the counts of the emulated device.

The lower end assumes that the GPU's parts work at their published rates and all at the same time: it is the longest of
their times (the roofline model: Williams, Waterman and Patterson, CACM 52(4), 2009). The upper end is the longer of two
times: that of the parts one after the other, and that of warps which wait for every load. docs/profile.md lists the
formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil, sqrt

from kernel_harness.diagnostics.profile.accesses import SECTOR_BYTES, WAVEFRONT_BYTES, Access, Recorded
from kernel_harness.diagnostics.profile.expressions import Kind
from kernel_harness.diagnostics.profile.resources import Occupancy, Resources, base_name, occupancy
from kernel_harness.diagnostics.profile.targets import (
    ARITHMETIC_CLOCKS,
    DRAM_CLOCKS,
    L1_CLOCKS,
    L2_CLOCKS,
    SHARED_CLOCKS,
    Target,
)
from kernel_harness.diagnostics.profile.work import Executed

# Assumptions of the model. DRAM reaches this share of its published bandwidth at the upper end.
DRAM_SHARE = 0.8
# Loads of a warp that wait at the same time at the lower end; at the upper end it is one.
LOADS_TOGETHER = 8
SCHEDULERS = 4  # of a multiprocessor: each issues an instruction of a warp for each clock
# Of 90 kernels on an H200, nine in ten execute at most 12 integer instructions for each access to memory, by the counts
# in benchmarks/measured. g++ keeps many times as many where nvcc unrolls loops and hoists addresses out of them.
INTEGERS_PER_ACCESS = 12
_LAUNCH_S = (2e-6, 5e-6)  # from one kernel to the next
# An atomic update that this share of a warp's threads repeats is taken to update one address in all warps.
_ONE_ADDRESS = 0.5
_UNKNOWN_REGISTERS = 32  # without nvcc: the most with which any block size can use all warps


@dataclass(frozen=True)
class Counts:
    """What all launches of one kernel and size do, in proportion to the recorded warps.

    A request is one memory access of a warp. `l2_sectors` are the sectors of global memory that the L1 cache does not
    have. `delayed` are the requests to global memory that wait for L2 or DRAM. `dram_bytes` are the least and the
    most bytes that move between DRAM and the L2 cache. `wave_bytes` is the number of bytes that the blocks of one wave
    access, each byte once for each block. `updates` counts atomic updates of one address by all warps: their requests,
    and the updates of their threads. `swaps` are the updates of threads among them in loops around an atomicCAS.
    """

    executed: Executed
    global_requests: float
    sectors: float
    l2_sectors: float
    delayed: float
    shared_requests: float
    wavefronts: float
    dram_bytes: tuple[float, float]
    wave_bytes: float
    updates: tuple[float, float]
    swaps: float

    @property
    def requests(self) -> float:
        """Returns the requests to global and shared memory."""
        return self.global_requests + self.shared_requests

    @property
    def through_l1(self) -> float:
        """Returns the least clocks of a multiprocessor in which the sectors of global memory pass through L1."""
        return max(self.global_requests, SECTOR_BYTES * self.sectors / WAVEFRONT_BYTES)


@dataclass(frozen=True)
class Range:
    """A time between `low_s` and `high_s` seconds."""

    low_s: float
    high_s: float

    @property
    def middle_s(self) -> float:
        """Returns the geometric mean of the ends."""
        return sqrt(self.low_s * self.high_s)

    def __add__(self, other: Range) -> Range:
        return Range(self.low_s + other.low_s, self.high_s + other.high_s)


@dataclass(frozen=True)
class Placed:
    """How the blocks of a launch share a GPU: the occupancy, and the number of waves in which the blocks run.

    A wave has one block in each of the places that the GPU has for blocks at the same time. `waves` is the number of
    blocks divided by the number of these places. `tail` is the share of the places of all waves that stay empty because
    the last wave is not full, from 0 to 1. `known` says whether nvcc reported the resources of the kernel.
    """

    occupancy: Occupancy
    known: bool
    waves: float
    tail: float


@dataclass(frozen=True)
class Estimate:
    """The estimated time of all launches of one kernel and size.

    `parts` are the times of the GPU's parts at the lower end, such as "DRAM", in seconds. `in_turn` are the times of
    the parts that work one after the other at the upper end, at its rates.
    """

    recorded: Recorded
    counts: Counts
    placed: Placed
    parts: Mapping[str, float]
    in_turn: Mapping[str, float]
    time: Range

    @property
    def limit(self) -> str:
        """Returns the part that takes longest at the lower end."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def in_turn_s(self) -> float:
        """Returns the time in seconds if the parts work one after the other. The shares of causes refer to it."""
        return sum(self.in_turn.values())

    @property
    def alone_s(self) -> float:
        """Returns the time in seconds if each warp waits for one load after the other."""
        return LOADS_TOGETHER * self.parts["latency"]


def estimated(recorded: Recorded, kernels: Sequence[Resources], target: Target) -> Estimate:
    """Returns the estimated time on `target` of all launches of the kernel and size of `recorded`.

    `kernels` are the resources that nvcc reports. If the kernel is not among them, it is taken to need 32 registers for
    each thread and no static shared memory.
    """
    placed = place(recorded, kernels, target)
    counts = counted(recorded, placed, target)
    return timed(recorded, counts, placed, target)


def place(recorded: Recorded, kernels: Sequence[Resources], target: Target) -> Placed:
    """Returns how the blocks of a launch share the multiprocessors of `target`."""
    launch = recorded.launch
    own = next((k for k in kernels if base_name(k.kernel) == base_name(launch.kernel)), None)
    registers = own.registers if own else _UNKNOWN_REGISTERS
    shared = launch.dynamic_shared_bytes + (own.shared_bytes if own else 0)
    fits = occupancy(registers, shared, launch.threads_per_block, target)
    at_once = max(fits.blocks, 1) * target.multiprocessors
    waves = launch.blocks / at_once
    return Placed(fits, own is not None, waves, 1 - waves / ceil(waves))


def counted(recorded: Recorded, placed: Placed, target: Target) -> Counts:
    """Returns what all launches of the kernel and size of `recorded` do, in proportion to what was recorded."""
    weight = recorded.weight
    in_global = [(each, weight * each.traffic.unrecorded) for each in recorded.accesses if not each.shared]
    shared = [(each, weight * each.traffic.unrecorded) for each in recorded.accesses if each.shared]
    one_address = [(each, times) for each, times in in_global if _is_one_address(each)]
    return Counts(
        executed=_times(recorded.executed, weight),
        global_requests=sum(times * each.traffic.requests for each, times in in_global),
        sectors=sum(times * each.traffic.sectors for each, times in in_global),
        l2_sectors=sum(times * (each.traffic.sectors - each.traffic.l1_sectors) for each, times in in_global),
        delayed=sum(
            times * (each.traffic.delayed if each.kind is Kind.LOAD else each.traffic.requests)
            for each, times in in_global
        ),
        shared_requests=sum(times * each.traffic.requests for each, times in shared),
        wavefronts=sum(times * each.traffic.wavefronts for each, times in shared),
        dram_bytes=_dram_bytes(recorded, placed, target, in_global),
        wave_bytes=SECTOR_BYTES * recorded.block_sectors * weight / ceil(placed.waves),
        updates=(
            sum(times * each.traffic.requests for each, times in one_address),
            sum(times * each.traffic.threads for each, times in one_address),
        ),
        swaps=sum(times * each.traffic.after_read for each, times in one_address if "atomicCAS" in each.text),
    )


def _is_one_address(access: Access) -> bool:
    traffic = access.traffic
    return access.kind is Kind.ATOMIC and traffic.repeated >= _ONE_ADDRESS * traffic.threads


def _times(executed: Executed, weight: float) -> Executed:
    return Executed(*(weight * getattr(executed, f.name) for f in fields(Executed)))


def _dram_bytes(
    recorded: Recorded, placed: Placed, target: Target, accesses: Sequence[tuple[Access, float]]
) -> tuple[float, float]:
    """Returns the least and the most bytes that all launches of this kernel and size move between DRAM and L2.

    `accesses` are those to global memory, each with the factor from recorded to all requests. The least is that each
    launch moves each byte once: the different sectors if all blocks were recorded, else those of each recorded block in
    proportion to all blocks, but at most `touched_bytes`. If that fits into L2, it is also the most. Otherwise each
    wave of blocks moves its bytes again, but no more than the sectors that L1 does not have.
    """
    blocks, beyond = (
        recorded.launch.blocks,
        sum(times for _, times in accesses) / max(len(accesses), 1) / recorded.weight,
    )
    of_block = SECTOR_BYTES * recorded.block_sectors / recorded.blocks * max(beyond, 1)
    of_sectors, of_memory = (
        count / recorded.recorded_launches for count in (SECTOR_BYTES * recorded.unique_sectors, recorded.touched_bytes)
    )
    unique = of_sectors if recorded.complete else min(of_block * blocks, of_memory)
    passed = sum(SECTOR_BYTES * times * (each.traffic.sectors - each.traffic.l1_sectors) for each, times in accesses)
    of_wave = min(unique, of_block * blocks / max(placed.waves, 1))
    most = (
        unique
        if unique <= target.l2_bytes
        else max(unique, min(ceil(placed.waves) * of_wave, passed / recorded.launches))
    )
    return recorded.launches * unique, recorded.launches * most


def timed(recorded: Recorded, counts: Counts, placed: Placed, target: Target) -> Estimate:
    """Returns the estimated time of launches that do `counts` on `target`."""
    launch, clock = recorded.launch, target.clock_hz
    used = min(target.multiprocessors, launch.blocks)  # fewer blocks than multiprocessors leave some idle
    per_s = used * clock
    executed = counts.executed
    accesses = counts.requests
    pipes = {
        "float32": executed.float32 * 32 / target.float32_lanes / per_s,
        "float64": executed.float64 * 32 / target.float64_lanes / per_s,
        "special functions": executed.special * 32 / target.special_lanes / per_s,
        "conversions": executed.convert * 32 / target.convert_lanes / per_s,
        "tensor cores": _tensor_s(executed, target) * target.multiprocessors / used,
    }
    swaps_s = counts.swaps * L2_CLOCKS / clock  # if all blocks update one address
    memory = {
        "DRAM": counts.dram_bytes[0] / target.dram_bytes_per_s,
        "L2": SECTOR_BYTES * counts.l2_sectors / target.l2_bytes_per_s * target.multiprocessors / used,
        "L1 and shared memory": (counts.wavefronts + counts.through_l1) / per_s,
        "atomics": max(counts.updates[0] / clock, swaps_s * ceil(placed.waves) / launch.blocks),
    }
    issue = {"issue": (executed.arithmetic + accesses) / SCHEDULERS / per_s}
    alone_s = waiting_s(recorded, counts, placed, target)
    parts = {**memory, **pipes, **issue, "latency": alone_s / LOADS_TOGETHER}
    full_issue = (executed.arithmetic + accesses + beside(executed, accesses)) / SCHEDULERS / per_s
    computing = {"issue with integers": full_issue, **pipes}
    slowest = max(computing, key=lambda part: computing[part])
    slow_memory = {**memory, "DRAM": counts.dram_bytes[1] / DRAM_SHARE / target.dram_bytes_per_s}
    slow_memory["L1 and shared memory"] = (counts.wavefronts + max(counts.global_requests, counts.sectors)) / per_s
    slow_memory["atomics"] = max(counts.updates[1] / clock, swaps_s)
    filled = 1 - placed.tail if placed.waves > 1 else 1
    in_turn = {part: s / filled for part, s in {**slow_memory, slowest: computing[slowest]}.items()}
    launched = Range(*(recorded.launches * each for each in _LAUNCH_S))
    low = max(parts.values())
    time = Range(low, max(low, sum(in_turn.values()), alone_s)) + launched
    return Estimate(recorded, counts, placed, {**parts, "launch": launched.low_s}, in_turn, time)


def beside(executed: Executed, accesses: float) -> float:
    """Returns the integer and control instructions at the upper end, for `accesses` accesses of warps to memory.

    In a kernel whose work is floating-point arithmetic they compute addresses and count loops. nvcc then leaves at most
    INTEGERS_PER_ACCESS of them for each access. In any other kernel, all instructions in g++'s code count.
    """
    of_gcc = executed.integer + executed.control
    computes = executed.float32 + executed.float64 >= accesses or executed.tensor32_flops or executed.tensor64_flops
    return min(of_gcc, INTEGERS_PER_ACCESS * accesses) if computes else of_gcc


def _tensor_s(executed: Executed, target: Target) -> float:
    """Returns the least time of the tensor cores in seconds. The type of products below float64 is not known.

    So they count at the rate of half precision, which is twice that of TF32. If `target` has no tensor cores for
    float64, these products count at 1/64 of the float32 peak.
    """
    slow = executed.tensor64_flops / (target.tensor64_flops_per_s or target.float32_flops_per_s / 64)
    return executed.tensor32_flops / (2 * target.tensor32_flops_per_s) + slow


def waiting_s(recorded: Recorded, counts: Counts, placed: Placed, target: Target) -> float:
    """Returns the time of all waves if each warp waits for each load and each arithmetic result in turn."""
    warps = recorded.launches * recorded.launch.blocks * recorded.warps_per_block
    # The blocks of the first wave read the same bytes at about the same time, so all wait until DRAM has sent them.
    from_dram = max(counts.dram_bytes[0], counts.wave_bytes)
    beyond_l2 = min(1.0, from_dram / max(SECTOR_BYTES * counts.l2_sectors, 1))
    of_delayed = (1 - beyond_l2) * L2_CLOCKS + beyond_l2 * DRAM_CLOCKS
    clocks = counts.delayed * of_delayed + (counts.global_requests - counts.delayed) * L1_CLOCKS
    clocks += counts.shared_requests * SHARED_CLOCKS
    clocks += counts.executed.arithmetic * ARITHMETIC_CLOCKS
    return recorded.launches * ceil(placed.waves) * clocks / warps / target.clock_hz
