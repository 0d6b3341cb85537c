"""Finds how often a wrong output counts each term of the sum over one dimension of an input or a parameter.

Let r be the reference's answer if that input or parameter is zero, and c_k the answer if only index k of the dimension
is kept, less r. Where the right answer is r plus the sum of all c_k, a wrong output may be r plus the sum of all w_k *
c_k. The weights w_k are found by least squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from kernel_harness.checking.patterns import Pattern
from kernel_harness.checking.replay import Replay

MOST_INDICES = 512
"""The largest number of indices of a dimension whose terms are computed. Each term takes a run of the reference."""
MOST_TERMS = 1 << 23
"""The largest number of elements of all terms together. They are in float64."""
LEAST_SHARE = 0.25
"""An element of the output must depend on this share of the indices, on average. Otherwise it is no sum over them."""
# How many more elements than weights least squares needs, and how many elements per weight it takes.
_SPARE, _PER_WEIGHT = 8, 4
# Terms are in float64. A sum of them is equal up to this share, and a smaller one is zero.
_ROUNDING = 1e-9
# The most runs of indices that are listed.
_MOST_RUNS = 3


@dataclass(frozen=True)
class _Sum:
    """The terms of a sum over one dimension of a source: an input or a parameter of the reference.

    `source` is the index of the source in `Replay.sources`, and `axis` is the dimension. `terms` has the shape (indices
    of the dimension, elements of all outputs): a row is what one index adds to the outputs. `rest` is the answer with
    zeros in place of the source, such as a bias, with the shape (elements of all outputs). Both are in float64.
    """

    source: int
    axis: int
    terms: torch.Tensor
    rest: torch.Tensor

    @property
    def size(self) -> int:
        return len(self.terms)


def mistakes(replay: Replay, outputs: Sequence[torch.Tensor]) -> Iterator[tuple[Pattern, list[torch.Tensor]]]:
    """Yields, for each sum that `outputs` may count wrongly, its Pattern and the reference's outputs with this mistake.

    The yielded outputs are in float64. The terms of the sum are counted a whole number of times, which is the same in
    all elements that are wrong. The caller compares the yielded outputs with the candidate's. Raises TimeoutError as
    `Replay.outputs` does.
    """
    right = replay.outputs()
    flat, got, tried = _flat(right), _flat(outputs), list[_Sum]()
    for source, each in enumerate(replay.sources):
        for axis in range(each.tensor.ndim if each.tensor.is_floating_point() else 0):
            found = _sum(replay, source, axis, flat, tried)
            if found is None:
                continue
            tried.append(found)
            weights = _weights(found, got, flat)
            if weights is not None:
                answer = found.rest + torch.tensor(weights, dtype=torch.float64).to(flat.device) @ found.terms
                parts = answer.split([o.numel() for o in right])
                yield _pattern(replay, found, weights), [p.reshape(o.shape) for p, o in zip(parts, right, strict=True)]


def _flat(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([output.reshape(-1).double() for output in outputs])


def _sum(replay: Replay, source: int, axis: int, right: torch.Tensor, tried: Sequence[_Sum]) -> _Sum | None:
    """Returns the sum over one dimension of a source; None if the right answer, which is `right`, is no such sum.

    Also returns None if the dimension has fewer than 2 or more than MOST_INDICES indices, if the terms have more than
    MOST_TERMS elements, if an element depends on too few indices (LEAST_SHARE), or if the sum seems to be in `tried`.
    """
    size = replay.sources[source].tensor.shape[axis]
    if not 2 <= size <= MOST_INDICES or size * len(right) > MOST_TERMS:
        return None
    rest, half = _kept(replay, source, axis, 0, 0), size // 2
    # A few runs show of most dimensions that there is no sum over them.
    middle = _kept(replay, source, axis, half) - rest
    halves = [_kept(replay, source, axis, 0, half) - rest, _kept(replay, source, axis, half, size - half) - rest]
    if float(_nonzero(middle).double().mean()) < LEAST_SHARE or not _adds_up(torch.stack(halves), rest, right):
        return None
    if any(other.size == size and _equal(middle, other, half) for other in tried):
        return None
    terms = torch.stack([_kept(replay, source, axis, k) - rest for k in range(size)])
    if not _adds_up(terms, rest, right):
        return None
    used = float(_nonzero(terms).sum(dim=0).double().mean())
    return _Sum(source, axis, terms, rest) if used >= max(2.0, LEAST_SHARE * size) else None


def _adds_up(terms: torch.Tensor, rest: torch.Tensor, right: torch.Tensor) -> bool:
    """Returns whether the sum of `rest` and of the terms, one in each row, is the right answer except for rounding."""
    reach = terms.abs().sum(dim=0) + rest.abs()
    return bool(((rest + terms.sum(dim=0) - right).abs() <= _ROUNDING * reach.max()).all())


def _kept(replay: Replay, source: int, axis: int, first: int, count: int = 1) -> torch.Tensor:
    """Returns the reference's answer, flat, if a source keeps only `count` indices of a dimension, from `first` on.

    The other elements of the source are replaced by zeros. `source` is the index in `Replay.sources`.
    """
    whole = replay.sources[source].tensor
    changed = torch.zeros_like(whole)
    changed.narrow(axis, first, count).copy_(whole.narrow(axis, first, count))
    return _flat(replay.outputs({source: changed}))


def _nonzero(terms: torch.Tensor) -> torch.Tensor:
    return terms.abs() > _ROUNDING * terms.abs().max()


def _weights(found: _Sum, got: torch.Tensor, right: torch.Tensor) -> list[int] | None:
    """Returns how often the wrong elements count each term: the weights by least squares, rounded to whole numbers.

    Returns None if too few elements are wrong or the weights are not determined. Also returns None if all weights are
    equal, because a factor then explains the output. `got` and `right` are flat.
    """
    one_term = found.terms.abs().mean(dim=0)
    wrong = ((got - right).abs() > 0.1 * one_term).nonzero()[:, 0].cpu()
    if len(wrong) < found.size + _SPARE:
        return None
    # Elements at a regular distance may lie in one column of the output.
    order = torch.randperm(len(wrong), generator=torch.Generator().manual_seed(0))
    chosen = wrong[order[: _PER_WEIGHT * found.size + _SPARE]].to(got.device)
    terms, target = found.terms[:, chosen].T.cpu(), (got - found.rest)[chosen].cpu()
    norms = terms.norm(dim=0)
    if not bool((norms > 0).all()):
        return None
    solved = torch.linalg.lstsq(terms / norms, target[:, None], rcond=1e-6, driver="gelsd")
    if int(solved.rank) < found.size:
        return None
    counts = [round(weight) for weight in (solved.solution[:, 0] / norms).tolist()]
    return counts if len(set(counts)) > 1 else None


def _pattern(replay: Replay, found: _Sum, weights: Sequence[int]) -> Pattern:
    places = [(found.source, found.axis), *_same(replay, found)]
    where = " and ".join(f"dimension {axis} of {replay.sources[source].name}" for source, axis in places)
    return Pattern(
        f"The sum over {where} {counted(weights)}.",
        "check the start, the step and the end of the loop over this sum, and the tail of its last tile: it must add "
        f"each index from 0 to {found.size - 1} exactly once",
    )


def _same(replay: Replay, found: _Sum) -> Iterator[tuple[int, int]]:
    """Yields the dimensions of other sources over which the same sum runs: the source's index, and the dimension."""
    for source, each in enumerate(replay.sources):
        for axis, size in enumerate(each.tensor.shape):
            if source == found.source or size != found.size or not each.tensor.is_floating_point():
                continue
            terms = ((k, _kept(replay, source, axis, k) - found.rest) for k in {0, size // 2, size - 1})
            if all(_equal(term, found, k) for k, term in terms):
                yield source, axis


def _equal(term: torch.Tensor, found: _Sum, index: int) -> bool:
    """Returns whether `term` equals the term of the index `index` in the sum `found`, except for rounding."""
    return not bool(((term - found.terms[index]).abs() > _ROUNDING * found.terms.abs().max()).any())


def counted(weights: Sequence[int]) -> str:
    """Says which indices a sum does not count once: `leaves out index 0 of 256`.

    `weights` holds how often each index is counted. At least one of them is not 1.
    """
    size, others = len(weights), sorted(set(weights) - {1})
    if len(others) > 2:
        wrong = [k for k, w in enumerate(weights) if w != 1]
        span = f"indices {wrong[0]} to {wrong[-1]}"
        return f"counts {span} of {size} between {_times(others[0])} and {_times(others[-1])}"
    parts = []
    for weight in others:
        hit = [k for k, w in enumerate(weights) if w == weight]
        indices = "each index" if len(hit) == size else f"{_listed(hit)} of {size}"
        parts.append(f"leaves out {indices}" if weight == 0 else f"counts {indices} {_times(weight)}")
    return " and ".join(parts)


def _times(weight: int) -> str:
    return {1: "once", 2: "twice"}.get(weight, f"{weight} times")


def _listed(indices: Sequence[int]) -> str:
    """Returns a text that lists sorted indices as runs, of which it names at most _MOST_RUNS."""
    starts = [indices[0], *(b for a, b in pairwise(indices) if b != a + 1)]
    ends = [*(a for a, b in pairwise(indices) if b != a + 1), indices[-1]]
    runs = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    word = "index" if len(indices) == 1 else "indices"
    if len(runs) <= _MOST_RUNS:
        return f"{word} {' and '.join(filter(None, (', '.join(runs[:-1]), runs[-1])))}"
    return f"{len(indices)} indices ({', '.join(runs[:_MOST_RUNS])} and so on)"
