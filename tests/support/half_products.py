"""Products and attention in half types, as honest kernels and kernels of coarser formats compute them.

python -m tests.support.half_products        print the table of docs/verdicts.md
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from tabulate import tabulate
from torch import Tensor

from kernel_harness.checking.coarseness import Dither, find, measured
from kernel_harness.core.precision import Change, Precision

from .float32_sums import chain, tensor_core

# A kernel gets its inputs in a half type and returns the answer before the last rounding.
Kernel = Callable[..., Tensor]


def int8(x: Tensor, dim: int | None = None, clip: float = 1e9) -> Tensor:
    """Rounded to 127 steps on each side, with one scale for the tensor or along `dim`; what is clipped is exact."""
    wide = x.float()
    inside = wide.clamp(-clip * wide.std(), clip * wide.std())
    largest = inside.abs().amax() if dim is None else inside.abs().amax(dim, keepdim=True)
    return (inside / largest * 127).round() * largest / 127 + (wide - inside)


def groups(x: Tensor, dim: int) -> Tensor:
    """int8 with one scale for each 32 numbers along `dim`."""
    moved = x.movedim(dim, -1)
    return int8(moved.reshape(*moved.shape[:-1], -1, 32), -1).reshape(moved.shape).movedim(-1, dim)


def float8(x: Tensor) -> Tensor:
    """Rounded to float8_e4m3 with one scale."""
    scale = x.float().abs().amax() / 448
    return (x.float() / scale).to(torch.float8_e4m3fn).float() * scale


def bits(x: Tensor, count: int) -> Tensor:
    """Rounded to `count` significant bits."""
    mantissa, exponent = torch.frexp(x.float())
    return torch.ldexp((mantissa * 2**count).round() / 2**count, exponent)


def of_factors(change: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor] | None = None) -> Kernel:
    """A product of changed factors, summed in float32."""
    return lambda a, b: (other or change)(a.T).T @ change(b)


def split(a: Tensor, b: Tensor, parts: int, rounded: bool) -> Tensor:
    """A product split along the sum, with partial sums in float32 or in the inputs' type."""
    sums = [x.float() @ y.float() for x, y in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True)]
    return sum((each.to(a.dtype).float() if rounded else each for each in sums), torch.zeros(()))


def product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product."""
    return a @ b


HONEST: dict[str, Kernel] = {
    "one float32 chain": lambda a, b: chain(a.T.float(), b.float()),
    "tensor cores": lambda a, b: tensor_core(a.T.float(), b.float()),
    "16 partial sums in float32": lambda a, b: split(a, b, 16, rounded=False),
}
HALF_SUMS: dict[str, Kernel] = {"4 partial sums in the half type": lambda a, b: split(a, b, 4, rounded=True)}
COARSE: dict[str, Kernel] = {
    "int8, a scale per tensor": of_factors(int8),
    "int8, a scale per row and column": of_factors(lambda x: int8(x, 0)),
    "int8, a scale per 32 numbers": of_factors(lambda x: groups(x, 0)),
    "int8, large numbers apart": of_factors(lambda x: int8(x, 0, clip=3.1)),
    "int8 for one factor": of_factors(lambda x: int8(x, 0), Tensor.float),
    "int8 for one factor, a scale per 32": of_factors(lambda x: groups(x, 0), Tensor.float),
    "float8_e4m3": of_factors(float8),
    "7 bits": of_factors(lambda x: bits(x, 7)),
    "7 bits for one factor": of_factors(lambda x: bits(x, 7), Tensor.float),
}


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as one expression."""
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v


def flash(kind: torch.dtype = torch.float32, scaled: bool = False, change: Callable[[Tensor], Tensor] = Tensor.float):
    """Flash attention in blocks of 64 keys, with probabilities rounded to `kind`.

    If `scaled`, the queries are multiplied by the scale first and rounded. `change` is applied to queries and keys.
    """

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = q.shape[-1] ** -0.5
        q, k = change(q), change(k)
        if scaled:
            q, scale = (q * scale * 1.4427).to(v.dtype).float(), 1 / 1.4427
        scores = q @ k.transpose(-1, -2) * scale
        most, total, out = torch.full((*q.shape[:-1], 1), -1e30), torch.zeros(()), torch.zeros(())
        for part, values in zip(scores.split(64, -1), v.float().split(64, -2), strict=True):
            larger = torch.maximum(most, part.amax(-1, keepdim=True))
            p, fade = (part - larger).exp(), (most - larger).exp()
            total, out = total * fade + p.sum(-1, keepdim=True), out * fade + p.to(kind).float() @ values
            most = larger
        return out / total

    return kernel


HONEST_ATTENTION: dict[str, Kernel] = {
    "flash attention": flash(),
    "flash attention, P in the half type": lambda q, k, v: flash(q.dtype)(q, k, v),
    "the same, queries scaled first": lambda q, k, v: flash(q.dtype, scaled=True)(q, k, v),
}
COARSE_ATTENTION: dict[str, Kernel] = {
    "flash attention, int8 scores": lambda q, k, v: flash(q.dtype, change=lambda x: int8(x, -1))(q, k, v),
    "flash attention, P in float8": flash(torch.float8_e4m3fn),
}


@dataclass(frozen=True)
class Figures:
    """The relative error before the last rounding, this error as a multiple of the effect, and whether it is found."""

    error: float
    ratio: float
    found: bool


def figures(kernel: Kernel, exact: Kernel, dtype: torch.dtype, draw: Kernel, shapes: Iterable[tuple[int, ...]]):
    """The figures of one kernel, whose right answer `exact` computes in the precision of its inputs."""
    generator = torch.Generator().manual_seed(1)
    inputs = [draw(*shape, generator=generator).to(dtype) for shape in shapes]
    precision = Precision.of(dtype)

    def answer(change: Change) -> Tensor:
        return exact(*(change(each).double() for each in inputs))

    oracle, output = answer(lambda x: x), kernel(*inputs).to(dtype)
    effect = float((answer(Dither(precision, 1)) - oracle).norm())
    error, _ = measured(output, oracle)
    found = find(output, exact(*inputs), oracle, precision, answer, terms=max(inputs[0].shape))
    return Figures(error / float(oracle.norm()), error / effect, found is not None)


def of_product(kernel: Kernel, dtype: torch.dtype, draw: Kernel, k: int = 1024) -> Figures:
    """The figures of a kernel for 192 x 192 sums of `k` products."""
    return figures(kernel, product, dtype, draw, [(192, k), (k, 192)])


def of_attention(kernel: Kernel, dtype: torch.dtype, draw: Kernel) -> Figures:
    """The figures of a kernel for two heads of 256 queries with 64 numbers each."""
    return figures(kernel, attention, dtype, draw, [(2, 256, 64)] * 3)


def table() -> str:
    """The figures of all kernels as a Markdown table."""
    rows = []
    columns = list(itertools.product((torch.bfloat16, torch.float16), (torch.randn, torch.rand)))
    products, attentions = {**HONEST, **HALF_SUMS, **COARSE}, {**HONEST_ATTENTION, **COARSE_ATTENTION}
    for kernels, of in ((products, of_product), (attentions, of_attention)):
        for name, kernel in kernels.items():
            found = [of(kernel, dtype, draw) for dtype, draw in columns]
            rows.append([name, *(f"{f.ratio:.2f}{' *' if f.found else ''}" for f in found)])
    headers = ("kernel", "bfloat16, normal", "bfloat16, 0 to 1", "float16, normal", "float16, 0 to 1")
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    print(table())
