"""The outputs of one call on a GPU, where they lie in memory that the worker can write, and the judge's copies of them.

The worker's call can be done while a copy engine or the host still writes to its outputs, or has done so ahead of time.
Some elements at random places show both: they are looked at right before the call, and copied right after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch

from kernel_harness.ipc import input_memory, tensors
from kernel_harness.ipc.input_memory import Written
from kernel_harness.ipc.packed import Packed
from kernel_harness.ipc.tensors import Leaf

# The elements of an output that are looked at. Work on a hundredth of an output is then found with certainty, and on a
# thousandth with a probability of 98%.
_LOOKED_AT = 4096


@dataclass
class PlacedOutput:
    """One output: `source`, where it lies, and `copy`, which the worker cannot reach. Both have one shape and dtype.

    `is_overwritten` says whether the judge may overwrite the source. `in_inputs` describes the source as a part of the
    memory for inputs, as `Exchange.region` gives it; None if it lies elsewhere.
    """

    source: torch.Tensor
    copy: torch.Tensor
    is_overwritten: bool
    in_inputs: Leaf | None = None
    places: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        count, device = self.source.numel(), self.source.device
        if count > _LOOKED_AT:
            self.places = torch.randint(count, (_LOOKED_AT,), device=device, generator=_generator(device))
        else:
            self.places = torch.arange(count, device=device)

    def values(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns what a tensor of the output's shape and dtype has at `places`, as integers."""
        return torch.take(input_memory.as_integers(tensor), self._places_in_integers)

    def put(self, values: torch.Tensor) -> None:
        """Writes to the copy what `values` has returned."""
        device = self.copy.device  # the host's memory where the GPU has too little
        input_memory.as_integers(self.copy).put_(self._places_in_integers.to(device), values.to(device))

    @property
    def _places_in_integers(self) -> torch.Tensor:
        return 2 * self.places if self.copy.itemsize == 16 else self.places


class PlacedOutputs:
    """The outputs of one call. `copies` are the judge's copies, in order.

    The methods enqueue work on the judge's stream, in the order in which they stand here.
    `overwrite` and `look_for_early_work` are left out for outputs that are named after the call has begun; they are
    overwritten after `copy` then. `look_for_late_work` follows if the outputs were copied before the call was done.
    """

    def __init__(self, outputs: Sequence[PlacedOutput]) -> None:
        self.copies = [each.copy for each in outputs]
        self._outputs = [each for each in outputs if each.source.numel()]
        self._early: list[torch.Tensor] = []
        self._late: list[torch.Tensor] = []

    def overwrite(self) -> None:
        """Overwrites outputs with NaN or the largest integer, so that what they hold from before cannot be used."""
        for each in self._overwritten:
            each.source.fill_(tensors.poison_of(each.source.dtype))

    def look_for_early_work(self) -> None:
        """Looks whether something has written to an overwritten output, although its inputs are not there yet."""
        for each in self._overwritten:
            poison = torch.full_like(each.copy[(0,) * each.copy.ndim], tensors.poison_of(each.source.dtype))
            wanted = each.values(poison.expand(each.source.shape))
            self._early.append((wanted != each.values(each.source)).any())

    def copy(self) -> None:
        """Copies the outputs, and before all others some elements at random places.

        An output that is still being written when the call is done has old values at these places, and so has the copy.
        """
        first = [each.values(each.source) for each in self._outputs]
        for each in self._outputs:
            each.copy.copy_(each.source)
        for each, values in zip(self._outputs, first, strict=True):
            each.put(values)

    def look_for_late_work(self) -> None:
        """Looks whether the outputs are still those that were copied."""
        self._late = [input_memory.unequal(each.copy, each.source) for each in self._outputs]

    @property
    def had_early_work(self) -> bool:
        """Returns whether `look_for_early_work` has found some. Waits for the result."""
        return any(torch.stack(self._early).tolist()) if self._early else False

    @property
    def had_late_work(self) -> bool:
        """Returns whether `look_for_late_work` has found some. Waits for the result."""
        return any(torch.stack(self._late).tolist()) if self._late else False

    def settle(self, written: Written, packed: Packed) -> None:
        """Copies outputs that lie in unchanged inputs again, from inputs that the worker cannot reach.

        `written` says what the call has written to the inputs `packed`. A call could otherwise leave its output there,
        and restore the input between the two looks that the judge takes at it.
        """
        lying = [each for each in self._outputs if each.in_inputs is not None]
        if not lying or written.inputs:
            return
        inputs = torch.empty(packed.size, dtype=torch.uint8, device=lying[0].source.device)
        input_memory.fill(inputs, packed)
        for each in lying:
            assert each.in_inputs is not None
            each.copy.copy_(each.in_inputs.view(inputs))

    @property
    def _overwritten(self) -> list[PlacedOutput]:
        return [each for each in self._outputs if each.is_overwritten]


@cache
def _generator(device: torch.device) -> torch.Generator:
    """Returns a generator of the judge's own, which no candidate knows and which changes no inputs."""
    generator = torch.Generator(device)
    generator.seed()
    return generator
