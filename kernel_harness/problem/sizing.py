"""Chooses values for the size constants of a problem whose file has no CPU_SHAPE or no CHECK_SHAPES.

`fitted` makes a problem small enough for a CPU to check in seconds. `stretched` sets one constant of such a problem
back to its value in the file. `near` draws values a little below the problem's own, `around` some to time at.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from kernel_harness.problem.known import known
from kernel_harness.problem.meta import MOST_BYTES, MOST_FLOPS, Cost, cost

if TYPE_CHECKING:
    from kernel_harness.problem.problem import Problem, Shape

# A constant below this value is rarely a size: it is the extent of a filter, a number of groups or of a dimension. A
# constant that is named after a batch is one down to _LEAST_BATCH.
_LEAST, _LEAST_NEAR, _LEAST_BATCH, _LEAST_ELEMENT = 16, 8, 4, 64
# BatchNorm, GroupNorm and LayerNorm divide by the deviation of this many numbers or more, if they do at the file's own
# size. The deviation of a few numbers is noise: after a hundred layers over 5 numbers each, float32 and float64 had
# nothing in common, and the usual formula E[x^2] - E[x]^2 over 2 numbers in place of 32 was off by 4e-4.
_LEAST_SAMPLES = 32
# Limits of `stretched`: the number of shapes, the least ratio of a constant in a shape to the same constant in the
# smaller problem that is worth a shape, and the cost of a shape. A long dimension alone has many bytes, and little work
# for each: with a limit of 2 * MOST_BYTES, 18 of KernelBench's 100 simple operators were not tried at a file's value.
# The first shape may keep so many bytes that an elementwise operator has over 2^20 elements: a grid of 1024 blocks of
# 1024 threads does not reach them, and the loop over the rest is where kernels fail.
_MOST_STRETCHED, _LEAST_STRETCH = 3, 4
_MOST_STRETCHED_FLOPS, _MOST_STRETCHED_BYTES = 2 * MOST_FLOPS, 9 * MOST_BYTES
_LARGEST_BYTES = 4 * MOST_BYTES
# A drawn shape to time at costs at most _MOST_AROUND times as much as the problem's own. Its sizes are multiples of a
# power of two that is at most _COARSEST and at most _FINE of the size: those of the problem's own size have it, too.
_MOST_AROUND, _COARSEST, _FINE = 2, 16, 8
TRIALS = 200
"""So many shapes are drawn at most where shapes are wanted that meet conditions."""
# The limits of `largest`, whose shapes few candidates need.
_CAPPED_BYTES = (2**28, 2**30)
_MOST_STRETCHED_OPERATORS, _MOST_STRETCHED_WEIGHTS = 2**8, 2**26
# A constant is a size if half of it saves at least this share of the work.
_LEAST_SAVED = 0.02

Numbers = Callable[[tuple[str, ...], "Shape"], list[int]]
"""Returns smaller numbers to try for equal constants of a shape, which are named."""


def _smaller(names: tuple[str, ...], shape: Shape) -> list[int]:
    """Returns smaller numbers to try for the equal constants `names`: half of their value first, then others.

    No constant of `shape` has any of these numbers.
    """
    value, taken = shape[names[0]], set(shape.values())
    half, quarter = value // 2, value // 4
    numbers = (half, *([quarter] if quarter >= _LEAST_NEAR else []), half + 2, half + 4, half + 1, value * 3 // 4)
    return [number for number in dict.fromkeys(numbers) if number < value and number not in taken]


def fitted(problem: Problem) -> Shape:
    """Returns smaller values of size constants, at which a CPU can check the problem. The others keep their values.

    Returns an empty dict if the problem is small enough, or cannot run on `meta`. Halves the largest constants, again
    and again, until the cost of a call is within the limits or no constant can be made smaller. If the model does not
    accept the half of a constant, numbers near it are tried. Constants of one kind (`_kind`) with the same value stay
    equal, because a kernel may rely on a square. Constants with different values stay different: else a kernel that
    mixes up two dimensions would be right.
    """
    shape = known(problem, "fitted", lambda: _reduced(problem)[0])
    return {name: value for name, value in shape.items() if value != problem.shape[name]}


def aligned(problem: Problem) -> Shape | None:
    """Returns sizes for a candidate that refuses those that `fitted` has chosen. `problem` has the fitted sizes.

    They are the sizes in the file, divided by powers of two, so that they are multiples of tiles and of vectors as
    these are. Sizes that differ in the file stay different, but others may become equal. Returns None if `fitted` has
    not chosen the sizes of `problem`, and an empty dict if there are no others that a CPU can check.
    """
    if problem.cpu_shape or not _is_reduced(problem):
        return None
    file = problem.in_file
    shape = known(file, "aligned", lambda: _aligned(file))
    return {} if shape == dict(problem.shape) else shape


def in_file(problem: Problem) -> Problem | None:
    """Returns the problem at the sizes in its file, if `problem` has other sizes that were chosen for a CPU, else None.

    Also returns None if the model is too large to be built there (`_is_large`), or cannot run on torch's device `meta`.
    """
    if not _is_reduced(problem):
        return None
    file = problem.in_file
    return None if known(file, "large", lambda: _is_large(cost(file))) else file


def _is_reduced(problem: Problem) -> bool:
    """Returns whether `problem` has the sizes that were chosen for a CPU, by its file or by `fitted`."""
    file = problem.in_file
    return problem.emulated and file.shape != problem.shape and file.on(emulated=True).shape == problem.shape


def largest(problem: Problem) -> list[Shape]:
    """Returns the sizes in the file, reduced until a call has at most so many bytes as each number of _CAPPED_BYTES.

    With them, an elementwise operator has over 65,535 blocks of 256 elements, and of 1024. `problem` has smaller sizes.
    Leaves out sizes with which a call costs too much for other reasons.
    """

    def found(most_bytes: int) -> Shape | None:
        shape, work = _reduced(problem.in_file, most_bytes=most_bytes)
        return shape if work is not None and work.share(most_bytes) <= 1 else None

    shapes: list[Shape] = known(problem, "largest", lambda: [s for s in map(found, _CAPPED_BYTES) if s])
    return shapes


def _aligned(file: Problem) -> dict[str, int]:
    shape, work = _reduced(file, numbers=partial(_halves, dict(file.shape)))
    is_whole = all(file.shape[name] % value == 0 for name, value in shape.items() if value)
    return shape if is_whole and work is not None and work.share() <= 1 else {}


def _halves(own: Shape, names: tuple[str, ...], shape: Shape) -> list[int]:
    """Returns smaller numbers to try for the equal constants `names`, none of which a size has that differs in `own`.

    They are an eighth of the present value, a quarter or a half, as far as it can be divided. The half comes first.
    """
    value = shape[names[0]]
    taken = {each for name, each in shape.items() if own[name] != own[names[0]]}
    parts = [value // part for part in (2, 4, 8) if value % part == 0]
    return [part for part in parts if part >= _LEAST_NEAR and part not in taken]


def _reduced(
    problem: Problem, fixed: Collection[str] = (), numbers: Numbers = _smaller, most_bytes: int = MOST_BYTES
) -> tuple[dict[str, int], Cost | None]:
    """Returns the shape reduced as by `fitted`, except the constants named `fixed`, and its cost (None: see `cost`).

    `numbers` returns the smaller numbers to try for equal constants of a shape. `most_bytes` limits a call's bytes.
    """
    now = cost(problem)
    kept: set[tuple[str, ...]] = set()  # constants that the model does not accept smaller
    shape = dict(problem.shape)
    while now is not None and now.share(most_bytes) > 1:
        steps = (
            step for step in _steps(shape, numbers) if tuple(step[0]) not in kept and step[0].keys().isdisjoint(fixed)
        )
        step = next(steps, None)
        if step is None:
            break
        for change in step:
            then = cost(problem.at({**shape, **change}))
            if then is not None and not _has_enough_norm_samples(now, then):
                change = {**change, **_fewer_groups(shape, change)}
                then = cost(problem.at({**shape, **change}))
            if then is not None and _saves(now, then) and _has_enough_norm_samples(now, then):
                shape, now = {**shape, **change}, then
                break
        else:
            kept.add(tuple(step[0]))
    return shape, now


def stretched(problem: Problem) -> list[Shape]:
    """Returns shapes that each set one constant, which is smaller in `problem` than in the file, to a larger value.

    The checks at these shapes find kernels that are right for small sizes only. Such a kernel may use one thread for
    each column, although a block has at most 1024 threads. Or it may use one block for each image, although some
    dimensions of a grid have at most 65535 blocks.
    The value is that in the file, or its half, its quarter and so on, if a call costs too much at the larger ones.
    Equal constants that change together (`_groups`) count as one. The other constants begin at their values in
    `problem`, and become smaller until the cost of a call is within the limits of `fitted`, in the first shape with
    _LARGEST_BYTES. The constants with the largest ratio of the file's value to the value in `problem` come first. At
    most _MOST_STRETCHED shapes are returned, and none for a ratio below _LEAST_STRETCH. Returns an empty list for a
    large network, whose model would have to run on the device `meta` too often, and for a model that cannot run there.
    """
    return known(problem, "stretched", lambda: _stretched(problem))


def _stretched(problem: Problem) -> list[Shape]:
    own, usual = problem.in_file.shape, cost(problem)
    if usual is None or not _is_stretchable(usual):
        return []
    groups = {names: own[names[0]] / problem.shape[names[0]] for names in _groups(own)}
    smaller = sorted((names for names in groups if groups[names] >= _LEAST_STRETCH), key=lambda n: -groups[n])
    found: list[Shape] = []
    taken: set[str] = set()
    for names in smaller:
        if len(found) == _MOST_STRETCHED or not taken.isdisjoint(names):
            continue
        value, most_bytes = own[names[0]], MOST_BYTES if found else _LARGEST_BYTES
        while value >= _LEAST_STRETCH * problem.shape[names[0]]:
            larger = problem.at({**problem.shape, **dict.fromkeys(names, value)})
            shape, then = _reduced(larger, names, most_bytes=most_bytes)
            if then is None:  # the model does not accept these constants alone
                break
            if _is_stretchable(then) and _has_enough_norm_samples(usual, then):
                found.append(shape)
                taken.update(names)
                break
            value //= 2
    return found


def _is_large(work: Cost | None) -> bool:
    """Returns whether a model with this cost of a call takes long to build or to call; True for an unknown cost."""
    if work is None:
        return True
    return work.operators > _MOST_STRETCHED_OPERATORS or work.weight_bytes > _MOST_STRETCHED_WEIGHTS


def _is_stretchable(work: Cost) -> bool:
    return not _is_large(work) and work.flops <= _MOST_STRETCHED_FLOPS and work.bytes <= _MOST_STRETCHED_BYTES


def _steps(shape: Shape, numbers: Numbers) -> Iterator[list[dict[str, int]]]:
    """Yields steps to a smaller shape. A step is a list of changes to try; all of them set the same constants.

    A step changes one group of constants, or divides two groups by 2 or 4: these may have a fixed ratio, such as the
    number of weights of a LayerNorm over the rows of an image to the width of the image.
    """
    groups = list(_groups(shape))
    for names in groups:
        if found := numbers(names, shape):
            yield [dict.fromkeys(names, number) for number in found]
    for one, other in combinations(groups, 2):
        changes = [{name: shape[name] // part for name in (*one, *other)} for part in (2, 4)]
        if different := [change for change in changes if _as_different(shape, change)]:
            yield different


def _fewer_groups(shape: Shape, change: Shape) -> dict[str, int]:
    """Returns smaller numbers of groups, in the ratio of `change`, so that each group of channels keeps its size.

    A number of groups is a constant with "group" in its name that is not in `change`. The first constant in `change`
    gives the ratio. Returns an empty dict if no number of groups can be divided and stay above 1. Also returns an empty
    dict if a smaller number would equal a constant that had another value.
    """
    changed = next(iter(change))
    part = shape[changed] // change[changed]
    groups = {name: value for name, value in shape.items() if "group" in name.lower() and name not in change}
    fewer = {name: value // part for name, value in groups.items() if value >= 2 * part and value % part == 0}
    after = {**shape, **change, **fewer}
    return fewer if len(set(after.values())) == len(set({**shape, **change}.values())) else {}


def _as_different(shape: Shape, change: Shape) -> bool:
    """Returns whether a change keeps different constants different, and no changed value is below _LEAST_BATCH // 2."""
    after = {**shape, **change}
    return min(change.values()) >= _LEAST_BATCH // 2 and len(set(after.values())) == len(set(shape.values()))


def _groups(shape: Shape) -> Iterator[tuple[str, ...]]:
    """Yields the names of constants that change together, those with the largest value first.

    A batch as large as the number of channels is usually a coincidence. So for each value, the constants of each kind
    (`_kind`) are yielded first, and then all constants with this value together. Constants that are probably not sizes
    (`_is_size`) are left out.
    """
    for value in sorted(set(shape.values()), reverse=True):
        names = [name for name, own in shape.items() if own == value and _is_size(name, value)]
        kinds = dict.fromkeys(map(_kind, names))
        yield from (tuple(name for name in names if _kind(name) == kind) for kind in kinds)
        if len(kinds) > 1:
            yield tuple(names)


def _kind(name: str) -> str:
    """Returns "batch" or "channels" if the constant's name says so; for any other constant, an empty text."""
    kinds = {"batch": "batch", "channel": "channels", "feature": "channels"}
    return next((kind for part, kind in kinds.items() if part in name.lower()), "")


def near(problem: Problem, rng: random.Random) -> Shape:
    """Returns a shape with random sizes below the problem's own; empty if the model accepts no such sizes.

    A size is drawn between three quarters of the problem's own size and that size. If the model has large weights, it
    is half as large, because they are drawn anew for each shape. It is odd where the model accepts that. If it accepts
    none of those drawn, the half and three quarters are tried. Constants below _LEAST_NEAR, and constants that do not
    change the cost, keep their values. Constants with the same value stay equal, because a kernel may rely on a square.
    Constants with different values stay different. What a model accepts is tried with some numbers, once for a problem,
    and it may refuse the numbers that are drawn.
    """
    found = dict(problem.shape)
    for value, way in known(problem, "near", lambda: _accepted_near(problem)):
        found = _with_number(problem, found, value, _numbers_near(problem, value, rng)[way]) or found
    return {} if found == dict(problem.shape) else found


def around(problem: Problem, rng: random.Random, count: int, avoid: Sequence[Shape] = ()) -> list[Shape]:
    """Draws `count` different shapes to time at, fewer if TRIALS trials find no more.

    None of them is the problem's own or one of `avoid`.
    The sizes that `near` may change are drawn between the half and the double of the problem's own, with equal
    probability for each order of magnitude. The product of all sizes is at most that of the problem's own, and a call
    costs at most _MOST_AROUND times as much. A drawn size is a multiple of a power of two by which the problem's own
    can be divided, because kernels are rarely made for odd sizes. Constants with the same value stay equal, and those
    with different values different. Finds none if the model cannot run on `meta`.
    """
    found: list[Shape] = []
    values = [value for value, _ in known(problem, "near", lambda: _accepted_near(problem))] if count else []
    usual = cost(problem) if values else None
    if usual is None:
        return found
    known_shapes = [dict(shape) for shape in (problem.shape, *avoid)]
    for _ in range(TRIALS):
        shape = dict(problem.shape)
        for value in values:
            shape = _with_number(problem, shape, value, _number_around(value, rng)) or shape
        if shape in (*found, *known_shapes) or product(shape) > product(problem.shape):
            continue
        then = cost(problem.at(shape))
        if then is not None and then.flops <= _MOST_AROUND * usual.flops and then.bytes <= _MOST_AROUND * usual.bytes:
            found.append(shape)
        if len(found) == count:
            break
    return found


def _number_around(value: int, rng: random.Random) -> int:
    step = min(value & -value, _COARSEST, max(1, 1 << (value // _FINE).bit_length() - 1))
    return step * max(1, round(value * 2 ** rng.uniform(-1, 1) / step))


def product(shape: Shape) -> int:
    """Returns the product of the sizes of a shape. A 0, such as the number of a dimension, says nothing of the size."""
    return math.prod(abs(value) or 1 for value in shape.values() if isinstance(value, int))


def _accepted_near(problem: Problem) -> list[tuple[int, int]]:
    """Returns the values of the problem's sizes that may change, each with the index of its way in `_numbers_near`."""
    rng = random.Random(problem.source)
    usual, found, ways = cost(problem), dict(problem.shape), list[tuple[int, int]]()
    for value in sorted({v for v in problem.shape.values() if v >= _LEAST_NEAR}, reverse=True):
        for way, number in enumerate(_numbers_near(problem, value, rng)):
            changed = _with_number(problem, found, value, number)
            then = cost(problem.at(changed)) if changed else None
            if changed and usual is not None and then is not None and then != usual:
                found, usual = changed, then
                ways.append((value, way))
                break
    return ways


def _numbers_near(problem: Problem, value: int, rng: random.Random) -> tuple[int, ...]:
    below = value // 2 if problem.has_large_weights else value
    odd = rng.randrange(below * 3 // 4, below) | 1
    return (odd if odd < below else below - 1, odd - 2, value // 2, value * 3 // 4)


def _with_number(problem: Problem, shape: Shape, value: int, number: int) -> dict[str, int]:
    """Returns `shape` with `number` for each constant that is `value` in `problem`; empty if another one has it."""
    if number in shape.values():
        return {}
    return {name: number if problem.shape[name] == value else v for name, v in shape.items()}


def _is_size(name: str, value: int) -> bool:
    if "[" in name:  # a short element is rather a number of layers
        return value >= _LEAST_ELEMENT
    return value >= (_LEAST_BATCH if "batch" in name.lower() else _LEAST)


def _saves(before: Cost, after: Cost) -> bool:
    """Returns whether `after` saves enough operations, bytes or operators (_LEAST_SAVED); True if `before` was cut."""
    kept = 1 - _LEAST_SAVED
    pairs = ((before.flops, after.flops), (before.bytes, after.bytes), (before.operators, after.operators))
    return before.cut or any(least < kept * most for most, least in pairs)


def _has_enough_norm_samples(before: Cost, after: Cost) -> bool:
    """Returns whether `samples` of `after` is at least _LEAST_SAMPLES, or at least that of `before`, or None."""
    if after.samples is None:
        return True
    return after.samples >= min(_LEAST_SAMPLES, _LEAST_SAMPLES if before.samples is None else before.samples)
