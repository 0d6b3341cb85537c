"""Memory of a CUDA device: what is free, and memory that the judge owns and a worker maps, shared by a file descriptor.

The calls for shared memory are those of CUDA's virtual memory management (CUDA Driver API, "Virtual Memory
Management"). They come from the package cuda-bindings, which recent CUDA builds of torch install.
"""

from __future__ import annotations

import contextlib
import os
import random
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any

import torch

_LARGEST_MOVE = 3 << 30
_refused: dict[str, str] = {}  # why a device's memory cannot be shared on this machine, by the device's name in torch


class CannotShare(Exception):
    """The error raised if this machine cannot share memory of a CUDA device between processes."""


class DeviceBuffer:
    """Memory of a CUDA device, allocated by this process, that another process can map.

    `bytes` is the memory as a flat uint8 tensor, of at least `size` bytes. `descriptor` is a file descriptor, by which
    another process can map the memory (`map_device_memory`). The constructor raises CannotShare if this machine cannot
    share the memory, and torch.OutOfMemoryError if the device has too little free memory.
    """

    on_device = True

    def __init__(self, size: int, torch_device: str) -> None:
        driver, ordinal = driver_of(torch_device)
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = ordinal
        properties.requestedHandleTypes = handle_type(driver)
        minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        granule = value_of(driver, driver.cuMemGetAllocationGranularity(properties, minimum))
        self.size = max(1, -(-size // granule)) * granule
        handle = _create(driver, self.size, properties, torch_device)
        try:
            self.bytes = _mapped(driver, [(handle, self.size)], torch_device, ordinal)
            self.descriptor = int(value_of(driver, driver.cuMemExportToShareableHandle(handle, handle_type(driver), 0)))
        finally:
            driver.cuMemRelease(handle)  # the mapping and the descriptor keep the memory

    def close(self) -> None:
        """Closes the descriptor and drops this object's reference to the memory. Safe to call twice.

        This process unmaps the memory when the last tensor that uses it is freed. The device's memory is free again
        once no process maps it or has a descriptor of it.
        """
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        self.bytes = torch.empty(0, dtype=torch.uint8)


def map_device_memory(descriptors: Sequence[int], sizes: Sequence[int], torch_device: str) -> torch.Tensor:
    """Maps memory that another process has allocated. Returns it as one flat uint8 tensor.

    `descriptors` are the file descriptors of the pieces of the memory, which follow each other in the tensor, and
    `sizes` their sizes in bytes: those of one DeviceBuffer, or those that `Exports` gives. The mapping ends when the
    last tensor that uses it is freed. Raises CannotShare if the memory cannot be mapped.
    """
    driver, ordinal = driver_of(torch_device)
    pieces: list[tuple[Any, int]] = []
    try:
        for descriptor, size in zip(descriptors, sizes, strict=True):
            handle = value_of(driver, driver.cuMemImportFromShareableHandle(descriptor, handle_type(driver)))
            pieces.append((handle, size))
        return _mapped(driver, pieces, torch_device, ordinal)
    finally:
        for handle, _ in pieces:
            driver.cuMemRelease(handle)


def usable_bytes(torch_device: str) -> int:
    """Returns the free bytes of the device plus those that torch keeps in this process and does not use."""
    return int(torch.cuda.mem_get_info(torch_device)[0]) + unused_bytes(torch_device)


def unused_bytes(torch_device: str) -> int:
    """Returns how many bytes of the device torch keeps in this process for later and does not use."""
    return _counted(torch_device, "reserved_bytes") - _counted(torch_device, "allocated_bytes")


def reserve(size: int, torch_device: str) -> None:
    """Has torch reserve `size` bytes of the device for later tensors, if fewer are reserved and the device has them."""
    if size > unused_bytes(torch_device):
        with suppress(torch.OutOfMemoryError):
            torch.empty(size, dtype=torch.uint8, device=torch_device)


@contextmanager
def moved(torch_device: str) -> Iterator[None]:
    """Returns a context in which memory that torch gets from the driver is elsewhere than what it had before.

    First returns torch's unused memory to the driver. In the context, a piece of memory, of random size and not torch's
    own, is taken. Without cuda-bindings, or if the device lacks memory, there is no such piece.
    """
    torch.cuda.empty_cache()
    most = min(_LARGEST_MOVE, torch.cuda.mem_get_info(torch_device)[0] // 4)
    with ExitStack() as pieces:
        with suppress(CannotShare):
            driver, _ = driver_of(torch_device)
            size = 1 + random.SystemRandom().randrange(1 + most)
            pieces.callback(driver.cuMemFree, value_of(driver, driver.cuMemAlloc(size)))
        yield


def allocated_bytes(torch_device: str, *, peak: bool = False) -> int:
    """Returns how many bytes of the device torch's tensors in this process take, or if `peak` the most they took."""
    return _counted(torch_device, "allocated_bytes", "peak" if peak else "current")


def _counted(torch_device: str, what: str, when: str = "current") -> int:
    # torch.cuda.memory_allocated and the like sort hundreds of names first, which takes 0.4 ms, in each timed call.
    stats = torch.cuda.memory_stats_as_nested_dict(torch_device)
    return int(stats[what]["all"][when]) if stats else 0


def why_not(torch_device: str) -> str:
    """Returns why this process does not share memory of the device; empty if no attempt to share it has failed."""
    return _refused.get(torch_device, "")


def refuse(torch_device: str, reason: str) -> None:
    """Stores the `reason` why memory of the device cannot be shared. `why_not` returns it from then on."""
    _refused[torch_device] = reason


@cache
def driver_of(torch_device: str) -> tuple[Any, int]:
    """Returns the module with the functions of CUDA's driver, and the device's number.

    The first call creates the CUDA context. Later ones do not wait for the device, which a blocking kernel may keep.
    Raises CannotShare if the package cuda-bindings, which has this module, cannot be imported.
    """
    try:
        from cuda.bindings import driver  # type: ignore[import-not-found]
    except ImportError as error:
        raise CannotShare(f"the package cuda-bindings cannot be imported ({error})") from None
    torch.cuda.synchronize(torch_device)  # creates the CUDA context that the driver's functions use
    return driver, torch.device(torch_device).index or 0


def handle_type(driver: Any) -> Any:
    """Returns the type of handle by which memory is shared, a file descriptor, as the driver names it."""
    return driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def value_of(driver: Any, result: tuple[Any, ...]) -> Any:
    """Returns the value of a driver call: None if it has none, a list if it has several.

    Raises CannotShare if the call has failed.
    """
    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        raise CannotShare(f"CUDA's driver returned {error.name}")
    return (values[0] if len(values) == 1 else values) if values else None


def register(address: int, size: int, torch_device: str) -> int:
    """Lets the device use memory of the host, of `size` bytes. Returns what `seen_from_device` does.

    Raises CannotShare if the driver refuses.
    """
    driver, _ = driver_of(torch_device)
    flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
    value_of(driver, driver.cuMemHostRegister(address, size, flags))
    return seen_from_device(address, torch_device)


def seen_from_device(address: int, torch_device: str) -> int:
    """Returns what has to be added to an address in memory of the host, so that the device can use it there."""
    driver, _ = driver_of(torch_device)
    return int(value_of(driver, driver.cuMemHostGetDevicePointer(address, 0))) - address


def _create(driver: Any, size: int, properties: Any, torch_device: str) -> Any:
    error, handle = driver.cuMemCreate(size, properties, 0)
    if error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        torch.cuda.empty_cache()  # torch keeps memory that it has freed
        error, handle = driver.cuMemCreate(size, properties, 0)
    if error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        free, _ = torch.cuda.mem_get_info(torch_device)
        raise torch.OutOfMemoryError(
            f"{size / 1e9:.3g} GB of the device's memory are needed for inputs or outputs; {free / 1e9:.3g} GB are free"
        )
    return value_of(driver, (error, handle))


def alone(memory: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """Returns the bytes of `memory` from `start` to `end` as a tensor whose storage has no other bytes.

    `memory` is a flat uint8 tensor on a device, which stays alive as long as the new tensor.
    """
    if start == end:
        return memory.new_empty(0)
    mapping = _Mapping(memory.data_ptr() + start, end - start, memory)
    return torch.as_tensor(mapping, device=memory.device)


class _Mapping:
    """An address range of this process that shows device memory. torch.as_tensor makes a tensor of it.

    `owner` is kept alive as long as that tensor.
    """

    def __init__(self, address: int, size: int, owner: object = None) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def _mapped(driver: Any, pieces: Sequence[tuple[Any, int]], torch_device: str, ordinal: int) -> torch.Tensor:
    """Maps pieces of memory one after the other, each a handle and a size, as one flat uint8 tensor."""
    total = sum(size for _, size in pieces)
    start = int(value_of(driver, driver.cuMemAddressReserve(total, 0, 0, 0)))
    end = start
    try:
        for handle, size in pieces:
            value_of(driver, driver.cuMemMap(end, size, 0, handle, 0))
            end += size
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = ordinal
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        value_of(driver, driver.cuMemSetAccess(start, total, [access], 1))
    except BaseException:
        if end > start:
            driver.cuMemUnmap(start, end - start)
        driver.cuMemAddressFree(start, total)
        raise
    mapping = _Mapping(start, total)
    weakref.finalize(mapping, _unmap, driver, start, total, torch_device).atexit = False
    return torch.as_tensor(mapping, device=torch_device)


def _unmap(driver: Any, address: int, size: int, torch_device: str) -> None:
    with contextlib.suppress(RuntimeError):  # a kernel of this process has failed: the context is lost
        torch.cuda.synchronize(torch_device)  # work on the memory may still be under way
    driver.cuMemUnmap(address, size)
    driver.cuMemAddressFree(address, size)
