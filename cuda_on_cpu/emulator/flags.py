"""Flags and include paths for the compiler of the emulator's runtime library and of candidates."""

from __future__ import annotations

import platform
from enum import Enum, auto
from pathlib import Path

from cuda_on_cpu.compile import bindings

HERE = Path(__file__).parent
INCLUDE, RUNTIME, COUNTING = HERE / "include", HERE / "runtime", HERE / "counting" / "count_accesses.cpp"
EMULATOR_HEADERS, CUDA_HEADERS = INCLUDE / "emulator", INCLUDE / "cuda"
PRELUDE = EMULATOR_HEADERS / "prelude.h"


class Instrumentation(Enum):
    """Whether a candidate's code reports its memory accesses: address, size and kind of each.

    NONE: it does not. COUNTED: it reports them, and its basic blocks, for a profile. SANITIZED: to the sanitizer.
    """

    NONE = auto()
    COUNTED = auto()
    SANITIZED = auto()


# -O2, because at the small shapes of the checks a higher level costs more compile time than it saves run time.
# -fpeel-loops unrolls loops with a small constant number of steps, as nvcc does. A tiled product then keeps its sum in
# a register.
_OPTIMISED = ("-O2", "-fpeel-loops")
# The scheduler decides by return addresses and call chains which lanes run together. So the compiler must not merge two
# branches with the same end, nor replace a call at the end of a function by a jump.
_SEPARATE_CALLS = ("-fno-crossjumping", "-fno-tree-tail-merge", "-fno-code-hoisting", "-fno-optimize-sibling-calls")
# Thread-local variables are reached through the C library's table of modules, in which the runtime moves a kernel's
# shared memory (runtime/static_memory.cpp), and not at a fixed distance from the thread's own memory.
_MOVABLE_STATICS = {"x86_64": ("-mtls-dialect=gnu",), "aarch64": ("-mtls-dialect=trad",)}.get(platform.machine(), ())
PLAIN = (
    *_OPTIMISED, "-march=native", "-pthread", "-w", "-fmax-errors=20", "-fno-semantic-interposition", *_SEPARATE_CALLS,
    *_MOVABLE_STATICS,
    "-ffp-contract=fast",  # contracts a * b + c to one operation, which is nvcc's default
    "-fstack-reuse=none",  # nvcc does not optimise host code: the numbers of a dangling IntArrayRef are still there
    "-fno-strict-aliasing",  # nvcc allows a kernel to read floats as integers, and through vector pointers
    "-fno-gnu-unique",  # else templates of one name in two libraries would share one variable
)  # fmt: skip
# Code that reports its accesses calls a function before each access. Its line table (-g1) gives the line of the access.
# DWARF 4, because old and new versions of binutils read it correctly. -O1, because more optimisation would move an
# access to another line or remove it.
REPORTING = (
    *(flag for flag in PLAIN if flag not in _OPTIMISED), "-O1", "-g1", "-gdwarf-4", "-fsanitize=thread",
    "--param", "tsan-distinguish-volatile=1", "--param", "tsan-instrument-func-entry-exit=0",
)  # fmt: skip
# In counted code, an access to a vector such as float4 stays one access, as on a GPU. Each basic block begins with a
# call of a function that counts it. Basic blocks stay in the order of the source, from which the profiler tells where
# the threads of a warp wait for each other, and calls and returns are reported for the same reason. nvcc optimises
# more than -O1 does: without -fexpensive-optimizations, loads remain that it has not (2% in one of 58 kernels).
COUNTED = (
    "-fno-tree-sra", "-fsanitize-coverage=trace-pc", "-fno-reorder-blocks", "-fexpensive-optimizations",
    "--param", "tsan-instrument-func-entry-exit=1", "-include", str(EMULATOR_HEADERS / "loops.h"),
)  # fmt: skip
# The function that counted code calls before each access is compiled into the candidate's library, and must not call
# itself.
COUNTS = ("-fno-sanitize=thread", "-fvisibility=hidden")
# Code that casts pointers calls the runtime at an access through a misaligned pointer. The flag makes kernels slower,
# so code without such casts is compiled without it.
CHECKS_ALIGNMENT = ("-fsanitize=alignment",)
# Sanitized code calls the runtime where it allocates and frees memory, as a kernel may (runtime/sanitize_heap.cpp): by
# malloc and free, or by operator new and delete, also those of arrays and with a size.
_HEAP = ("malloc", "free", "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm")
WRAPS_HEAP = tuple(f"-Wl,--wrap={name}" for name in _HEAP)
# The macro `assert` calls this function instead of that of the C library: in a kernel, it gives an error of CUDA.
_ASSERTIONS = "-D__assert_fail=emulator_assert_fail"
# torch passes these definitions to nvcc (COMMON_NVCC_FLAGS in torch.utils.cpp_extension). A source that uses the
# operators of half undefines them with flags of its own.
_TORCH_DEFINITIONS = (
    "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
)  # fmt: skip
FULL_HEADERS = ("-I", str(CUDA_HEADERS), "-I", str(INCLUDE), "-I", str(bindings.INCLUDE))
LIGHT_HEADERS = ("-I", str(INCLUDE / "light"), *FULL_HEADERS)


def for_candidates(*, reporting: bool) -> tuple[str, ...]:
    """Returns the g++ flags for a candidate's code and for the precompiled header that it includes.

    If `reporting`, the flags make the code call a function before each memory access.
    """
    return (*(REPORTING if reporting else PLAIN), *_TORCH_DEFINITIONS, _ASSERTIONS)
