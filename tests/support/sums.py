"""Sums of many float32 numbers to one, as honest kernels add them, and their errors.

python -m tests.support.sums [20 24 26 28]        print the table of docs/verdicts.md, for 2^20, 2^24, ... numbers
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

Numbers = NDArray[np.float32]
Sum = Callable[[Numbers], float]


def chain(x: Numbers) -> float:
    """Every number is added to one total."""
    return float(np.add.accumulate(x, dtype=np.float32)[-1])


def tree(x: Numbers) -> Numbers:
    """A balanced tree along the last axis, of a size that is a power of two."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def blocks(size: int) -> Sum:
    """A tree for each block of `size` numbers, whose sums are added to one total in any order."""
    return lambda x: chain(np.random.default_rng(0).permutation(tree(x.reshape(-1, size))))


def strided(threads: int) -> Sum:
    """A chain for each thread, then a tree."""

    def total(x: Numbers) -> float:
        rows = x.reshape(-1, threads)
        sums = rows[0].copy()
        for row in rows[1:]:
            sums += row
        return float(tree(sums))

    return total


def welford(x: Numbers) -> float:
    """A running mean for each of 4,096 threads, then a tree of the means."""
    rows = x.reshape(-1, 4096)
    mean = rows[0].copy()
    for count, row in enumerate(rows[1:], 2):
        mean += (row - mean) / np.float32(count)
    return float(tree(mean)) / 4096 * x.size


HONEST: dict[str, Sum] = {
    "blocks of 32, one total": blocks(32),
    "blocks of 256, one total": blocks(256),
    "1,024 chains, a tree": strided(1024),
    "65,536 chains, a tree": strided(1 << 16),
    "running means": welford,
}


def drawn(count: int) -> dict[str, Numbers]:
    """Numbers of three distributions, none of them negative."""
    rng = np.random.default_rng(count)
    pairs: Any = rng.random((2, count), dtype=np.float32)
    return {
        "0 to 1": pairs[0],
        "squares of differences": (pairs[0] - pairs[1]) ** 2,
        "exponentials": np.exp(rng.standard_normal(count, dtype=np.float32)),
    }


def error(add: Sum, x: Numbers) -> float:
    """The relative error of a sum."""
    exact = float(np.sum(x, dtype=np.float64))
    return abs(add(x) - exact) / exact


def table(exponents: Iterable[int]) -> str:
    """The largest errors over the three distributions, and that of the mean of a random half, as a Markdown table."""
    rows: dict[str, list[str]] = {name: [name] for name in (*HONEST, "half of the numbers (standard deviation)")}
    for exponent in exponents:
        inputs = drawn(1 << exponent).values()
        for name, add in HONEST.items():
            rows[name].append(f"{max(error(add, x) for x in inputs):.1e}")
        half = min(float(x.std(dtype=np.float64) / x.mean(dtype=np.float64)) / x.size**0.5 for x in inputs)
        rows["half of the numbers (standard deviation)"].append(f"{half:.1e}")
    return tabulate(rows.values(), ("sum", *(f"2^{e}" for e in exponents)), tablefmt="github", disable_numparse=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exponents", nargs="*", type=int, default=[18, 20, 24, 26])
    print(table(parser.parse_args().exponents))
