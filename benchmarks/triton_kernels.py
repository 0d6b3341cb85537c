"""Triton kernels of six usual kinds, for `triton_interpreter.py`, which decides how this process runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_sum(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, 0.5 * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def row_sums(x, out, columns, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + j, mask=j < columns, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    row = tl.load(x + at, mask=inside, other=-float("inf"))
    powers = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + at, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def layer_norm(x, weight, bias, out, columns, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    at, inside = tl.program_id(0) * columns + j, j < columns
    row = tl.load(x + at, mask=inside, other=0.0)
    mean = tl.sum(row, axis=0) / columns
    centred = tl.where(inside, row - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    weights, biases = tl.load(weight + j, mask=inside), tl.load(bias + j, mask=inside)
    tl.store(out + at, centred * scale * weights + biases, mask=inside)


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * N + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def attention(q, k, v, out, rows, SCALE: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i, d, head = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.program_id(1) * rows * D
    query = tl.load(q + head + i[:, None] * D + d[None, :])
    most, weight = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        j = start + tl.arange(0, BN)
        scores = tl.dot(query, tl.load(k + head + j[None, :] * D + d[:, None])) * SCALE
        scores = tl.where(i[:, None] >= j[None, :], scores, float("-inf"))
        now = tl.maximum(most, tl.max(scores, 1))
        powers, shrunk = tl.exp(scores - now[:, None]), tl.exp(most - now)
        weight, most = weight * shrunk + tl.sum(powers, 1), now
        total = tl.dot(powers, tl.load(v + head + j[:, None] * D + d[None, :]), total * shrunk[:, None])
    tl.store(out + head + i[:, None] * D + d[None, :], total / weight[:, None])


def launches(device: str) -> dict[str, tuple[Callable[[], Any], torch.Tensor]]:
    """Returns, for each kernel, a function that launches it on tensors of `device`, and the tensor that it fills."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(device)

    n = 1 << 20
    x, y, rows, wide = drawn(n), drawn(n), drawn(512, 4096), drawn(1024, 1000)
    weight, bias, a, b = drawn(1000), drawn(1000), drawn(512, 512), drawn(512, 513)
    heads = [drawn(64, 256, 64) for _ in range(3)]
    sums, total, normed, softened = x.clone(), drawn(512), wide.clone(), wide.clone()
    c, attended = drawn(512, 513), heads[0].clone()
    return {
        "elementwise": (lambda: scaled_sum[(n // 1024,)](x, y, sums, n, BLOCK=1024), sums),
        "row sums": (lambda: row_sums[(512,)](rows, total, 4096, BLOCK=1024), total),
        "softmax": (lambda: softmax[(1024,)](wide, softened, 1000, BLOCK=1024), softened),
        "layer norm": (lambda: layer_norm[(1024,)](wide, weight, bias, normed, 1000, BLOCK=1024), normed),
        "matrix product": (lambda: product[(8, 9)](a, b, c, 512, 513, 512, BM=64, BN=64, BK=32), c),
        "causal attention": (
            lambda: attention[(4, 64)](*heads, attended, 256, SCALE=0.125, D=64, BM=64, BN=32), attended),
    }  # fmt: skip
