"""Triton kernels for `test_triton_programs.py`. Only a process with the emulated device imports this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def adds(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2 + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax_of_several_rows(x, out, rows, columns, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        j = tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + j, mask=j < columns, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * columns + j, powers / tl.sum(powers, axis=0), mask=j < columns)


@triton.jit
def normalizes(x, weight, out, columns, BLOCK: tl.constexpr):
    x += tl.program_id(0) * columns
    out += tl.program_id(0) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        total += tl.load(x + j, mask=j < columns, other=0.0)
    mean = tl.sum(total, axis=0) / columns
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        value = tl.load(x + j, mask=j < columns, other=0.0) - mean
        tl.store(out + j, value * tl.load(weight + j, mask=j < columns), mask=j < columns)


@triton.jit
def product_in_groups(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = tl.program_id(0) // (GROUP * across)
    size = min(down - group * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * across)
    i = (group * GROUP + within % size) * BM + tl.arange(0, BM)
    j = (within // size) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = a + i[:, None] * K + k[None, :], b + k[:, None] * N + j[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        inside = k < K - step * BK
        x = tl.load(left, mask=(i[:, None] < M) & inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None] & (j[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        left += BK
        right += BK * N
    tl.store(c + i[:, None] * N + j[None, :], total.to(tl.float16), mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def causal_attention(q, k, v, out, rows, D: tl.constexpr, B: tl.constexpr):
    i, d, head = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D), tl.program_id(1) * rows * D
    query = tl.load(q + head + i[:, None] * D + d[None, :])
    most, weight = tl.full((B,), float("-inf"), tl.float32), tl.zeros((B,), tl.float32)
    total = tl.zeros((B, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * B, B):
        j = start + tl.arange(0, B)
        scores = tl.dot(query, tl.load(k + head + j[None, :] * D + d[:, None]))
        scores = tl.where(i[:, None] >= j[None, :], scores, float("-inf"))
        now = tl.maximum(most, tl.max(scores, 1))
        powers, shrunk = tl.math.exp2(scores - now[:, None]), tl.math.exp2(most - now)
        weight, most = weight * shrunk + tl.sum(powers, 1), now
        total = tl.dot(powers, tl.load(v + head + j[:, None] * D + d[None, :]), total * shrunk[:, None])
    tl.store(out + head + i[:, None] * D + d[None, :], total / weight[:, None])


@triton.jit
def drops(x, out, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.where(tl.rand(seed, i) > 0.5, tl.load(x + i, mask=i < n) * 2, 0.0), mask=i < n)


@triton.jit
def joined(mean, square, count, other_mean, other_square, other_count):
    both, apart = count + other_count, other_mean - mean
    share = tl.where(both == 0, 0.0, other_count / both)
    return mean + apart * share, square + other_square + apart * apart * count * share, both


@triton.jit
def variances(x, out, columns, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + j, mask=j < columns, other=0.0)
    mean, square, count = tl.reduce((value, tl.zeros_like(value), (j < columns).to(tl.float32)), 0, joined)
    tl.store(out + 2 * row, mean)
    tl.store(out + 2 * row + 1, square / count)


@triton.jit
def larger(left, right):
    return tl.maximum(left, right)


@triton.jit
def scans_and_branches(x, out, place, columns, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + j, mask=j < columns, other=0.0)
    most = tl.argmax(tl.where(j < columns, value, -1e9), 0)
    tl.store(place + row, most)
    tl.store(out + row * columns + j, tl.cumsum(value, 0), mask=j < columns)
    if most % 2 == 0:
        tl.store(out + row * columns + j, tl.associative_scan(value, 0, larger, reverse=True), mask=j < columns)


@triton.jit
def changes_in_place(x, n, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = p * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
    if p % 3 == 1:
        tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def changes_shapes(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    at = tl.program_id(0) * B * B + i[:, None] * B + i[None, :]
    value = tl.load(x + at)
    first, second = tl.split(tl.join(value, tl.trans(value) + value.T))
    sorted_rows = tl.sort(tl.reshape(tl.permute(tl.reshape(first, (B // 2, 2, B)), (1, 0, 2)), (B, B)), dim=1)
    turned = tl.gather(sorted_rows, (i[:, None] + i[None, :]) % B, 1)
    sums = tl.max(second) + tl.min(tl.reshape(second, (B * B,)), keep_dims=True) + value.sum(1, keep_dims=True)
    tl.store(out + at, turned + sums + tl.flip(sorted_rows) + tl.cat(i, i + 1, can_reorder=True).sum() * 0)


@triton.jit
def stores_at_one_place(x, out):
    tl.store(out, tl.load(x + tl.program_id(0)))


@triton.jit
def halves(x, out):
    value, times = tl.load(x + tl.program_id(0)), 0
    while value > 1:
        value, times = value / 2, times + 1
    tl.store(out + tl.program_id(0), times)


@triton.jit
def tiles(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source, target = (
        tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN]), tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    )  # fmt: skip
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(at, source.load(at) + 1)


@triton.jit
def counts_values(x, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def sums_behind_a_lock(x, out, lock, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + i, mask=i < n, other=0.0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + total)
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_program_sums(x, parts, done, out, n, BLOCK: tl.constexpr):
    p, i = tl.program_id(0), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + p, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))
    if tl.atomic_add(done, 1) == tl.num_programs(0) - 1:
        j = tl.arange(0, 64)
        tl.store(out, tl.sum(tl.load(parts + j, mask=j < tl.num_programs(0), other=0.0)))


def _launches() -> dict[str, Callable[[], tuple[torch.Tensor, ...]]]:
    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda")

    def zeros(*shape: int, **options: Any) -> torch.Tensor:
        return torch.zeros(*shape, device="cuda", **options)

    a, b, heads = drawn(100, 70), drawn(70, 90), [drawn(3, 64, 16) for _ in range(3)]
    x, rows, square, whole = drawn(3000), drawn(40, 50), drawn(10, 16, 16), torch.randint(0, 9, (3000,), device="cuda")
    n = x.numel()

    def run(kernel: Any, grid: tuple[int, ...], *arguments: Any, **keywords: Any) -> Callable[[], tuple[Any, ...]]:
        def launch() -> tuple[Any, ...]:
            mine = [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
            kernel[grid](*mine, **keywords)
            return tuple(each for each in mine if isinstance(each, torch.Tensor))

        return launch

    return {
        "adds": run(adds, (24,), x, x + 1, x, n, BLOCK=128),
        "adds bfloat16": run(adds, (24,), x.bfloat16(), x.bfloat16() * 3, x.bfloat16(), n, BLOCK=128),
        "softmax of several rows": run(softmax_of_several_rows, (17,), rows, rows, 40, 50, BLOCK=64),
        "normalizes": run(normalizes, (40,), rows, x, rows, 50, BLOCK=32),
        "product in groups": run(
            product_in_groups, (7 * 6,), a, b, zeros(100, 90, dtype=torch.float16), 100, 90, 70, BM=16, BN=16, BK=16,
            GROUP=4),
        "causal attention": run(causal_attention, (4, 3), *heads, zeros(3, 64, 16), 64, D=16, B=16),
        "drops": run(drops, (24,), x, x, n, 7, BLOCK=128),
        "variances": run(variances, (40,), rows, zeros(40, 2), 50, BLOCK=64),
        "scans and branches": run(
            scans_and_branches, (40,), rows, rows, zeros(40, dtype=torch.int32), 50, BLOCK=64),
        "changes in place": run(changes_in_place, (24,), x, n, BLOCK=128),
        "changes shapes": run(changes_shapes, (10,), square, square, B=16),
        "stores at one place": run(stores_at_one_place, (24,), x, zeros(1)),
        "halves": run(halves, (40,), x.abs() * 50, zeros(40, dtype=torch.int32)),
        "tiles": run(tiles, (3, 4), drawn(40, 64), zeros(40, 64), 40, 64, BM=16, BN=16),
        "counts values": run(counts_values, (24,), whole, zeros(9, dtype=torch.int32), n, BLOCK=128),
        "sums behind a lock": run(
            sums_behind_a_lock, (24,), x, zeros(1), zeros(1, dtype=torch.int32), n, BLOCK=128),
        "last program sums": run(
            last_program_sums, (24,), x, zeros(24), zeros(1, dtype=torch.int32), zeros(1), n, BLOCK=128),
    }  # fmt: skip


def launched(name: str) -> tuple[torch.Tensor, ...]:
    """Launches a kernel on copies of its inputs. Returns all its tensors after that."""
    torch.manual_seed(0)
    return _launches()[name]()
