"""Values: what was launched, what the assembler says of a kernel, how many of its blocks a multiprocessor holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_harness.build.digest import demangled

_FUNCTION = re.compile(
    r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>\w+)'"
    r"(?P<body>.*?)(?=Compiling entry function|\Z)",
    re.DOTALL,
)
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def base_name(kernel: str) -> str:
    """`void a::tile<16>(float*)` and `tile<16>` are both `tile`."""
    plain = re.sub(r"^\w+ (?=\S)|\(anonymous namespace\)::|<unnamed>::", "", kernel)
    return re.split(r"[<(]", plain, maxsplit=1)[0].split("::")[-1].strip()


@dataclass(frozen=True)
class Launched:
    """One launch and what its threads did together. Bytes are what loads and stores asked for, before any cache."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    barriers: int
    warp_operations: int
    global_read: int
    global_written: int
    shared_read: int
    shared_written: int

    @staticmethod
    def read(said: Mapping[str, Any]) -> Launched:
        """From a worker's words. Raises ValueError, TypeError, KeyError for what no worker of ours would say."""
        sizes = {name: tuple(int(n) for n in said[name]) for name in ("grid", "block")}
        names = (name for name in Launched.__dataclass_fields__ if name not in (*sizes, "kernel"))
        return Launched(kernel=str(said["kernel"]), **sizes, **{name: int(said[name]) for name in names})  # type: ignore[arg-type]

    @property
    def blocks(self) -> int:
        """In the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        """In a block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Resources:
    """What one kernel needs, as ptxas assembled it; bytes, per thread but for `shared_bytes`, which is per block."""

    kernel: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True)
class Assembled:
    """What nvcc made of one CUDA source: its kernels, or why they are not known."""

    kernels: tuple[Resources, ...] = ()
    missing: str = ""

    @staticmethod
    def read(said: Mapping[str, Any]) -> Assembled:
        """From a worker's words."""
        if "ptxas" not in said:
            return Assembled(missing=str(said.get("missing", "")))
        return Assembled(tuple(ptxas(str(said["ptxas"]))))


def ptxas(log: str) -> list[Resources]:
    """Every kernel in the output of `nvcc -Xptxas -v`."""
    found = []
    for match in _FUNCTION.finditer(log):
        registers, spills, shared = (pattern.search(match["body"]) for pattern in (_REGISTERS, _SPILLS, _SHARED))
        if registers:
            stack, stores, loads = map(int, spills.groups()) if spills else (0, 0, 0)
            size = int(shared[1]) if shared else 0
            found.append(Resources(demangled(match["name"]), int(registers[1]), size, stack, stores, loads))
    return found


@dataclass(frozen=True)
class Occupancy:
    """Blocks that a multiprocessor can hold at once, what limits them, and the share of its warps that they fill."""

    blocks: int
    limit: str
    share: float


# Compute capability 9.0: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the
# allocation rules of cuda_occupancy.h in the toolkit.
_WARPS, _BLOCKS, _REGISTER_FILE, _PARTITIONS, _REGISTER_UNIT = 64, 32, 65536, 4, 256
_SHARED_BYTES, _SHARED_UNIT, _RESERVED_BYTES = 233472, 128, 1024


def occupancy(registers: int, shared_bytes: int, threads_per_block: int) -> Occupancy:
    """Theoretical, on sm_90; `shared_bytes` static and dynamic, per block."""
    warps = -(-threads_per_block // 32)
    per_warp = -(-max(registers, 1) * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = _REGISTER_FILE // _PARTITIONS // per_warp * _PARTITIONS // warps
    per_block = -(-(shared_bytes + _RESERVED_BYTES) // _SHARED_UNIT) * _SHARED_UNIT
    limits = {
        "warps": _WARPS // warps,
        "blocks": _BLOCKS,
        "registers": by_registers,
        "shared memory": _SHARED_BYTES // per_block,
    }
    limit = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limit], limit, limits[limit] * warps / _WARPS)
