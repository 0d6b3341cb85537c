"""Triton kernels for `test_triton.py`. Only a process with the emulated device imports this file."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.language.extra.cuda.libdevice import tanh
from triton.language.math import exp


@triton.jit
def bfloat16_arithmetic(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, mask=i < n), tl.load(y + i, mask=i < n)
    tl.store(out + i, tl.where(a > b, a * b, a + b) - 0.5 * tl.maximum(a, b), mask=i < n)


@triton.jit
def bfloat16_functions(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wide = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, tl.exp(wide).to(tl.bfloat16), mask=i < n)


@triton.jit
def row_sums(x, out, columns, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * columns + j, mask=j < columns, other=0.0), axis=0))


@triton.jit
def product(a, b, out, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION))


@triton.jit
def library_functions(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, libdevice.tanh(v) + cuda_libdevice.pow(libdevice.abs(v), 1.5) + libdevice.rint(v), mask=i < n)


@triton.jit
def functions_by_name(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tanh(tl.load(x + i)) + exp(tl.load(x + i)))


@triton.jit
def unknown_function(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, libdevice.j0(tl.load(x + i)))


@triton.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_stages=20), triton.Config({"BLOCK": 16}, num_stages=2)], key=["N"]
)
@triton.jit
def tuned_product(a, b, out, inner, N: tl.constexpr, BLOCK: tl.constexpr):
    i, k = tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((N, N), tl.float32)
    for start in range(0, inner, BLOCK):
        x, y = tl.load(a + i[:, None] * N + start + k[None, :]), tl.load(b + (start + k)[:, None] * N + i[None, :])
        total = tl.dot(x, y, total, input_precision="ieee")
    tl.store(out + i[:, None] * N + i[None, :], total)


@triton.jit
def fails_inside(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, i + missing)  # noqa: F821 - the mistake that is tested


@triton.jit
def counts(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, i)


def active_device() -> torch.device:
    return triton.runtime.driver.active.get_active_torch_device()
