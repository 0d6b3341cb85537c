"""The outputs of a worker's calls: where the judge finds each, or the copy that the judge gets of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from kernel_harness.device import WorkerDevice
from kernel_harness.device.exports import INPUTS_REGION, Exports, extent
from kernel_harness.ipc import tensors
from kernel_harness.ipc.messages import Place
from kernel_harness.ipc.tensors import Leaf

# Read once, so that a candidate that replaces the attributes of torch's classes does not replace these.
_fill, _as_tensor = torch.Tensor.fill_, torch.Tensor.as_subclass


class Outputs:
    """The outputs of the last call, and the memory from which the judge reads them.

    `memory` is the shared memory for outputs, and `inputs` that for inputs; each is None before it is shared. `exports`
    are the regions of device memory that the judge can map; None if this process and the judge share memory of the
    host. Then every output is copied.
    """

    def __init__(self, device: WorkerDevice) -> None:
        self._device = device
        self.memory: torch.Tensor | None = None
        self.inputs: torch.Tensor | None = None
        self.exports: Exports | None = None
        self._structure: Any = None
        self._tensors: list[torch.Tensor] = []
        self._leaves: list[Leaf] = []
        self._copied: list[int] = []  # the indices of the outputs that the judge gets a copy of
        self._waiting = False  # whether these copies are still to be made

    def take(self, output: Any) -> None:
        """Takes a call's output, and enqueues the copies of tensors that the judge cannot read where they lie.

        These copies are left to `copy_rest` if they do not fit into the shared memory. Raises TypeError for more than
        tensors.MAX_OUTPUTS tensors, and tensors.Unreadable for an output that cannot be sent.
        """
        self._structure, found = tensors.flatten(output)
        if len(found) > tensors.MAX_OUTPUTS:
            raise TypeError(f"the call returned {len(found)} tensors; at most {tensors.MAX_OUTPUTS} are allowed")
        # The bits for a conjugate or a negative of a tensor are no part of its memory.
        self._tensors = [tensor.resolve_conj().resolve_neg() for tensor in found]
        self._copied = [i for i, tensor in enumerate(self._tensors) if not self._is_in_reach(tensor)]
        copies, _ = tensors.layout([self._tensors[i] for i in self._copied])
        self._leaves = [tensors.layout([tensor])[0][0] for tensor in self._tensors]
        for i, leaf in zip(self._copied, copies, strict=True):
            self._leaves[i] = leaf
        self._waiting = self.memory is None or tensors.end_of(copies) > self.memory.numel()
        if not self._waiting:
            self._copy()

    def copy_rest(self) -> None:
        """Makes the copies that did not fit into the shared memory before."""
        if self._waiting:
            self._waiting = False
            self._copy()

    def described(self) -> tuple[Any, tuple[Leaf, ...], tuple[Place | None, ...], tuple[int, ...]]:
        """Returns the first four fields of Called for the last call.

        Raises CannotShare if a tensor has been freed meanwhile.
        """
        regions = self.exports.forget_unmapped() if self.exports is not None else ()
        places = [None if i in self._copied else self._place(tensor) for i, tensor in enumerate(self._tensors)]
        return self._structure, tuple(self._leaves), tuple(places), regions

    def overwrite(self, kept: Collection[int] | None) -> None:
        """Overwrites outputs in memory of the host, once they are copied, with NaN or the largest integer.

        A candidate must not rely on what its outputs hold after a call, because their user may change them. The judge
        itself overwrites those that it reads where they lie. A GPU's other outputs are copied in the timed call, so
        nothing is gained by keeping them. Outputs with an index in `kept` and the call's inputs stay as they are,
        and so do all outputs if `kept` is None.
        """
        if self.exports is not None or self._waiting or kept is None:
            return
        with torch.inference_mode():  # in which tensors that were made in it can be changed
            for i, tensor in enumerate(self._tensors):
                plain = _as_tensor(tensor.detach(), torch.Tensor)
                if i not in kept and plain.numel() and not self._is_input(plain):
                    _fill(plain, tensors.poison_of(plain.dtype))

    def drop(self) -> None:
        """Drops the tensors of the last call, which the judge has copied or does not need."""
        self._tensors, self._waiting = [], False

    def clear(self) -> None:
        """Drops the tensors of the last call, and forgets all regions, so that torch can return their memory.

        Tensors that `copy_rest` has still to copy are kept: the judge replaces the memory for outputs to make room.
        """
        if not self._waiting:
            self.drop()
        if self.exports is not None:
            self.exports.clear()

    def _copy(self) -> None:
        if self._copied:
            assert self.memory is not None
            copied = [self._tensors[i] for i in self._copied]
            self._device.fetch(copied, [self._leaves[i] for i in self._copied], self.memory)

    def _is_in_reach(self, tensor: torch.Tensor) -> bool:
        return self.exports is not None and (self._is_input(tensor) or self.exports.has(tensor))

    def _is_input(self, tensor: torch.Tensor) -> bool:
        if self.inputs is None or not tensor.numel():
            return False
        start = self.inputs.data_ptr()
        first = tensor.data_ptr()
        return bool(start <= first and first + extent(tensor) <= start + self.inputs.numel())

    def _place(self, tensor: torch.Tensor) -> Place:
        assert self.exports is not None
        if self._is_input(tensor):
            assert self.inputs is not None
            return Place(INPUTS_REGION, tensor.data_ptr() - self.inputs.data_ptr(), tuple(tensor.stride()))
        location = self.exports.locate(tensor)
        return Place(location.region, location.offset, tuple(tensor.stride()))
