"""The memory that the judge shares with one worker: the judge writes inputs to it, and copies outputs from it.

The gate, with which judge and worker begin and end a timed call, is shared memory too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence

import psutil
import torch

from kernel_harness.device import ROOM, Device, SharedMemory, TakesTurns, Turn
from kernel_harness.device.device_memory import CannotShare
from kernel_harness.device.exports import INPUTS_REGION
from kernel_harness.device.host_memory import host_memory
from kernel_harness.ipc import input_memory, tensors
from kernel_harness.ipc.gate import GATE_BYTES, Gate
from kernel_harness.ipc.input_memory import Written
from kernel_harness.ipc.messages import Purpose, Share
from kernel_harness.ipc.packed import Packed
from kernel_harness.ipc.shared_memory import SharedBuffer
from kernel_harness.ipc.tensors import Leaf

_FIRST_BYTES = 1 << 21  # what CUDA allocates at least
# Memory of more than _KEPT_BYTES is released after a call, and where a device is short of memory, also memory of more
# than _LITTLE_BYTES. Otherwise the inputs and outputs of all candidates would be in memory at once.
_KEPT_BYTES = 1 << 31
_LITTLE_BYTES = 1 << 26


class Exchange:
    """The shared memory of one worker: one piece for the inputs of calls and one for their outputs.

    Each piece belongs to the judge, and no other worker maps it. A larger piece replaces it when a call needs one.
    Regions are memory of the worker that the judge maps to read outputs. `gate` is the worker's gate, or None if it has
    none. `turn` is the judge's turn around calls at the gate, or None if the memory is the host's. `send` sends a
    request to the worker, with at most one file descriptor, and waits for the reply.
    """

    def __init__(self, device: Device, send: Callable[[Share, Sequence[int]], object]) -> None:
        self._device, self._send = device, send
        self._pieces: dict[Purpose, SharedMemory] = {}
        self._regions: dict[int, torch.Tensor] = {}
        self.on_device = False  # whether the memory that was shared last is a CUDA device's own
        self.gate: Gate | None = None
        self.turn: Turn | None = None

    def share_gate(self) -> None:
        """Creates the worker's gate and shares it with the worker. Raises Fault if the worker gives no valid reply."""
        piece = self._pieces[Purpose.GATE] = SharedBuffer(GATE_BYTES)
        self.gate = Gate(piece.bytes)
        self._send(Share(Purpose.GATE, piece.size, piece.on_device), [piece.descriptor])

    def take_turns(self) -> None:
        """Creates the judge's `turn` if the shared memory is the device's. Raises CannotShare if it cannot be."""
        if self.on_device and isinstance(self._device, TakesTurns) and self.gate is not None:
            self.turn = self._device.turn(self.gate)

    def reserve(self, purpose: Purpose, size: int) -> bool:
        """Shares memory of at least `size` bytes with the worker for `purpose`, unless that much is shared already.

        Returns True if new memory was shared, and False if the present memory is large enough. New memory replaces the
        present one, whose contents are lost. Raises Fault if the worker gives no valid reply, and
        torch.OutOfMemoryError if the device has too little free memory.
        """
        held = self._pieces.get(purpose)
        if held is not None and held.size >= size:
            return False
        twice = 2 * held.size if held is not None else _FIRST_BYTES
        if held is not None and held.size > _LITTLE_BYTES:
            self._withdraw(purpose)  # else the worker would hold it until the larger piece exists
        else:
            self._release(purpose)
        piece = self._device.share(max(size, min(twice, _LITTLE_BYTES)))
        self._pieces[purpose], self.on_device = piece, piece.on_device
        self._send(Share(purpose, piece.size, piece.on_device), [piece.descriptor])
        return True

    def fill(self, packed: Packed) -> None:
        """Writes inputs, and known bytes around them, to the memory for inputs. Waits until the copy is complete."""
        input_memory.fill(self._pieces[Purpose.INPUTS].bytes, packed)
        self.wait()

    def enqueue_inputs(self, packed: Packed) -> None:
        """Does what `fill` does, and does not wait. The inputs are in the device's memory."""
        input_memory.fill(self._pieces[Purpose.INPUTS].bytes, packed)

    def empty_cache(self) -> None:
        """Enqueues the work that empties the device's cache."""
        self._device.empty_cache()

    def wait(self) -> None:
        """Waits for the work that this process has enqueued on the device whose memory is shared."""
        if self.on_device:
            torch.cuda.synchronize(self._device.torch_device)

    def written(self, packed: Packed) -> Written:
        """Returns what the worker has written to its inputs, or beside them, since `fill` has written `packed` there.

        The judge calls this method once a call is done, and before it writes other inputs.
        """
        return input_memory.written(self._pieces[Purpose.INPUTS].bytes, packed)

    def needed(self, leaves: Sequence[Leaf]) -> int:
        """Returns the size in bytes of the memory that the outputs need. `leaves` describes each output tensor.

        Raises tensors.Unreadable if the outputs are in the host's memory and take more than half of the free memory:
        the judge's copy takes as much again, and pages that the worker has not written count too. In a GPU's memory,
        only outputs larger than all of this memory are refused. If too little of a GPU's memory is free, perhaps
        because other programs use the GPU, the later allocation fails.
        """
        size = tensors.end_of(leaves)
        if self.on_device and size > torch.cuda.get_device_properties(self._device.torch_device).total_memory:
            raise tensors.Unreadable("it takes more than all memory of the device")
        if not self.on_device and size > max(_FIRST_BYTES, psutil.virtual_memory().available // 2):
            raise tensors.Unreadable("it takes more than half of the free memory")
        return size

    def memory_for_copy(self, size: int, packed: Packed) -> torch.Tensor:
        """Returns new memory of `size` bytes for a copy of outputs, as a flat uint8 tensor. No worker can reach it.

        It is on the host if the memory for outputs is there. It is also on the host if the judge keeps the inputs
        `packed` there, because the device is short of memory. Otherwise it is on the device. Raises
        torch.OutOfMemoryError if the device has too little free memory.
        """
        memory = self._pieces[Purpose.OUTPUTS].bytes
        if memory.is_cuda and packed.on_host:
            return host_memory(torch.empty(size, dtype=torch.uint8, device="meta"))
        return torch.empty(size, dtype=torch.uint8, device=memory.device)

    def copy_outputs(self, copy: torch.Tensor) -> None:
        """Fills `copy`, a flat uint8 tensor, with the first bytes of the memory for outputs. Waits for the copy."""
        copy.copy_(self._pieces[Purpose.OUTPUTS].bytes[: copy.numel()])
        self.wait()

    def output(self, leaf: Leaf) -> torch.Tensor:
        """Returns the tensor that the worker has copied to the memory for outputs, as a view of that memory."""
        return leaf.view(self._pieces[Purpose.OUTPUTS].bytes)

    def holds(self, purpose: Purpose, size: int) -> bool:
        """Returns whether the memory for `purpose` has at least `size` bytes."""
        return purpose in self._pieces and self._pieces[purpose].size >= size

    def region(self, number: int) -> torch.Tensor | None:
        """Returns the region of that number as flat bytes: the memory for inputs, or one that `add_region` has added.

        Returns None if there is no such region.
        """
        if number == INPUTS_REGION and Purpose.INPUTS in self._pieces:
            return self._pieces[Purpose.INPUTS].bytes
        return self._regions.get(number)

    def add_region(self, number: int, descriptors: Sequence[int], sizes: Sequence[int]) -> None:
        """Maps a region of the worker's device memory, which consists of pieces of the given `sizes`.

        Raises Unreadable if the descriptors are not those of such memory.
        """
        assert isinstance(self._device, TakesTurns)
        if number <= INPUTS_REGION or min(sizes, default=0) <= 0 or len(sizes) != len(descriptors):
            raise tensors.Unreadable("it lies in an invalid region of memory")
        try:
            self._regions[number] = self._device.map_regions(descriptors, sizes)
        except (CannotShare, OverflowError) as error:
            raise tensors.Unreadable(f"its memory cannot be mapped: {error}") from None

    def keep_regions(self, numbers: Collection[int]) -> None:
        """Unmaps all regions but those in `numbers`."""
        self._regions = {number: region for number, region in self._regions.items() if number in numbers}

    def release_large(self) -> None:
        """Releases each piece of this memory that is larger than 2 GiB.

        If the device is short of memory, also releases each piece of the device's memory that is larger than 64 MiB.
        The judge calls this method between two calls of the candidate. Raises Fault if the worker gives no valid reply.
        """
        large = {purpose: piece.size for purpose, piece in self._pieces.items() if self._is_large(piece)}
        mapped = sum(region.numel() for region in self._regions.values())
        if mapped > _LITTLE_BYTES and not self._device.has_free(ROOM * mapped):
            large[Purpose.OUTPUTS] = mapped
        for purpose in large:
            self._withdraw(purpose)
        if large and not self._device.has_free(ROOM * max(large.values())):
            gc.collect()  # cycles of objects may hold large tensors

    def _is_large(self, piece: SharedMemory) -> bool:
        if piece.size > _KEPT_BYTES:
            return True
        return piece.size > _LITTLE_BYTES and piece.on_device and not self._device.has_free(ROOM * piece.size)

    def close(self) -> None:
        """Releases all shared memory. Safe to call twice."""
        self.gate = self.turn = None
        self._regions = {}
        for purpose in list(self._pieces):
            self._release(purpose)

    def _withdraw(self, purpose: Purpose) -> None:
        """Releases a piece of memory and all regions, and tells the worker: memory is free when no process maps it."""
        self._release(purpose)
        self._regions = {}
        self._send(Share(purpose, 0, False), [])

    def _release(self, purpose: Purpose) -> None:
        piece = self._pieces.pop(purpose, None)
        if piece is not None:
            piece.close()
