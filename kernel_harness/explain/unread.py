"""Finds the elements of an input that a candidate with wrong values does not read, though the reference does.

A loop that ends too early, or a sum that leaves out one thread or block, leaves out the last indices of a dimension,
the first ones, or one of every so many. The candidate is called with other numbers at these indices. It does not read
them if its output stays the same in every bit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from kernel_harness.checking.cases import Case
from kernel_harness.checking.plan import derived_seed
from kernel_harness.checking.replay import names_of
from kernel_harness.checking.verify import unchanged
from kernel_harness.core.phases import phase
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.ipc.packed import Packed
from kernel_harness.trial.trial import Trial

_LONGEST_S = 1.0
# A dimension with fewer indices is not examined. A period is a power of two, as the number of threads of a block mostly
# is, and at most _LONGEST_PERIOD.
_LEAST_INDICES, _LONGEST_PERIOD = 16, 1024
_ADVICE = "let the bound of the loop, or of the sum over threads or blocks, include them"

_LOG = logging.getLogger(__name__)


@phase("explanations")
def remarks(trial: Trial, case: Case) -> list[Remark]:
    """Returns a remark on the elements that the candidate does not read in a failed case; none if all are read.

    Takes at most _LONGEST_S seconds and one call more. A candidate whose output differs from call to call has no
    remark.
    """
    try:
        trial.make(trial.reference.at(case))
        search = _Search(trial, case)
        found = next(search.found(), None) if search.is_steady else None
    except Exception as error:  # a further fault of the candidate: the verdict stands
        _LOG.info("%s: no unread element was looked for: %s: %s", case.name, type(error).__name__, error)
        return []
    return [Remark(RemarkKind.MISTAKE, found, advice=_ADVICE)] if found else []


class _Search:
    def __init__(self, trial: Trial, case: Case) -> None:
        self._client, self._reference = trial.running, trial.reference
        self._problem = trial.reference.at(case)
        self._packed = trial.reference.inputs(case)
        seed = derived_seed(case.seed, "unread elements")
        self._others = trial.reference.drawn(self._problem, seed, case.inputs_from).tensors
        self._end = time.monotonic() + _LONGEST_S
        self._usual = self._client.call(self._packed).outputs

    @property
    def is_steady(self) -> bool:
        """Returns whether a second call on the same inputs gives the same output."""
        return self._is_usual(self._client.call(self._packed).outputs)

    def found(self) -> Iterator[str]:
        """Yields a sentence for each dimension of an input with indices that the candidate does not read."""
        names = names_of(self._problem, self._packed)
        for i, (name, tensor) in enumerate(zip(names, self._packed.tensors, strict=True)):
            if not tensor.is_floating_point() or self._is_unread(i, 0, slice(None)):
                continue  # an input that is not read at all is another mistake
            for dim, size in enumerate(tensor.shape):
                part = self._unread_part(i, dim, size) if size >= _LEAST_INDICES else None
                if part is not None and self._matters(i, dim, part):
                    yield _sentence(name, dim if tensor.ndim > 1 else None, size, part)

    def _unread_part(self, i: int, dim: int, size: int) -> slice | None:
        for last in (True, False):
            powers = [1 << n for n in range((size // 2).bit_length())]
            periods = [each for each in reversed(powers) if 1 < each <= _LONGEST_PERIOD]
            if part := self._largest(i, dim, [slice(each - 1 if last else 0, None, each) for each in periods]):
                return part
            parts = [slice(size - count, size) if last else slice(0, count) for count in powers]
            if part := self._largest(i, dim, parts):
                return self._extended(i, dim, size, part)
        return None

    def _largest(self, i: int, dim: int, parts: Sequence[slice]) -> slice | None:
        """Returns the last of `parts` up to which none is read. Each contains the one before."""
        found = None
        for part in parts:
            if not self._is_unread(i, dim, part):
                break
            found = part
        return found

    def _extended(self, i: int, dim: int, size: int, part: slice) -> slice:
        """Returns the largest part at the same end of the dimension that is not read, of less than twice the size."""
        last, low = part.stop == size, part.stop - part.start
        high = min(2 * low, size)
        while high - low > 1:
            middle = (low + high) // 2
            wider = slice(size - middle, size) if last else slice(0, middle)
            low, high = (middle, high) if self._is_unread(i, dim, wider) else (low, middle)
        return slice(size - low, size) if last else slice(0, low)

    def _is_unread(self, i: int, dim: int, part: slice) -> bool:
        if time.monotonic() > self._end:
            return False
        changed = self._changed(i, dim, part)
        if unchanged(self._packed.tensors[i], changed):
            return False
        return self._is_usual(self._client.call(self._with(i, changed)).outputs)

    def _matters(self, i: int, dim: int, part: slice) -> bool:
        """Returns whether the reference's answer depends on these elements."""
        usual, other = (
            self._reference.answered(self._problem, packed).tensors
            for packed in (self._packed, self._with(i, self._changed(i, dim, part)))
        )
        return not all(map(unchanged, usual, other))

    def _changed(self, i: int, dim: int, part: slice) -> torch.Tensor:
        index = (slice(None),) * dim + (part,) if self._packed.tensors[i].ndim else ()
        changed = self._packed.tensors[i].clone()
        changed[index] = self._others[i][index]
        return changed

    def _with(self, i: int, changed: torch.Tensor) -> Packed:
        inputs = tuple(changed if i == j else each for j, each in enumerate(self._packed.tensors))
        return replace(self._packed, tensors=inputs)

    def _is_usual(self, outputs: Sequence[torch.Tensor]) -> bool:
        return all(map(unchanged, self._usual, outputs))


def _sentence(name: str, dim: int | None, size: int, part: slice) -> str:
    indices = range(size)[part]
    of = "" if dim is None else f" of dimension {dim}"
    if part.step:
        where = f"at indices {indices[0]}, {indices[1]}, ... (each {part.step}th of {size}){of}"
    else:
        end, few = "first" if indices[0] == 0 else "last", "" if len(indices) == 1 else f" {len(indices)}"
        where = f"at the {end}{few} of {size} indices{of}"
    return f"The kernel does not read {name} {where}: its output stays the same if these numbers change."
