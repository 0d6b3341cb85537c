"""Runs the reference in float64 with single numbers of an input or a weight changed, and finds what that changes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernel_harness.checking.places import Index
from kernel_harness.ipc import tensors
from kernel_harness.problem import float64
from kernel_harness.problem.problem import Problem

# A sum has changed if it differs by more than _ROUNDING of the largest sum, and by more than _BEYOND times what a call
# with the same inputs changes, or what is not a change of its own (`shown`).
_ROUNDING, _BEYOND = 1e-13, 8
_SEED = 1  # of the factors of sums
MOST_LANES = 1 << 20
"""The most indices of a dimension whose sums are looked at one by one."""
_LONGEST_S = 2.0

Edits = Mapping[int, tuple[Index, torch.Tensor]]
"""For inputs, by their number from 0: places, and the numbers there in place of the input's own."""
Lane = tuple[int, int]
"""The number of an output from 0, and one of its dimensions; -1 stands for the sum of the whole output."""
Sums = dict[Lane, torch.Tensor]
"""For each lane a float64 sum for each index of its dimension, on the CPU. The output itself is not kept."""


class CannotRun(Exception):
    """The error raised if the reference cannot run so: in float64, with changed inputs, or often enough."""


@contextmanager
def reference_errors() -> Iterator[None]:
    """Returns a context in which only the reference runs: its exceptions become CannotRun, but for a lack of memory."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise CannotRun(f"{type(error).__name__}: {error}") from error


class Probe:
    """The reference in float64, on fixed inputs of which a run may change some numbers.

    `model` is a float32 reference model; the Probe converts it in place. `inputs` are the tensors of the inputs, which
    a call does not change, and `structure` is their nesting. The outputs of a run are weighted with fixed random
    factors and summed up over all dimensions but one, so that two large outputs are never in memory at once. Such a sum
    does not change by chance where a number of the output changes.
    The constructor and `sums` raise CannotRun. The constructor also does if one run takes more than _LONGEST_S seconds:
    such a call is not bound by its bytes, and the runs of a proof would take minutes.
    """

    def __init__(
        self, problem: Problem, model: Any, structure: Any, inputs: Sequence[torch.Tensor], device: str
    ) -> None:
        self._problem, self._structure, self._device = problem, structure, device
        self.inputs = inputs
        with reference_errors():
            self.model = float64.widened(model)
        began = time.monotonic()
        self.base = self.sums({})
        if time.monotonic() - began > _LONGEST_S:
            raise CannotRun("the reference in float64 is too slow to run again")
        again = self.sums({})
        self._noise = {lane: _finite((again[lane] - sums).abs()).max() for lane, sums in self.base.items()}

    def sums(self, edits: Edits, inputs: Sequence[torch.Tensor] | None = None) -> Sums:
        """Returns the sums of the outputs for `inputs`, the Probe's own by default, with the changes `edits`."""
        placed = [self._placed(tensor) for tensor in inputs or self.inputs]
        for number, (index, values) in edits.items():
            into = placed[number]
            into[tuple(each.to(into.device) for each in index)] = values.to(into.device, into.dtype)
        with reference_errors(), float64.Float32ToFloat64():
            outputs = self._problem.forward(self.model, tensors.unflatten(self._structure, placed))
        del placed
        return summed(tensors.flatten_output(outputs)[1])

    @contextmanager
    def changed_weight(self, weight: torch.Tensor, index: Index, change: torch.Tensor) -> Iterator[None]:
        """Returns a context in which `change` is added to a weight of the model, a tensor without gradient."""
        at = tuple(each.to(weight.device) for each in index)
        kept = weight[at].clone()
        try:
            weight[at] += change
            yield
        finally:
            weight[at] = kept

    @property
    def is_steady(self) -> bool:
        """Whether a call with the inputs as they are still gives what the first one gave: the model keeps no state."""
        return not self.changed(self.sums({}))

    def lanes(self, size: int) -> list[Lane]:
        """Returns the dimensions of outputs that have `size` indices."""
        return [lane for lane, sums in self.base.items() if len(sums) == size and lane[1] >= 0]

    def changed(self, sums: Sums) -> bool:
        """Returns whether any output has changed, for a run in which one number was changed."""
        return any(bool(self.shown(lane, values, None).any()) for lane, values in sums.items())

    def shown(self, lane: Lane, values: torch.Tensor, control: torch.Tensor | None) -> torch.Tensor:
        """Returns for each index of `lane` whether its sum in `values` has changed by a change of its own.

        `control` says at which indices nothing was changed. A sum there may change nevertheless, as all sums of a batch
        do if the model takes a mean over the batch. A change of its own is larger by far. None: at none of the indices.
        """
        moved = (values - self.base[lane]).abs()
        least = max(_ROUNDING * float(_finite(self.base[lane].abs()).max()), _BEYOND * float(self._noise[lane]))
        if control is not None:
            least = max(least, _BEYOND * float(moved[control].nan_to_num(nan=math.inf).max()))
        return moved.isfinite() & (moved > least)

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        wanted = torch.float64 if tensor.is_floating_point() else tensor.dtype
        moved = tensor.to(self._device)
        return moved.to(wanted, copy=moved is tensor)


def summed(outputs: Sequence[torch.Tensor]) -> Sums:
    """Returns the weighted sums of `outputs`, which may be of any format."""
    found: Sums = {}
    for number, output in enumerate(outputs):
        if not output.numel():
            continue
        real = torch.view_as_real(output.resolve_conj()) if output.is_complex() else output
        generator = torch.Generator(real.device).manual_seed(_SEED + number)
        drawn = {"generator": generator, "device": real.device, "dtype": torch.float64}
        factors = [torch.randn(n, **drawn) for n in real.shape]
        numbers = real.detach().double()
        for dim, n in enumerate(real.shape):
            if n <= MOST_LANES:
                found[number, dim] = _summed(numbers, dim, factors).cpu()
        found[number, -1] = _summed(numbers, -1, factors).reshape(1).cpu()
    return found


def _summed(numbers: torch.Tensor, dim: int, factors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the weighted sums of `numbers` over all dimensions but `dim`, or over all for -1.

    The ends are summed up first, so that no large tensor is copied.
    """
    for last in range(numbers.ndim - 1, dim, -1):
        numbers = numbers @ factors[last]
    for first in range(dim):
        shape = numbers.shape
        numbers = (numbers.reshape(shape[0], -1).T @ factors[first]).reshape(shape[1:])
    return numbers


def _finite(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
