"""The judge's copy of a worker's output, and the check that the output was complete when the judge's clock stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil
import torch

from kernel_harness.core.status import Status
from kernel_harness.ipc import tensors
from kernel_harness.ipc.channel import SharedBuffer
from kernel_harness.ipc.tensors import Leaf
from kernel_harness.sandbox.faults import Fault

SAMPLED_BYTES = 1024
"""The number of bytes of each tensor in a sample. A sample holds all bytes of a smaller tensor.

If a candidate writes a share f of a tensor too late, one call detects this with probability 1 - (1 - f)^1024. With
f = 0.01, three calls in 100,000 escape. A copy of the whole tensor would detect every late byte, but the time of the
copy would be noise in the judge's clock.
"""


class OutputSample:
    """Bytes at random places of a call's output, read before the judge's clock stops.

    `leaves` describes each output tensor (dtype, shape, strides, offset) in the shared buffer `memory`.
    """

    def __init__(self, leaves: Sequence[Leaf], memory: Any) -> None:
        rng, present = np.random.default_rng(), np.frombuffer(memory, np.uint8)
        self._places = [
            rng.integers(0, leaf.nbytes, SAMPLED_BYTES) if leaf.nbytes > SAMPLED_BYTES else np.arange(leaf.nbytes)
            for leaf in leaves
        ]
        self._bytes = [present[leaf.offset + places] for leaf, places in zip(leaves, self._places, strict=True)]

    def matches(self, copies: Sequence[torch.Tensor]) -> bool:
        """Returns whether `copies`, copies of the output tensors made after the sample, contain the sampled bytes.

        `copies` has one flat uint8 tensor for each output tensor, in the same order.
        """
        pairs = zip(copies, self._places, self._bytes, strict=True)
        return all(np.array_equal(copy.numpy()[places], before) for copy, places, before in pairs)


def copy_output(
    structure: Any, leaves: Sequence[Leaf], buffer: SharedBuffer, sample: OutputSample
) -> tuple[torch.Tensor, ...]:
    """Copies the output's tensors to memory that the worker cannot reach, and returns the copies.

    `structure` is the output's nesting from `tensors.flatten`, and `leaves` describes each tensor's place in `buffer`.
    Raises Fault if the output has changed since `sample`, some of its bytes, was read. Raises tensors.Unreadable if the
    output takes more than half of the free memory, or if `structure` is malformed.
    """
    size = sum(leaf.nbytes for leaf in leaves)
    # The judge's reads allocate the pages of the buffer that the worker has not written.
    if size + max(0, size - buffer.taken_bytes) > psutil.virtual_memory().available // 2:
        raise tensors.Unreadable("it takes more than half of the free memory of this machine")
    copies = [leaf.bytes(buffer.memory).clone() for leaf in leaves]
    outputs = tuple(leaf.of(copy) for leaf, copy in zip(leaves, copies, strict=True))
    tensors.unflatten(structure, outputs)
    if not sample.matches(copies):
        raise Fault(Status.CHEATED, "The output changed after the worker had reported the call as done.")
    return outputs
