"""What each line of a candidate's file does in the recorded warps.

It executes basic blocks, and it accesses memory, which takes requests, sectors and wavefronts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cuda_on_cpu.compile.candidate_file import CandidateFile
from kernel_harness.core.terminal import printable
from kernel_harness.diagnostics.profile.expressions import Kind, expression
from kernel_harness.diagnostics.profile.resources import LANES, Launched, base_name, number

SECTOR_BYTES, WAVEFRONT_BYTES = 32, 128
_LONGEST_TEXT = 300
# Headers of the emulator whose accesses are not those of a GPU, which has instructions for a whole warp or other
# algorithms there.
_NOT_AS_ON_A_GPU = re.compile(r"wmma\.h|ptx\.h|cub_\w+\.h|thrust_\w+\.h")
# But these functions copy as a GPU does: they are cp.async.
_AS_ON_A_GPU = {("ptx.h", "copy_ca"), ("ptx.h", "copy_cg")}


@dataclass(frozen=True)
class Traffic:
    """Sums over requests. A request is one memory access of a warp: the accesses of the warp's threads together.

    `threads` counts the accesses of single threads in the requests, and `asked_bytes` the bytes that they access.
    `merged` counts accesses of threads that became a part of a wider request, which another instruction may have begun.
    `left_out` counts accesses of threads that were not recorded.

    In global memory, `sectors` counts the pieces of 32 bytes that are moved. A sector counts again for each atomic
    update that waits for another update of the same address. `least_sectors` is the number of sectors that could hold
    the different bytes of each request. `aligned_sectors` is the number of sectors if each contiguous run of addresses
    began at a multiple of 32 bytes.

    In shared memory, `wavefronts` counts the accesses to the 32 banks, and `least_wavefronts` those if no thread had to
    wait for another one. `conflicts` counts those that Nsight Compute calls bank conflicts: wavefronts beyond the first
    of a part of a request. It does not count the further tries of a compare-and-swap. `ways` is the most wavefronts of
    a part. `distance` is the least distance in bytes between different addresses of neighbouring threads in the request
    with that part, or 0.

    `repeated` counts the updates of the address that most threads of an atomic request update, without the first. In
    shared memory, it is 0 for updates that wait for no other: those that add 1 and do not use the old value.
    """

    requests: int
    asked_bytes: int
    sectors: int
    least_sectors: int
    aligned_sectors: int
    wavefronts: int
    least_wavefronts: int
    conflicts: int
    repeated: int
    threads: int
    merged: int
    left_out: int
    ways: int
    distance: int

    def __add__(self, other: Traffic) -> Traffic:
        summed = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        worst = max(self, other, key=lambda each: each.ways)
        return Traffic(**{**summed, "ways": worst.ways, "distance": worst.distance})

    @property
    def unrecorded(self) -> float:
        """Returns the number of all accesses, recorded or not, divided by the number of recorded accesses."""
        return 1 + self.left_out / max(self.threads + self.merged, 1)

    @property
    def extra_sectors(self) -> int:
        """Returns the sectors beyond the least."""
        return self.sectors - self.least_sectors

    @property
    def extra_wavefronts(self) -> int:
        """Returns the wavefronts beyond the least."""
        return self.wavefronts - self.least_wavefronts

    @property
    def bytes_per_thread(self) -> float:
        """Returns the mean number of bytes that a thread accesses in a request."""
        return self.asked_bytes / max(self.threads, 1)


@dataclass(frozen=True)
class Access:
    """The accesses of one kind at one place of the candidate's file.

    `line` is the line, counted from 1, and `text` the accessed expression, or the whole line if the expression is not
    known. `shared` is true for shared memory and false for global memory.
    """

    line: int
    text: str
    kind: Kind
    shared: bool
    traffic: Traffic


@dataclass(frozen=True)
class Work:
    """The basic blocks of g++'s code that begin on one line of the candidate's file.

    `line` counts from 1, and `text` is the line without the spaces around it. `steps` is how often warps executed these
    basic blocks. One that a warp executes for some of its threads counts once. `threads` is how often threads did.
    """

    line: int
    text: str
    steps: int
    threads: int

    @property
    def efficiency(self) -> float:
        """Returns the mean share of a warp's threads that take part, from 0 to 1."""
        return self.threads / (LANES * self.steps)


@dataclass(frozen=True)
class Units:
    """What asynchronous units do for one line of the candidate's file, in all blocks of all equal launches.

    `copies` is the number of bulk copies (TMA's included), and `read` and `written` are the bytes of global memory that
    these access: of a box, those inside of the tensor. `products` is the number of `wgmma` instructions of a warpgroup,
    and `operations` that of their multiplications and additions.
    """

    line: int
    text: str
    copies: int
    read: int
    written: int
    products: int
    operations: int


@dataclass(frozen=True)
class Recorded:
    """The recorded accesses and instructions of the launches of one kernel and size, of all warps of `blocks` blocks.

    `launches` is how often the call launched this kernel with these sizes. The first `recorded_launches` of them were
    recorded.

    `accesses` are in the order of the lines. `left_out` counts accesses of threads that were not recorded: those after
    the first 1024 of a thread at one instruction between two barriers. `elsewhere` counts requests that belong to no
    line of the candidate's file, or to functions that a GPU runs in another way. `work` is what the lines execute, and
    `units` what asynchronous units do for them.
    `launched_at` is the line that launches the kernel, and its text, or None if that line is not found.
    """

    launch: Launched
    launches: int
    blocks: int
    recorded_launches: int
    left_out: int
    elsewhere: int
    accesses: tuple[Access, ...]
    work: tuple[Work, ...]
    units: tuple[Units, ...]
    launched_at: tuple[int, str] | None = None

    @property
    def warps_per_block(self) -> int:
        """Returns the number of warps in a block of the launch."""
        return -(-self.launch.threads_per_block // LANES)

    @property
    def warps(self) -> int:
        """Returns the number of recorded warps."""
        return self.blocks * self.warps_per_block

    @property
    def complete(self) -> bool:
        """Returns whether all accesses of the recorded launches were recorded."""
        return (self.blocks, self.left_out) == (self.recorded_launches * self.launch.blocks, 0)

    @property
    def weight(self) -> float:
        """Returns the factor from a count in the recorded blocks to the count in all blocks of all equal launches.

        It is the number of blocks in all `launches` launches of this kernel and size, divided by `blocks`.
        """
        return self.launches * self.launch.blocks / self.blocks


def parse(message: Mapping[str, Any], launches: int, file: CandidateFile) -> Recorded | None:
    """Returns the recorded accesses of the launch that `message`, a mapping from a worker, describes.

    They include those of later recorded launches of the same kernel and size: grid, block and dynamic shared memory.
    Returns None for such a later launch, and for a launch that was not recorded. `launches` is how often the profiled
    call launched this kernel and size, and `file` is the candidate's file. Raises KeyError, TypeError or ValueError if
    the message is malformed.
    """
    blocks = number(message["sampled_blocks"])
    if not blocks:
        return None
    sums: dict[tuple[int, str, Kind, bool], Traffic] = {}
    elsewhere = 0
    for each in message["instructions"]:
        traffic = Traffic(**{f.name: number(each[f.name]) for f in fields(Traffic)})
        kind = Kind(each["kind"])
        if not traffic.requests:  # an atomic load that became a part of an atomic update
            continue
        shared = bool(each["shared"])
        if not shared and not (traffic.sectors and traffic.least_sectors):
            raise ValueError("a request to global memory accesses no sector")
        place = _place(each["frames"], each["column"], kind, file)
        if place is None:
            elsewhere += traffic.requests
            continue
        key = (*place, kind, shared)
        sums[key] = sums[key] + traffic if key in sums else traffic
    accesses = tuple(Access(*key, traffic) for key, traffic in sorted(sums.items()))
    launch = Launched.parse(message)
    return Recorded(
        launch, launches, blocks, number(message["recorded_launches"], least=1), number(message["left_out"]), elsewhere,
        accesses, work_of(message["steps"], file), units_of(message["units"], file), _launched_at(launch.kernel, file),
    )  # fmt: skip


def _launched_at(kernel: str, file: CandidateFile) -> tuple[int, str] | None:
    line = file.find(rf"\b{re.escape(base_name(kernel))}\s*(?:<[^;{{}}]*>)?\s*<<\s*<")
    return (line, _text(file.line(line))) if line else None


def work_of(steps: Sequence[Mapping[str, Any]], file: CandidateFile) -> tuple[Work, ...]:
    """Returns what each line of the candidate's file `file` executes, in the order of the lines.

    `steps` are the basic blocks in a worker's message. Code of other files is left out. Raises KeyError, TypeError or
    ValueError if `steps` is malformed.
    """
    sums: dict[int, tuple[int, int]] = {}
    for step in steps:
        warps, threads = number(step["warps"], least=1), number(step["threads"])
        places = (file.place(str(source), number(at)) for source, at, _ in step["frames"])
        line = next((line for found, line in places if found == file.name), None)
        if line is not None:
            before = sums.get(line, (0, 0))
            sums[line] = before[0] + warps, before[1] + threads
    return tuple(Work(line, _text(file.line(line)), *sums[line]) for line in sorted(sums))


def units_of(units: Sequence[Mapping[str, Any]], file: CandidateFile) -> tuple[Units, ...]:
    """Returns what asynchronous units do for each line of the candidate's file `file`, in the order of the lines.

    `units` comes from a worker's message. Lines of other files are left out. Raises KeyError, TypeError or ValueError
    if `units` is malformed.
    """
    sums: dict[int, list[int]] = {}
    for each in units:
        found, line = file.place(str(each["file"]), number(each["line"]))
        if found == file.name:
            counts = [number(each[f.name]) for f in fields(Units)[2:]]
            sums[line] = [a + b for a, b in zip(sums.get(line, [0] * len(counts)), counts, strict=True)]
    return tuple(Units(line, _text(file.line(line)), *sums[line]) for line in sorted(sums))


def _place(frames: Sequence[Any], column: Any, kind: Kind, file: CandidateFile) -> tuple[int, str] | None:
    """Returns the line in the candidate's file that an instruction comes from, and the accessed expression.

    If the expression is not clear, the second value is the text of the line. Each of `frames` has a file, a line and a
    function: first those of the instruction, then those of each inlined call around it. Returns None if no frame is in
    the candidate's file, or if an inner frame is in a function of the emulator that a GPU runs in another way.
    """
    for depth, (source, at, function) in enumerate(frames):
        name = str(source)
        if _NOT_AS_ON_A_GPU.fullmatch(name) and (name, base_name(str(function))) not in _AS_ON_A_GPU:
            return None
        found, line = file.place(name, number(at))
        if found == file.name:
            text = file.line(line)
            known = column is not None and depth == 0
            accessed = expression(text, number(column), kind) if known else None
            return line, _text(accessed or text)
    return None


def _text(code: str) -> str:
    return printable(code.strip())[:_LONGEST_TEXT]
