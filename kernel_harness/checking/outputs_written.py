"""Derives the bytes of outputs that every correct kernel writes, from several runs of the reference."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch

from kernel_harness.checking import places
from kernel_harness.checking.places import Index

_PLACES = 1024  # in each output
_COPIED = 8  # places whose number is looked for in the inputs
_PIECE = 1 << 26  # elements that are compared at a time
# A number that the inputs hold more often than this is not looked for further.
_MOST_FOUND = 1 << 24


class Written:
    """What the runs so far show about one output. The first run decides its shape; `see` adds a run.

    An output does not count if it shares memory with an input or with the model, because a kernel may return the same,
    nor if it may be a view of an input or of another output (`_Copied`), or a view with overlapping windows. Of a
    tensor whose numbers repeat along a dimension, one index of that dimension counts, because a kernel may return an
    expanded tensor. Only the share of elements that differ between runs on different inputs counts: a kernel may keep
    the others.
    """

    def __init__(self, output: torch.Tensor, held: Collection[int], generator: torch.Generator) -> None:
        self.counts = output.numel() > 0 and output.untyped_storage().data_ptr() not in held
        self._shape, self._itemsize = output.shape, output.dtype.itemsize
        if not self.counts:
            return
        self._index = places.at_random(output.shape, _PLACES if output.ndim else 1, generator)
        self._first: torch.Tensor | None = None
        self._changes = torch.zeros(len(self._index[0]) if output.ndim else 1, dtype=torch.bool)
        self._along = dict(places.along(output.shape, self._index, generator))
        self._windows = list(places.windows(output.shape, self._index))
        self._copied = _Copied(tuple(each[:_COPIED] for each in self._index))
        # An expanded output of the reference needs no further proof.
        self._once = {dim for dim, step in enumerate(output.stride()) if step == 0}

    def see(self, sources: Sequence[torch.Tensor], output: torch.Tensor) -> None:
        """Adds a run. An output of another shape than the first does not count.

        `sources` are the tensors of which the output may be a view: the inputs as they were before the call, and other
        outputs. There are equally many in each run.
        """
        self.counts = self.counts and output.shape == self._shape
        if not self.counts:
            return
        now = places.values(output, self._index)
        if self._first is None:
            self._first = now
        self._changes |= ~places.same(now, self._first)

        def repeated(index: Index) -> bool:
            return bool(places.same(places.values(output, index), now).all())

        self._along = {dim: index for dim, index in self._along.items() if repeated(index)}
        pairs = ((pair, [places.values(output, index) for index in pair]) for pair in self._windows)
        self._windows = [pair for pair, (a, b) in pairs if places.same(a, b).all()]
        self._copied.see(sources, output)

    @property
    def bytes(self) -> float:
        """The bytes that a correct kernel writes at least."""
        once = {*self._along, *self._once} if self.counts else set()
        # Numbers that are equal along two dimensions are equal in the windows, too.
        if not self.counts or self._copied.possible or (self._windows and not once):
            return 0.0
        distinct = math.prod(n for dim, n in enumerate(self._shape) if dim not in once)
        return float(distinct * self._itemsize * places.share(int(self._changes.sum()), len(self._changes)))


class _Copied:
    """Whether an output may be a view of an input or of another output, such as a slice, a transpose or all of it.

    It may be as long as each of some numbers of the output is in one of these, at one place in all runs.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        # For each number: the places in each source that held it in all runs; None where these are too many to follow.
        self._held: list[dict[int, torch.Tensor | None]] | None = None
        self.possible = True

    def see(self, sources: Sequence[torch.Tensor], output: torch.Tensor) -> None:
        """Adds a run. The output may be a view of one of `sources`."""
        if not self.possible:
            return
        numbers = places.values(output, self._index).tolist()
        flat = {i: each.reshape(-1) for i, each in enumerate(sources) if each.dtype == output.dtype}
        first, held = self._held is None, self._held or [{} for _ in numbers]
        self._held = []
        for number, at in zip(numbers, held, strict=True):
            now = {i: _found(flat[i], number) for i in flat} if first else _still(flat, number, at)
            self._held.append({i: each for i, each in now.items() if each is None or each.numel()})
            self.possible = bool(self._held[-1])
            if not self.possible:
                return


def _found(flat: torch.Tensor, number: complex) -> torch.Tensor | None:
    """Returns the places that hold `number`, or None for more than _MOST_FOUND. NaN is nowhere."""
    found, count = [], 0
    for start in range(0, flat.numel(), _PIECE):
        at = (flat[start : start + _PIECE] == number).nonzero().flatten() + start
        found.append(at)
        count += at.numel()
        if count > _MOST_FOUND:
            return None
    return torch.cat(found) if found else flat.new_empty(0, dtype=torch.int64)


def _still(
    flat: dict[int, torch.Tensor], number: complex, held: dict[int, torch.Tensor | None]
) -> dict[int, torch.Tensor | None]:
    """Returns those places in `held` that hold `number` in this run, too."""
    inside = {i: at if at is None else at[at < flat[i].numel()] for i, at in held.items() if i in flat}
    return {i: at if at is None else at[flat[i][at] == number] for i, at in inside.items()}
