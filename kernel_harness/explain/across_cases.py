"""Mistakes that show in several cases together: a factor that follows a size, and sizes that are no multiple of a tile.

A single number, or a sum over a long dimension, shows little of its mistake in one case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from kernel_harness.checking.patterns import Pattern

_TILES = (256, 128, 64, 32, 16, 8, 4)
# Ratios of wrong to right numbers are equal up to this share.
_EQUAL = 1e-3
# A size that may be a factor by mistake, and how.
_POWERS: Mapping[str, Callable[[float], float]] = {
    "{}": lambda n: n,
    "1 / {}": lambda n: 1 / n,
    "the square root of {}": math.sqrt,
    "1 / the square root of {}": lambda n: 1 / math.sqrt(n),
}


@dataclass(frozen=True)
class Seen:
    """What the candidate returned in one case.

    `sizes` are the size constants of the case, `counts` the number of elements of each input. `ratio` is that of the
    wrong outputs to the right ones, if it is the same for all elements; otherwise None.
    """

    sizes: Mapping[str, object]
    counts: Sequence[int]
    passed: bool
    ratio: float | None = None


def ratio(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float | None:
    """Returns by which factor all elements of the outputs differ from the expected ones, or None if there is none."""
    if not all(o.is_floating_point() and o.shape == e.shape for o, e in zip(outputs, expected, strict=True)):
        return None
    got, want = (torch.cat([each.reshape(-1).double().cpu() for each in many]) for many in (outputs, expected))
    ratios = (got / want)[want != 0]
    centre = float(ratios.median()) if len(ratios) else math.nan
    return centre if math.isfinite(centre) and bool(((ratios - centre).abs() <= _EQUAL * abs(centre)).all()) else None


def factor(seen: Sequence[Seen]) -> Pattern | None:
    """Returns the Pattern of outputs that are off by a factor, the same one or that of a size, in two cases or more."""
    found = [each for each in seen if not each.passed]
    ratios = [each.ratio for each in found if each.ratio is not None and each.ratio != 0]
    if len(found) < 2 or len(ratios) < len(found) or all(abs(r - 1) < 10 * _EQUAL for r in ratios):
        return None
    sizes = _common_sizes(found)
    named = [
        form.format(name)
        for name, numbers in sizes.items()
        for form, power in _POWERS.items()
        if min(numbers) > 1 and all(_equal(r, power(n)) for r, n in zip(ratios, numbers, strict=True))
    ]
    if named:
        text = f"The output is {named[0]} times what it should be ({ratios[0]:.4g} in this case)."
        return Pattern(text, "look for a division that is left out or added, such as that of a mean")
    if all(_equal(r, ratios[0]) for r in ratios):
        text = f"The output is {ratios[0]:.4g} times what it should be, in each of {len(ratios)} cases."
        return Pattern(text, "look for a factor too many, a term that is added twice, or a loop that runs too often")
    return None


def _common_sizes(seen: Sequence[Seen]) -> dict[str, list[int]]:
    """Returns the values of each size in all of the cases: size constants, and numbers of elements of inputs."""
    constants = [
        {n: v for n, v in each.sizes.items() if isinstance(v, int)}
        | {f"the number of elements of input {i}": n for i, n in enumerate(each.counts, 1)}
        for each in seen
    ]
    return {name: [each[name] for each in constants] for name in constants[0] if all(name in c for c in constants)}


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_EQUAL)


def partial_tile(seen: Sequence[Seen]) -> Pattern | None:
    """Returns the Pattern of a candidate that is right only where a size is a multiple of a tile, or None.

    At least one case must have passed and one failed, and no sizes may have done both.
    """
    right, wrong = ([dict(each.sizes) for each in seen if each.passed is passed] for passed in (True, False))
    if not right or not wrong or any(sizes in right for sizes in wrong):
        return None
    tiles = {name: _tile([s[name] for s in right], [s[name] for s in wrong]) for name in right[0]}
    names = [name for name, tile in tiles.items() if tile]
    if not names:
        return None
    tile = min(t for t in tiles.values() if t)
    shown, are = " and ".join(names), "is a multiple" if len(names) == 1 else "are multiples"
    where = ", ".join(f"{name}={right[0][name]}" for name in names)
    where_not = ", ".join(f"{name}={wrong[0][name]}" for name in names)
    return Pattern(
        f"The output is right where {shown} {are} of {tile} ({where}), and wrong where not ({where_not}).",
        f"look at the last, partial tile along {shown}: round the number of tiles up, (size + tile - 1) / tile, and "
        "guard its loads and stores",
    )


def _tile(right: Sequence[object], wrong: Sequence[object]) -> int | None:
    """Returns the largest tile of which all sizes in `right` are multiples, and none in `wrong`; None if there is none.

    A tile that is as large as each size in `right` is not known from these.
    """
    if not all(isinstance(size, int) for size in (*right, *wrong)):
        return None
    return next(
        (t for t in _TILES if not any(n % t for n in right) and all(n % t for n in wrong)),  # type: ignore[operator]
        None,
    )
