"""The values in a profile: kernel launches, the resources that ptxas reports for each kernel, and the occupancy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cuda_on_cpu.compile.compiler_log import demangled
from kernel_harness.core.terminal import printable

LANES = 32  # threads of a warp
# The most warps and blocks that a multiprocessor of an H200 runs at the same time, and its shared memory.
WARPS_SM, BLOCKS_SM, _SHARED_SM_BYTES = 64, 32, 228 << 10
_FUNCTION = re.compile(
    r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>\w+)'"
    r"(?P<body>.*?)(?=Compiling entry function|\Z)",
    re.DOTALL,
)
# The text comes from a worker process, so a candidate may have changed it. Python cannot read a number of any length.
_NUMBER = r"\b(\d{1,18})"
_SPILLS = re.compile(rf"{_NUMBER} bytes stack frame, {_NUMBER} bytes spill stores, {_NUMBER} bytes spill loads")
_REGISTERS = re.compile(rf"Used {_NUMBER} registers")
_SHARED = re.compile(rf"{_NUMBER} bytes smem")
_LONGEST_NAME = 1000


def base_name(kernel: str) -> str:
    """Returns the kernel's unqualified name: `tile` for both `void a::tile<16>(float*)` and `tile<16>`.

    Returns an empty string for a memory copy or a memory fill.
    """
    head = re.split(r"[<(]", re.sub(r"\(anonymous namespace\)|<unnamed>", "", kernel), maxsplit=1)[0]
    words = re.findall(r"\w+", head)
    return words[-1] if words and not head.startswith(("Memcpy ", "Memset ")) else ""


def number(value: Any, least: int = 0) -> int:
    """Returns `value` as an integer of at least `least` and below 2^63.

    Raises TypeError or ValueError if Python cannot convert `value`, and ValueError if the integer is out of range.
    """
    found = int(value)
    if not least <= found < 1 << 63:
        raise ValueError("the number is out of range")
    return found


@dataclass(frozen=True)
class Launched:
    """One kernel launch on the emulated device: its sizes, and sums over all blocks of what the kernel did.

    `grid` and `block` are the sizes in x, y and z, and `dynamic_shared_bytes` is the dynamic shared memory of a block.
    `global_*` and `shared_*` are the numbers of bytes that threads read or write in global and shared memory; no cache
    is modelled, and an atomic operation does both. `barriers` is how often blocks passed a barrier. `warp_operations`
    is the number of operations between the threads of a warp, such as shuffles.
    """

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
    def parse(message: Mapping[str, Any]) -> Launched:
        """Returns the kernel launch that `message` describes.

        `message` is a mapping from a worker. Its keys should be the names of this class's fields, but the candidate may
        have changed it. Raises KeyError if a field is missing, and TypeError or ValueError if a value is malformed.
        """
        sizes = {name: tuple(number(n, least=1) for n in message[name]) for name in ("grid", "block")}
        if any(len(size) != 3 for size in sizes.values()):
            raise ValueError("a size must have three numbers")
        names = (name for name in Launched.__dataclass_fields__ if name not in (*sizes, "kernel"))
        kernel = printable(str(message["kernel"])).replace("\n", " ")[:_LONGEST_NAME]
        return Launched(kernel=kernel, **sizes, **{name: number(message[name]) for name in names})  # type: ignore[arg-type]

    @property
    def configuration(self) -> tuple[Any, ...]:
        """Returns the kernel and its size: grid, block and dynamic shared memory. Equal launches have equal ones."""
        return (self.kernel, self.grid, self.block, self.dynamic_shared_bytes)

    @property
    def blocks(self) -> int:
        """Returns the number of blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        """Returns the number of threads in a block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Resources:
    """The resources that ptxas, the assembler of nvcc, reports for one kernel.

    `shared_bytes` is the static shared memory of a block. `registers`, and the bytes of the stack and of spilled
    registers, are those of one thread.
    """

    kernel: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True)
class Assembled:
    """nvcc's report about one CUDA source: the resources of each of its kernels.

    If there is no report, for example because nvcc is not installed, `kernels` is empty and `missing` gives the reason.
    """

    kernels: tuple[Resources, ...] = ()
    missing: str = ""

    @staticmethod
    def parse(message: Mapping[str, Any]) -> Assembled:
        """Returns the report in `message`, a mapping in the form that `device.profiled.assembled` returns.

        Under the key `ptxas`, `message` has the text that nvcc printed. The report has the resources of the kernels in
        this text. If the key `ptxas` is absent, the report has no kernels, and its `missing` is the text under the key
        `missing` (empty if this key is absent too).
        """
        if "ptxas" not in message:
            return Assembled(missing=str(message.get("missing", "")))
        return Assembled(tuple(ptxas(str(message["ptxas"]))))


def ptxas(log: str) -> list[Resources]:
    """Returns the resources of each kernel in `log`, the text that `nvcc -Xptxas -v` printed."""
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
    """How many blocks of a kernel one multiprocessor of a GPU can run at the same time.

    `blocks` is the number of blocks. `limit` names the resource that allows no further block, such as "registers".
    `share` is the number of warps in these blocks divided by the most warps that a multiprocessor can run, from 0 to 1.
    """

    blocks: int
    limit: str
    share: float


# Sources of these and of the limits above: CUDA C++ Programming Guide,
# "Technical Specifications per Compute Capability", and the allocation rules in the toolkit's cuda_occupancy.h.
_REGISTER_FILE, _PARTITIONS, _REGISTER_UNIT = 65536, 4, 256
_SHARED_UNIT, _RESERVED_BYTES = 128, 1024


def occupancy(registers: int, shared_bytes: int, threads_per_block: int) -> Occupancy:
    """Returns the theoretical occupancy of a kernel on an H200.

    `registers` is the number of registers per thread. `shared_bytes` is the static plus dynamic shared memory of a
    block.
    """
    warps = -(-threads_per_block // LANES)
    per_warp = -(-max(registers, 1) * LANES // _REGISTER_UNIT) * _REGISTER_UNIT
    by_registers = _REGISTER_FILE // _PARTITIONS // per_warp * _PARTITIONS // warps
    per_block = -(-(shared_bytes + _RESERVED_BYTES) // _SHARED_UNIT) * _SHARED_UNIT
    limits = {
        "warps": WARPS_SM // warps,
        "blocks": BLOCKS_SM,
        "registers": by_registers,
        "shared memory": _SHARED_SM_BYTES // per_block,
    }
    limit = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limit], limit, limits[limit] * warps / WARPS_SM)
