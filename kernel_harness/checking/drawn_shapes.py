"""Draws shapes at random, so that a kernel cannot be right only at the shapes that a problem file lists."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from kernel_harness.problem.problem import Shape
from kernel_harness.problem.sizing import TRIALS, product

COUNT = 2
"""The number of shapes that are drawn in a run."""


def draw(listed: Sequence[Shape], rng: random.Random, avoid: Sequence[Shape]) -> list[Shape]:
    """Draws COUNT different shapes that are not in `avoid`, or fewer if TRIALS trials find no more.

    The shapes are in the ranges of those in `listed`; there are none if `listed` is empty. Only the constants that each
    of these shapes has are drawn. Each constant is drawn between its least and its largest listed value, with equal
    probability for each order of magnitude. A valid shape may need a property that all listed values share, so the
    drawn values have it too: constants that are equal in every listed shape are equal, a constant is a power of two if
    all its listed values are, and otherwise a multiple of their greatest common divisor. To keep the cost of a check
    small, the product of the constants has a limit: the lower quartile of the products of the listed shapes, or the
    second smallest of these products if that is larger.
    """
    found: list[Shape] = []
    if listed:
        products = sorted(map(product, listed))
        largest = products[min(len(products) - 1, max(1, len(products) // 4))]
        known = [dict(shape) for shape in avoid]
        for _ in range(TRIALS):
            shape = _drawn(listed, rng)
            if product(shape) <= largest and shape not in [*known, *found]:
                found.append(shape)
    return found[:COUNT]


def _drawn(listed: Sequence[Shape], rng: random.Random) -> dict[str, int]:
    values: dict[tuple[int, ...], int] = {}
    shape = {}
    for name in (name for name in listed[0] if all(name in each for each in listed)):
        given = tuple(each[name] for each in listed)
        if given not in values:
            values[given] = _between(given, rng)
        shape[name] = values[given]
    return shape


def _between(given: Sequence[int], rng: random.Random) -> int:
    """Draws a number between the least and the largest number of `given`.

    The number is a power of two if all numbers of `given` are, and otherwise a multiple of their greatest common
    divisor. If `given` contains a tuple, a number below 1 or only equal numbers, returns a random element of `given`.
    """
    if not all(isinstance(number, int) for number in given):
        return rng.choice(given)
    low, high = min(given), max(given)
    if low <= 0 or low == high:
        return rng.choice(given)
    if all(number.bit_count() == 1 for number in given):
        return 1 << rng.randint(low.bit_length() - 1, high.bit_length() - 1)
    step = math.gcd(*given)
    number = math.exp(rng.uniform(math.log(low), math.log(high + 1)))
    return min(high, max(low, step * int(number / step)))
