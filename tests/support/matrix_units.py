"""What the kernels of tests/emulator/matrix_units.cu must compute, on an H100 or H200 and under emulation."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch

FUNCTIONS = ["mma", "wmma_product"]
HALF, BFLOAT16, TF32, E4M3, E5M2, HALF_SUM, HALF_8, TF32_4, E4M3_HALF_SUM = range(9)
DTYPES = {BFLOAT16: torch.bfloat16, TF32: torch.float32, TF32_4: torch.float32, E4M3: torch.float8_e4m3fn,
          E5M2: torch.float8_e5m2, E4M3_HALF_SUM: torch.float8_e4m3fn}  # fmt: skip


def depth(kind: int) -> int:
    """The number of products that an instruction adds to each sum."""
    return (16 if kind in (HALF_8, TF32_4) else 32) // DTYPES.get(kind, torch.half).itemsize


def cut_off(function: str, kind: int, large: float, small: float, right: float) -> Callable[[ModuleType], None]:
    """The sum of one product `large`^2 and of products of `small` and 1, or 2^-5 for FP8: no float sum is `right`."""

    def check(ops: ModuleType) -> None:
        dtype = DTYPES.get(kind, torch.half)
        a = torch.full((16, depth(kind)), small)
        b = torch.full((8 if function == "mma" else 16, depth(kind)), 2.0**-5 if dtype.itemsize == 1 else 1.0)
        a[:, 0] = b[:, 0] = large
        sums = torch.zeros(len(a), len(b), device="cuda")
        getattr(ops, function)(a.to(dtype).cuda(), b.to(dtype).cuda(), sums, kind, 1)
        assert (sums == right).all(), sums[0, 0].item()

    return check


# 0.75 is cut off to 0.5 beside 2^24, whose last bit is 2. FP8 numbers are added as two products of halves.
CHECKS: dict[str, Callable[[ModuleType], None]] = {
    "mma, half": cut_off("mma", HALF, 4096, 0.75, 2**24 + 6),
    "mma, bfloat16": cut_off("mma", BFLOAT16, 4096, 0.75, 2**24 + 6),
    "mma, TF32": cut_off("mma", TF32, 4096, 0.75, 2**24 + 2),
    "mma, half, depth 8": cut_off("mma", HALF_8, 4096, 0.75, 2**24 + 2),
    "mma, E4M3": cut_off("mma", E4M3, 256, 1.5 * 2**-4, 2**16 + 7 * 2**-7),
    "mma, E5M2": cut_off("mma", E5M2, 256, 1.5 * 2**-4, 2**16 + 7 * 2**-7),
    "wmma, half": cut_off("wmma_product", HALF, 4096, 0.75, 2**24 + 6),
    "wmma, bfloat16": cut_off("wmma_product", BFLOAT16, 4096, 0.75, 2**24 + 6),
    "wmma, TF32": cut_off("wmma_product", TF32, 4096, 0.75, 2**24 + 2),
}
"""Each check raises AssertionError if the functions of matrix_units.cu, the parameter, compute something else."""
