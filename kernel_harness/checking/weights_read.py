"""Derives the bytes of weights that every correct kernel reads, however it has prepared them in its constructor."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from kernel_harness.checking import places
from kernel_harness.checking.places import Index
from kernel_harness.checking.probe import Lane, Probe, Sums

# A dimension with fewer indices is not examined; of others, at most so many rows are changed in one run.
_LEAST_ROWS, _MOST_ROWS = 16, 512
# Runs end after so many seconds. Weights that were not examined do not count.
_LONGEST_S = 2.0
# The change of a number, relative to the root mean square of the tensor. It is small, so that a model that rounds its
# weights, or takes their signs, shows none.
_CHANGE = 1e-3
# The effects of two numbers differ if the angle between them has at least this squared sine, in half of the rows.
_LEAST_SINE, _APART = 0.01, 0.5
# Places of a tensor that are looked at, and the share of equal numbers that shows a repetition.
_LOOKED_AT, _REPEATED = 4096, 0.75
# For the same error, uniform numbers need so many bits less than normal ones of the same variance (Shannon's lower
# bound: log2 of the ratio of their entropy powers).
_UNIFORM_BITS = 0.26
_VECTORS = 8  # from which a norm is estimated
_CHANGED_ROWS = 512  # from which it is estimated how much the outputs change with the weight


def derive(
    probe: Probe,
    other: Sequence[torch.Tensor],
    draw: Callable[[], Mapping[str, torch.Tensor]],
    largest_error: float,
    least_bytes: float,
) -> float:
    """Returns the bytes of the model's weights that a call needs at least; 0 for a model that keeps state.

    A kernel may pack, transpose, round, factorize or fold its weights before the first call. So a weight counts only if
    each of its rows changes one row of the outputs, and two numbers of a row have different effects there (`_shown`).
    It then holds as many numbers as a matrix of its rank needs (`_numbers`), and each takes the bits without which the
    relative error of the outputs would be above `largest_error` (`_bits`).
    `other` is another draw of the inputs, and `draw` returns the weights of a model with another seed, by name: numbers
    that are the same there do not count. Weights of fewer than `least_bytes` in float32 are left out.
    """
    named = probe.model.named_parameters() if isinstance(probe.model, torch.nn.Module) else ()
    weights = {name: each.detach() for name, each in named if each.ndim >= 2 and 4 * each.numel() >= least_bytes}
    drawn = draw() if weights else {}
    latest, found = time.monotonic() + _LONGEST_S, 0.0
    per_row = sum(t.numel() / max(1, t.shape[0]) for t in probe.inputs if t.ndim)
    for name, weight in weights.items():
        if time.monotonic() > latest:
            break
        if _is_random(weight, drawn.get(name)):
            share, lane, dim = _shown(probe, weight, other)
            if share:
                numbers = min(share * weight.numel(), weight.shape[dim] * per_row) * _rank_share(weight, dim)
                found += numbers * _bits(probe, weight, lane, dim, largest_error) / 8
    return found if found and probe.is_steady else 0.0


def _is_random(weight: torch.Tensor, another: torch.Tensor | None) -> bool:
    """Returns whether a weight's numbers differ between two seeds, nearly all of them, and do not repeat."""
    if another is None or another.shape != weight.shape:
        return False
    index = places.at_random(weight.shape, _LOOKED_AT, torch.Generator().manual_seed(0))
    numbers = places.values(weight, index)
    differ = ~places.same(numbers, places.values(another.detach(), index).to(numbers.dtype))
    if differ.float().mean() < _REPEATED or len(numbers.unique()) < min(_LOOKED_AT, weight.numel()) / 4:
        return False
    repeated = (places.same(places.values(weight, each), numbers) for each in places.repeats(weight.shape, index))
    return all(float(each.float().mean()) < _REPEATED for each in repeated)


def _shown(probe: Probe, weight: torch.Tensor, other: Sequence[torch.Tensor]) -> tuple[float, Lane, int]:
    """Returns the share of the weight's numbers that are needed, the dimension of an output that shows it, and its own.

    One number in each of some rows is changed a little. It counts if its row of the output changes, and by far more
    than rows of which nothing was changed. The same is done with others of the row: the next number, the one half a row
    further, and a random one. If the effects of two of them on two draws of the inputs are parallel, a kernel may add
    such weights up in its constructor, and nothing counts.
    """
    generator, best = torch.Generator().manual_seed(0), (0.0, (0, 0), 0)
    for dim, size in enumerate(weight.shape):
        lanes = probe.lanes(size) if size >= _LEAST_ROWS else []
        if not lanes:
            continue
        rows = torch.randperm(size, generator=generator)[: min(size // 2, _MOST_ROWS)]
        control = torch.ones(size, dtype=torch.bool)
        control[rows] = False
        bases = [(None, probe.base), (other, probe.sums({}, other))]
        effects = [
            [_effect(probe, weight, index, *base) for base in bases]
            for index in _in_rows(weight.shape, dim, rows, generator)
        ]
        for lane in lanes:
            moved = probe.shown(lane, probe.base[lane] + effects[0][0][lane], control)[rows]
            one, *others = (torch.stack([effect[lane][rows] for effect in each]) for each in effects)
            apart = torch.stack([_squared_sine(one, another) > _LEAST_SINE for another in others]).all(0)
            if float(apart.float().mean()) >= _APART:
                best = max(best, (places.share(int(moved.sum()), len(rows)), lane, dim))
    return best


def _in_rows(shape: torch.Size, dim: int, rows: torch.Tensor, generator: torch.Generator) -> list[Index]:
    """Returns four numbers of each row: a random one, its neighbour, the one half a row further, and another."""
    inner = max((d for d in range(len(shape)) if d != dim), key=lambda d: (shape[d] > 1, d))
    first, last = (places.at_random(shape, len(rows), generator) for _ in range(2))
    found = []
    for base, step in ((first, 0), (first, 1), (first, shape[inner] // 2), (last, 0)):
        index = list(base)
        index[dim], index[inner] = rows, (base[inner] + step) % shape[inner]
        found.append(tuple(index))
    return found


def _effect(
    probe: Probe, weight: torch.Tensor, index: Index, inputs: Sequence[torch.Tensor] | None, base: Sums
) -> Sums:
    """Returns by how much the sums of outputs change if the weight is changed at `index`."""
    step = _CHANGE * weight.square().mean().sqrt()
    with probe.changed_weight(weight, index, step):
        sums = probe.sums({}, inputs)
    return {lane: values - base[lane] for lane, values in sums.items()}


def _squared_sine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the squared sine of the angle between the columns of `a` and `b`; 0 if one is zero."""
    product = a.square().sum(0) * b.square().sum(0)
    return torch.where(product > 0, 1 - (a * b).sum(0).square() / product.clamp_min(1e-300), 0.0)


def _rank_share(weight: torch.Tensor, dim: int) -> float:
    """Returns the least share of numbers that a factorization of the weight, as a matrix with the rows `dim`, needs.

    A matrix of n x m numbers and rank r has r (n + m - r) degrees of freedom. (sum s_i^2)^2 / sum s_i^4, where s_i are
    the singular values, is at most the rank, and nm / (n + m) for random numbers. The sum of s_i^4 is estimated from
    products with random vectors (Hutchinson, 1990).
    """
    matrix = weight.movedim(dim, 0).reshape(weight.shape[dim], -1)
    n, m = matrix.shape
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(n, _VECTORS, generator=generator, dtype=matrix.dtype).to(matrix.device)
    fourth = (matrix @ (matrix.T @ vectors)).square().sum() / _VECTORS
    rank = min(float(matrix.square().sum()) ** 2 / float(fourth), n, m)
    return float(rank * (n + m - rank) / (n * m))


def _bits(probe: Probe, weight: torch.Tensor, lane: Lane, dim: int, largest_error: float) -> float:
    """Returns the bits for each number of the weight without which the outputs have an error above `largest_error`.

    A normal random number needs log2(1 / e) bits for a relative error e (Shannon's rate-distortion function). `e` is
    the error of the weight that causes `largest_error`: a change of some rows shows how much the outputs change.
    """
    rows = torch.arange(min(weight.shape[dim], _CHANGED_ROWS))
    index = tuple(rows if d == dim else torch.arange(n) for d, n in enumerate(weight.shape))
    noise = torch.randn(*map(len, index), generator=torch.Generator().manual_seed(0), dtype=weight.dtype)
    change = _CHANGE * weight.square().mean().sqrt() * noise.to(weight.device)
    with probe.changed_weight(weight, torch.meshgrid(*index, indexing="ij"), change):
        moved = (probe.sums({})[lane] - probe.base[lane])[rows].norm() / probe.base[lane][rows].norm()
    gain = float(moved) / _CHANGE
    return max(0.0, math.log2(gain / largest_error) - _UNIFORM_BITS) if math.isfinite(gain) and gain else 0.0
