"""What the kernels of tests/emulator/hopper.cu must compute, on a GPU and under emulation."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch

LOADED, COPIED, ADDED = 0, 1, 2  # what becomes of a box that was loaded
FUNCTIONS = ["product", "doubled", "column_sums", "box", "cluster_sums", "multicast", "cuda_barrier", "elected", "hang"]
HALF, HALF_TA, HALF_TB, NEGATIVE, BFLOAT16, TF32, E4M3, E5M2, INT8, REGISTERS, HALF_SUM, NO_WAIT = range(12)
_SWIZZLES = {"none": 16, "32 bytes": 32, "64 bytes": 64, "128 bytes": 128}
_DTYPES = {
    BFLOAT16: torch.bfloat16, TF32: torch.float32, E4M3: torch.float8_e4m3fn, E5M2: torch.float8_e5m2, INT8: torch.int8,
}  # fmt: skip


def product(kind: int, wide: int) -> Callable[[ModuleType], None]:
    def check(ops: ModuleType) -> None:
        dtype = _DTYPES.get(kind, torch.float16)
        torch.manual_seed(kind)
        k = 32 // dtype.itemsize
        # Numbers that the format holds exactly, and whose sums are exact.
        a, b = (torch.randint(-4, 5, (n, k)).float().to(dtype) for n in (64, 16))
        c = ops.product(a.cuda(), b.cuda(), kind, wide, 3)
        right = 3 * a.double() @ b.double().t()
        assert torch.equal(c.cpu().double(), -right if kind == NEGATIVE else right)

    return check


def cut_off(kind: int, sums: tuple[float, float]) -> Callable[[ModuleType], None]:
    """The sum of one product of 4096 and others of 1/4, and of these products and an infinite one."""

    def check(ops: ModuleType) -> None:
        dtype = _DTYPES.get(kind, torch.float16)
        a, b = (torch.full((n, 32 // dtype.itemsize), 0.5) for n in (64, 16))
        a[:, 0] = b[:, 0] = 64
        assert ops.product(a.to(dtype).cuda(), b.to(dtype).cuda(), kind, 16, 1)[5, 3].item() == sums[0]
        if dtype != torch.float8_e4m3fn:  # has no infinity
            a[5, 1] = torch.inf
            found = ops.product(a.to(dtype).cuda(), b.to(dtype).cuda(), kind, 16, 1).cpu()
            assert found[5].isposinf().all() and (found[:5] == sums[0]).all()
        assert ops.product(a.to(dtype).cuda(), b.to(dtype).cuda(), kind, 16, 2)[6, 3].item() == sums[1]

    return check


def doubled(ops: ModuleType) -> None:
    x = torch.randn(7 * 1024)
    assert torch.equal(ops.doubled(x.cuda()).cpu(), 2 * x)


def column_sums(ops: ModuleType) -> None:
    x = torch.randint(-9, 10, (40, 64)).float()
    assert torch.equal(ops.column_sums(x.cuda()).cpu(), x.sum(0))


def boxes(swizzle: int, columns: int) -> Callable[[ModuleType], None]:
    def check(ops: ModuleType) -> None:
        x = torch.arange(50 * 48).view(50, 48).float() + 1
        for row, column in ((0, 0), (16, 8), (40, 24), (49, 44), (80, 0)):
            y = torch.zeros(50, 48, device="cuda")
            found = ops.box(x.cuda(), y, row, column, swizzle, False, COPIED, columns, 1).cpu()
            padded = torch.nn.functional.pad(x, (8, 64, 8, 64))
            right = padded[row + 8 : row + 24, column + 8 : column + 8 + columns]
            # Within 8 rows of the swizzle's width, pieces of 16 bytes are exchanged by the row.
            at = 4 * torch.arange(16 * columns)
            at ^= (at >> 3) & (0, 16, 48, 112)[swizzle]
            assert torch.equal(found.flatten()[at // 4], right.flatten())
            inside = torch.zeros(50, 48)
            inside[max(row, 0) : row + 16, max(column, 0) : column + columns] = 1
            assert torch.equal(y.cpu(), x * inside)

    return check


def box_forms(ops: ModuleType) -> None:
    """Outside of a tensor is NaN if that is asked for. Boxes are added, and may have each second row."""
    x, y = torch.randn(20, 48), torch.ones(20, 48, device="cuda")
    found = ops.box(x.cuda(), y, 16, 32, 0, True, ADDED, 32, 1).cpu()
    assert torch.equal(found[:4, :16], x[16:, 32:]) and found[4:].isnan().all() and found[:, 16:].isnan().all()
    assert torch.equal(y.cpu()[16:, 32:], x[16:, 32:] + 1) and torch.equal(y.cpu()[:16], torch.ones(16, 48))
    found = ops.box(x.cuda(), y, 1, 0, 0, False, COPIED, 32, 2).cpu()
    assert torch.equal(found, x[1:17:2, :32])
    found = ops.box(x.cuda(), y, -3, -8, 0, False, LOADED, 32, 1).cpu()
    assert torch.equal(found[3:, 8:], x[:13, :24]) and not found[:3].any() and not found[:, :8].any()


def cluster_sums(ops: ModuleType) -> None:
    x = torch.randint(-50, 50, (12, 300), dtype=torch.int32)
    sums = ops.cluster_sums(x.flatten().cuda(), 12).cpu().view(2, 12)
    right = x.sum(1).view(3, 4).sum(1).repeat_interleave(4)
    assert torch.equal(sums[1], right) and torch.equal(sums[0], right + 1000000 * (torch.arange(12) % 4))


def multicast(cluster: int) -> Callable[[ModuleType], None]:
    def check(ops: ModuleType) -> None:
        x = torch.randn(5 * 256)
        y = torch.empty(8, 5 * 256, device="cuda")
        assert ops.multicast(x.cuda(), y, cluster, 8) == 0
        ranks = torch.arange(8) % cluster
        assert torch.equal(y.cpu(), x + ranks[:, None])

    return check


def cuda_barrier(ops: ModuleType) -> None:
    x = torch.arange(256, dtype=torch.int32)
    assert torch.equal(ops.cuda_barrier(x.cuda()).cpu(), 3 * x)


def elected(ops: ModuleType) -> None:
    assert ops.elected() == 8


def wrong_clusters(ops: ModuleType) -> None:
    x = torch.zeros(256, device="cuda")
    assert ops.multicast(x, torch.zeros(8, 256, device="cuda"), 3, 8) == 912


_KINDS = {
    "half": HALF, "transposed A": HALF_TA, "transposed B": HALF_TB, "negative A": NEGATIVE, "bfloat16": BFLOAT16,
    "tf32": TF32, "e4m3": E4M3, "e5m2": E5M2, "int8": INT8, "A in registers": REGISTERS, "sums in half": HALF_SUM,
}  # fmt: skip
CHECKS: dict[str, Callable[[ModuleType], None]] = {
    **{f"product {kind}, swizzle {swizzle}": product(number, wide)
       for kind, number in _KINDS.items() for swizzle, wide in _SWIZZLES.items()},
    "cut off, FP8": cut_off(E4M3, (4096, 8192)), "cut off, other FP8": cut_off(E5M2, (4096, 8192)),
    "cut off, half": cut_off(HALF, (4099.75, 8199.5)), "cut off, bfloat16": cut_off(BFLOAT16, (4099.75, 8199.5)),
    "cut off, TF32": cut_off(TF32, (4097.75, 8195.5)), "cut off, half sums": cut_off(HALF_SUM, (4100, 8200)),
    **{f"box, swizzle {swizzle}": boxes(swizzle, columns) for swizzle, columns in enumerate((32, 8, 16, 32))},
    **{f"multicast to {blocks} blocks": multicast(blocks) for blocks in (1, 2, 8)},
    "bulk copies": doubled, "bulk reduction": column_sums, "forms of boxes": box_forms, "cluster": cluster_sums,
    "cuda::barrier": cuda_barrier, "elected lanes": elected, "cluster that does not fit": wrong_clusters,
}  # fmt: skip
"""Each check raises AssertionError if the functions of hopper.cu, the parameter, compute something else."""
