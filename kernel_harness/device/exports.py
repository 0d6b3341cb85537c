"""Memory of a worker's torch tensors that the judge can map, so that it reads outputs where they lie.

Torch allocates the memory of a CUDA device in segments of pieces that can be shared by file descriptors, if
PYTORCH_ALLOC_CONF has `expandable_segments:True` (`environment` in workers.fork_server_process).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernel_harness.device import device_memory
from kernel_harness.ipc.channel import MAX_DESCRIPTORS

INPUTS_REGION = 0
"""The number of the region that is the judge's own memory for inputs."""


@dataclass(frozen=True)
class Location:
    """Where a tensor lies: the number of a region, and the offset in bytes of the tensor's first element there."""

    region: int
    offset: int


@dataclass(frozen=True)
class _Piece:
    """A piece of a segment. `handle` is a reference to the piece, which keeps its memory."""

    address: int
    size: int
    handle: Any


class Exports:
    """The regions of this process's device memory that the judge may map. A region is a row of pieces of a segment.

    A region has a number, by which judge and worker name it. Its memory stays allocated until `forget_unmapped` or
    `clear` is called, also if torch has returned it.
    """

    def __init__(self, torch_device: str) -> None:
        self._driver, _ = device_memory.driver_of(torch_device)
        self._regions: dict[int, list[_Piece]] = {}
        self._numbers: dict[tuple[tuple[int, int], ...], int] = {}
        self._last = INPUTS_REGION

    def has(self, tensor: torch.Tensor) -> bool:
        """Returns whether the judge can map the memory in which the tensor's elements lie."""
        if not tensor.numel() or not tensor.is_cuda:
            return False
        first = tensor.data_ptr()
        return all(self._is_shareable(address) for address in (first, first + extent(tensor) - 1))

    def locate(self, tensor: torch.Tensor) -> Location:
        """Returns where a tensor lies of which `has` is true. Raises CannotShare if it lies elsewhere."""
        first = tensor.data_ptr()
        pieces: list[_Piece] = []
        end = first
        try:
            while end < first + extent(tensor):
                start, size = map(int, self._checked(self._driver.cuMemGetAddressRange(end)))
                pieces.append(_Piece(start, size, self._checked(self._driver.cuMemRetainAllocationHandle(end))))
                end = start + size
        except device_memory.CannotShare:
            self._release(pieces)
            raise
        key = tuple((piece.address, int(piece.handle)) for piece in pieces)
        if key in self._numbers:
            self._release(pieces)
        else:
            self._last += 1
            self._numbers[key], self._regions[self._last] = self._last, pieces
        return Location(self._numbers[key], first - pieces[0].address)

    def descriptors(self, number: int, first: int) -> tuple[list[int], list[int], int]:
        """Returns new descriptors of the pieces of a region from index `first` on, their sizes, and how many are left.

        There are at most MAX_DESCRIPTORS. The caller closes the descriptors.
        """
        pieces = self._regions.get(number, [])
        some = pieces[first : first + MAX_DESCRIPTORS]
        kind = device_memory.handle_type(self._driver)
        opened = [
            int(self._checked(self._driver.cuMemExportToShareableHandle(piece.handle, kind, 0))) for piece in some
        ]
        return opened, [piece.size for piece in some], len(pieces) - first - len(some)

    def forget_unmapped(self) -> tuple[int, ...]:
        """Forgets regions whose memory torch has returned to the device. Returns the numbers of the other regions."""
        for key, number in list(self._numbers.items()):
            if not all(self._is_mapped(piece) for piece in self._regions[number]):
                self._release(self._regions.pop(number))
                del self._numbers[key]
        return tuple(self._regions)

    def clear(self) -> None:
        """Forgets all regions."""
        for pieces in self._regions.values():
            self._release(pieces)
        self._regions, self._numbers = {}, {}

    def _is_mapped(self, piece: _Piece) -> bool:
        error, handle = self._driver.cuMemRetainAllocationHandle(piece.address)
        if error != self._driver.CUresult.CUDA_SUCCESS:
            return False
        self._driver.cuMemRelease(handle)
        return int(handle) == int(piece.handle)

    def _is_shareable(self, address: int) -> bool:
        error, handle = self._driver.cuMemRetainAllocationHandle(address)
        if error != self._driver.CUresult.CUDA_SUCCESS:
            return False  # memory of cudaMalloc, for example
        error, properties = self._driver.cuMemGetAllocationPropertiesFromHandle(handle)
        self._driver.cuMemRelease(handle)
        kind = device_memory.handle_type(self._driver)
        return bool(error == self._driver.CUresult.CUDA_SUCCESS and properties.requestedHandleTypes == kind)

    def _release(self, pieces: list[_Piece]) -> None:
        for piece in pieces:
            self._driver.cuMemRelease(piece.handle)

    def _checked(self, result: tuple[Any, ...]) -> Any:
        return device_memory.value_of(self._driver, result)


def extent(tensor: torch.Tensor) -> int:
    """Returns the number of bytes from the first to the last element of a tensor, gaps included."""
    if not tensor.numel():
        return 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return int((1 + reach) * tensor.element_size())
