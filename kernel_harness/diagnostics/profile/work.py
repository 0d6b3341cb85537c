"""What each line of a candidate's file executes in the recorded warps: arithmetic, and how many threads take part."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cuda_on_cpu.compile.candidate_file import CandidateFile
from kernel_harness.core.terminal import printable
from kernel_harness.diagnostics.profile.resources import number

LANES = 32
_LONGEST_TEXT = 300
# Headers of the emulator that compute what the tensor cores of a GPU compute.
_TENSOR = re.compile(r"wmma\.h|ptx\.h")


@dataclass(frozen=True)
class Executed:
    """Instructions of warps, by kind. An instruction that a warp executes for some of its threads counts once.

    `fma32` are float32 FMAs, `add32` float32 sums and products outside FMAs, and `other32` float32 comparisons, minima
    and maxima. The fields with 64 are the same for float64. `special` are divisions, roots and functions such as exp,
    each counted once. The float32 FMAs that nvcc uses to compute them count in `fma32`, too. `convert` are conversions
    of types. `integer` and `control` are those of g++'s code; nvcc's code has others. `tensor32_flops` and
    `tensor64_flops` are floating-point operations of tensor cores, not instructions.

    `active` adds up, for each instruction, the share of the warp's threads that take part. `thread_fma32` adds up the
    float32 FMAs of these threads.
    """

    fma32: int = 0
    add32: int = 0
    other32: int = 0
    fma64: int = 0
    add64: int = 0
    other64: int = 0
    special: int = 0
    convert: int = 0
    integer: int = 0
    control: int = 0
    tensor32_flops: int = 0
    tensor64_flops: int = 0
    active: float = 0.0
    thread_fma32: int = 0

    def __add__(self, other: Executed) -> Executed:
        return Executed(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def float32(self) -> int:
        """Returns the float32 instructions."""
        return self.fma32 + self.add32 + self.other32

    @property
    def float64(self) -> int:
        """Returns the float64 instructions."""
        return self.fma64 + self.add64 + self.other64

    @property
    def arithmetic(self) -> int:
        """Returns the instructions that nvcc's code has, too: all but integers and control."""
        return self.float32 + self.float64 + self.special + self.convert

    @property
    def instructions(self) -> int:
        """Returns all instructions that are not accesses to memory."""
        return self.arithmetic + self.integer + self.control

    @property
    def efficiency(self) -> float:
        """Returns the mean share of a warp's threads in an instruction, from 0 to 1; 1 if there is no instruction."""
        return self.active / self.instructions if self.instructions else 1.0

    @property
    def flops(self) -> float:
        """Returns the number of float32 and float64 operations of the active threads, tensor cores included.

        These are additions and multiplications; an FMA counts as two.
        """
        counted = 2 * (self.fma32 + self.fma64) + self.add32 + self.add64
        return LANES * self.efficiency * counted + self.tensor32_flops + self.tensor64_flops


@dataclass(frozen=True)
class Work:
    """What one line of the candidate's file executes. `line` counts from 1; it is None for code of other files.

    `text` is the line without the spaces around it, or empty for code of other files.
    """

    line: int | None
    text: str
    executed: Executed


def parse(steps: Sequence[Mapping[str, Any]], file: CandidateFile) -> tuple[Work, ...]:
    """Returns what each line of the candidate's file `file` executes, in the order of the lines.

    `steps` are the basic blocks in a worker's message. Code of other files is one Work without a line, at the end.
    Raises KeyError, TypeError or ValueError if `steps` is malformed.
    """
    sums: dict[int | None, Executed] = {}
    for step in steps:
        warps, threads = number(step["warps"]), number(step["threads"])
        kinds = {str(kind): number(count) for kind, count in dict(step["kinds"]).items()}
        line = _line(step["frames"], file)
        executed = _by_tensor_cores(kinds, threads) if _is_tensor(step["frames"]) else _executed(kinds, warps, threads)
        sums[line] = sums.get(line, Executed()) + executed
    return tuple(
        Work(line, printable(file.line(line).strip())[:_LONGEST_TEXT] if line else "", sums[line])
        for line in sorted(sums, key=lambda line: (line is None, line or 0))
    )


def _executed(kinds: Mapping[str, int], warps: int, threads: int) -> Executed:
    """Returns the instructions of a basic block."""
    counts = {kind: kinds.get(kind, 0) for kind in ("other32", "other64", "special", "convert", "integer", "control")}
    for bits in ("32", "64"):
        counts[f"fma{bits}"] = kinds.get(f"fma{bits}", 0) + kinds.get(f"expanded{bits}", 0)
        counts[f"add{bits}"] = kinds.get(f"add{bits}", 0) + kinds.get(f"mul{bits}", 0)
    of_warps = {kind: count * warps for kind, count in counts.items()}
    return Executed(**of_warps, active=sum(counts.values()) * threads / LANES, thread_fma32=counts["fma32"] * threads)


def _by_tensor_cores(kinds: Mapping[str, int], threads: int) -> Executed:
    products = {bits: kinds.get(f"mul{bits}", 0) + kinds.get(f"fma{bits}", 0) for bits in ("32", "64")}
    return Executed(tensor32_flops=2 * threads * products["32"], tensor64_flops=2 * threads * products["64"])


def _is_tensor(frames: Sequence[Any]) -> bool:
    return any(_TENSOR.fullmatch(str(source)) for source, _, _ in frames)


def _line(frames: Sequence[Any], file: CandidateFile) -> int | None:
    for source, at, _ in frames:
        found, line = file.place(str(source), number(at))
        if found == file.name:
            return line
    return None
