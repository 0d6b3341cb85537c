"""Sums of products as honest float32 kernels and kernels of reduced precision compute them, and the errors they show.

    python -m tests.support.float32_sums        print the table of docs/verdicts.md

Every float32 operation is simulated on the CPU: a product of two float32 numbers is exact in float64, so one rounding
of a float64 result gives what a fused multiply-add gives.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from tabulate import tabulate

from kernel_harness.checking.elementwise import measure
from kernel_harness.checking.input_rounding import ROUNDINGS, Trace, find, resemblance
from kernel_harness.core.precision import Precision, Rounding

# Kernels get A of shape (K, M) and B of shape (K, N), both float32, and return the (M, N) sums over K.
Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

TF32, BFLOAT16 = Rounding(Precision.TF32), Rounding(Precision.BFLOAT16)


def steps(a: torch.Tensor, b: torch.Tensor, size: int = 1) -> Iterator[torch.Tensor]:
    """The exact sums of `size` products each, in float64."""
    for k in range(0, len(a), size):
        yield a[k : k + size].double().T @ b[k : k + size].double()


def chain(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One sequential sum; each product is rounded before it is added."""
    total = torch.zeros(a.shape[1], b.shape[1])
    for step in steps(a, b):
        total += step.float()
    return total


def fma_chain(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One sequential sum of fused multiply-adds."""
    total = torch.zeros(a.shape[1], b.shape[1])
    for step in steps(a, b):
        total = (total.double() + step).float()
    return total


def in_blocks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A chain of fused multiply-adds for each 256 terms, and a sequential sum of the chains."""
    total = torch.zeros(a.shape[1], b.shape[1])
    for k in range(0, len(a), 256):
        total += fma_chain(a[k : k + 256], b[k : k + 256])
    return total


def pairwise(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A balanced tree of sums of rounded products."""
    if len(a) == 1:
        return next(steps(a, b)).float()
    half = len(a) // 2
    return pairwise(a[:half], b[:half]) + pairwise(a[half:], b[half:])


def tensor_core(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The accumulator of a tensor core: eight products at a time, each sum cut to 25 bits toward zero."""
    total = torch.zeros(a.shape[1], b.shape[1], dtype=torch.float64)
    for step in steps(a, b, 8):
        total = ((total + step).view(torch.int64) & -(1 << 28)).view(torch.float64)
    return total.float()


def of_rounded(rounding: Callable[[torch.Tensor], torch.Tensor], kernel: Kernel) -> Kernel:
    """The kernel on rounded inputs."""
    return lambda a, b: kernel(rounding(a), rounding(b))


def split(rounding: Rounding, kernel: Kernel, terms: int) -> Kernel:
    """The kernel on inputs that are split into sums of rounded numbers; products of two remainders are left out."""

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        high_a, high_b = rounding(a), rounding(b)
        low_a, low_b = rounding(a - high_a), rounding(b - high_b)
        pairs = ((high_a, high_b), (low_a, high_b), (high_a, low_b))[:terms]
        return torch.stack([kernel(x, y) for x, y in reversed(pairs)]).sum(0)

    return call


HONEST: dict[str, Kernel] = {
    "one chain": chain,
    "one chain of fused multiply-adds": fma_chain,
    "chains of 256 terms": in_blocks,
    "pairwise": pairwise,
    "3xTF32 on tensor cores": split(TF32, tensor_core, 3),
    "3xBF16 on tensor cores": split(BFLOAT16, tensor_core, 3),
}
REDUCED: dict[str, Kernel] = {
    "TF32, rounded, one chain": of_rounded(TF32, fma_chain),
    "TF32, rounded, chains of 256 terms": of_rounded(TF32, in_blocks),
    "TF32, rounded, tensor cores": of_rounded(TF32, tensor_core),
    "TF32, truncated, tensor cores": of_rounded(Rounding(Precision.TF32, True), tensor_core),
    "TF32 for one factor, tensor cores": split(TF32, tensor_core, 2),
    "bfloat16, rounded, tensor cores": of_rounded(BFLOAT16, tensor_core),
    "float16, rounded, one chain": of_rounded(lambda x: x.half().float(), fma_chain),
}


@dataclass(frozen=True)
class Figures:
    """The errors of one kernel and of the reference, the largest correlation, and the rounding that is recognised."""

    error: float
    reference: float
    correlation: float
    trace: Trace | None


def figures(
    kernel: Callable[..., torch.Tensor], exact: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor]
) -> Figures:
    """The figures of a kernel, whose right answer `exact` computes in the precision of its inputs."""

    def answer(rounding: Rounding) -> torch.Tensor:
        return exact(*(rounding(each).double() for each in inputs))

    oracle, output = exact(*(each.double() for each in inputs)), kernel(*inputs)
    errors = measure(output, exact(*inputs), oracle)
    largest = max(resemblance(output, oracle, answer(rounding)).correlation for rounding in ROUNDINGS)
    found = find(output, oracle, errors, answer)
    return Figures(errors.relative or 0.0, errors.reference_relative or 0.0, largest, found)


def of_sums(kernel: Kernel, k: int, draw: Callable[..., torch.Tensor] = torch.rand) -> Figures:
    """The figures of a kernel for 64 x 64 sums of `k` products."""
    generator = torch.Generator().manual_seed(k)
    return figures(kernel, lambda a, b: a.T @ b, [draw(k, 64, generator=generator) for _ in range(2)])


def table(lengths: Iterable[int]) -> str:
    """The figures of all kernels on positive inputs as a Markdown table."""
    rows = []
    for k in lengths:
        for name, kernel in {**HONEST, **REDUCED}.items():
            f = of_sums(kernel, k)
            recognised = str(f.trace.rounding.precision) if f.trace else "no"
            rows.append((k, name, f"{f.error:.1e}", f"{f.reference:.1e}", f"{f.correlation:.2f}", recognised))
    headers = ("K", "kernel", "error", "error of torch", "correlation", "recognised")
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", nargs="*", type=int, default=[256, 8192, 65536], help="values of K")
    torch.set_num_threads(1)
    print(table(parser.parse_args().lengths))
