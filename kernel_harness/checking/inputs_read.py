"""Derives the bytes of inputs that every correct kernel reads: changed numbers that change the float64 answer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kernel_harness.checking import places
from kernel_harness.checking.places import Index
from kernel_harness.checking.probe import MOST_LANES, Lane, Probe

# A tensor of a smaller share of all inputs is not examined.
_LEAST_SHARE = 1 / 256
# The places that are changed one by one, and the most that are changed in one run, each in another row or column. Where
# there are few rows, further runs change others, until _PLACES were changed or _RUNS made.
_SINGLE, _TOGETHER, _PLACES, _RUNS = 32, 512, 128, 8
# A dimension with fewer indices has too few rows to compare changed with unchanged ones.
_LEAST_LANES = 4
# Places of a tensor at which numbers are compared with others, and the share of equal ones that shows a repetition.
_COMPARED, _REPEATED = 256, 0.75
# No further trial is made of a tensor of which a trial has shown this share.
_ENOUGH = 0.75
# Runs end after so many seconds. The places that were not tried do not count.
_LONGEST_S = 2.0
# A whole number that is changed alone may be an index out of range, and end the device's context.
_CHANGED = (torch.bool, torch.int8, torch.uint8, torch.int16)


@dataclass
class _Trial:
    """Random places of one tensor that runs change: alone, or together with others in other rows of dimension `dim`.

    `shape` is that of the tensor. `numbers` are those of the tensor at these places, and `others` those of another draw
    of the inputs. `at_once` is the number of places that one run changes; it is 1 if `dim` is None.
    """

    shape: torch.Size
    dim: int | None
    at_once: int
    index: Index
    numbers: torch.Tensor
    others: torch.Tensor

    @staticmethod
    def of(tensor: torch.Tensor, dim: int | None, generator: torch.Generator) -> _Trial:
        """Returns a trial of a tensor, for the first draw of it."""
        at_once = 1 if dim is None else min(tensor.shape[dim] // 2, _TOGETHER)
        count = (_SINGLE if tensor.ndim else 1) if dim is None else at_once * min(_RUNS, -(-_PLACES // at_once))
        index = list(places.at_random(tensor.shape, count, generator))
        if dim is not None:
            rows = [torch.randperm(tensor.shape[dim], generator=generator)[:at_once] for _ in range(count // at_once)]
            index[dim] = torch.cat(rows)
        numbers = places.values(tensor, tuple(index))
        return _Trial(tensor.shape, dim, at_once, tuple(index), numbers, numbers)

    @property
    def drawn(self) -> torch.Tensor:
        """Whether the two draws differ, for each place."""
        return ~places.same(self.numbers, self.others)

    @property
    def runs(self) -> Iterator[torch.Tensor]:
        """Yields the numbers, from 0, of the places that one run changes."""
        yield from torch.arange(len(self.numbers)).split(self.at_once)


class Input:
    """One input tensor, of which two draws are seen. `whole` says how many bytes stand for those of `part`.

    `part` holds the rows of the tensor on which the reference runs. Numbers that are the same in both draws do not
    count, because a kernel may know them, and neither does a tensor that repeats itself (`places.repeats`) or an
    earlier input.
    """

    def __init__(self, number: int, tensor: torch.Tensor, part: torch.Tensor, generator: torch.Generator) -> None:
        self.number, self.bytes = number, tensor.numel() * tensor.dtype.itemsize
        dims = [dim for dim, n in enumerate(part.shape) if _LEAST_LANES <= n <= MOST_LANES]
        self.trials = [_Trial.of(part, dim, generator) for dim in (*dims, None)]
        self.extremes = [part.amax(), part.amin()] if part.dtype is not torch.bool and not part.is_complex() else []
        self._compared = places.at_random(tensor.shape, _COMPARED, generator)
        self._repeats = list(places.repeats(tensor.shape, self._compared))
        self._before = self._pairs(tensor)

    def see(self, tensor: torch.Tensor, part: torch.Tensor) -> None:
        """Adds the second draw."""
        for trial in self.trials:
            trial.others = places.values(part, trial.index)
        numbers, equal = self._before
        now, still = self._pairs(tensor)
        drawn = ~places.same(numbers, now)
        least = max(1.0, _REPEATED * float(drawn.sum()))
        self.repeats = any(float((drawn & a & b).sum()) >= least for a, b in zip(equal, still, strict=True))

    def _pairs(self, tensor: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        numbers = places.values(tensor, self._compared)
        return numbers, [places.same(places.values(tensor, index), numbers) for index in self._repeats]


def chosen(tensors: Sequence[torch.Tensor], parts: Sequence[torch.Tensor], generator: torch.Generator) -> list[Input]:
    """Returns those inputs that may count, the largest first. `tensors` is the first draw, `parts` rows of it."""
    total = sum(tensor.nbytes for tensor in tensors)
    able = [
        i
        for i, t in enumerate(tensors)
        if t.numel() and t.nbytes >= _LEAST_SHARE * total and (t.is_floating_point() or t.dtype in _CHANGED)
        and not any(_equal(t, earlier) for earlier in tensors[:i])
    ]  # fmt: skip
    return [Input(i, tensors[i], parts[i], generator) for i in sorted(able, key=lambda i: -tensors[i].nbytes)]


def derive(probe: Probe, inputs: Sequence[Input]) -> float:
    """Returns the bytes of `inputs` on which the answer was shown to depend; 0 for a model that keeps state."""
    latest = time.monotonic() + _LONGEST_S
    found = sum(each.bytes * _share(probe, each, latest) for each in inputs if not each.repeats)
    return found if found and probe.is_steady else 0.0


def _share(probe: Probe, tensor: Input, latest: float) -> float:
    """Returns the share of the tensor's elements that the trials show to be needed. Runs end at the time `latest`."""
    best = 0.0
    for trial in tensor.trials:
        if best > _ENOUGH or time.monotonic() > latest:
            break
        lanes = [] if trial.dim is None else probe.lanes(trial.shape[trial.dim])
        if lanes or trial.dim is None:
            shown = torch.zeros(max(1, len(lanes)), len(trial.numbers), dtype=torch.bool)
            tried = 0
            for run in trial.runs:
                if time.monotonic() > latest:
                    break
                _look(probe, tensor, trial, run, lanes, shown)
                tried += len(run)
            best = max(best, places.share(int(shown.sum(1).max()), tried))
    return best


def _look(
    probe: Probe, tensor: Input, trial: _Trial, run: torch.Tensor, lanes: Sequence[Lane], shown: torch.Tensor
) -> None:
    """Changes the places `run` of a trial together, and notes in `shown`, for each of `lanes`, which ones are needed.

    A place counts if its row of the output changes, and by far more than the rows in which nothing was changed. Without
    `lanes` it is a single place, which counts if any output changes. What was not shown is tried with other numbers.
    """
    for values in _replacements(tensor, trial):
        now = run[trial.drawn[run] & ~shown.any(0)[run]]
        if not len(now):
            break
        sums = probe.sums({tensor.number: (tuple(each[now] for each in trial.index), values[now])})
        if trial.dim is None:
            shown[0, now] = probe.changed(sums)
            continue
        rows = trial.index[trial.dim][now]
        control = torch.ones(trial.shape[trial.dim], dtype=torch.bool)
        control[rows] = False
        for number, lane in enumerate(lanes):
            shown[number, now] |= probe.shown(lane, sums[lane], control)[rows]


def _replacements(tensor: Input, trial: _Trial) -> Iterator[torch.Tensor]:
    """Yields numbers for the places of a trial: those of another draw, and the largest and the least of the tensor.

    The inputs could have been drawn so. A number that is too small to be a maximum is needed, because it could be one.
    """
    yield trial.others
    for extreme in tensor.extremes:
        yield extreme.cpu().expand(trial.numbers.shape)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b))
