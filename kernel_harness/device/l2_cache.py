"""The L2 cache of a CUDA device, which is emptied before a timed call."""

from __future__ import annotations

import torch

from kernel_harness.device import device_memory

_FLUSHES = 2  # the size of the buffer in sizes of the L2 cache; a buffer of one size leaves old lines in the cache


class L2Cache:
    """The L2 cache of the device `torch_device`."""

    def __init__(self, torch_device: str) -> None:
        self._device = torch_device
        self._buffer: torch.Tensor | None = None

    def prepare(self) -> None:
        """Allocates the buffer of `empty` and uses it for the first time, if that has not been done yet.

        The first use loads kernels, which would block the host while the device is held back.
        """
        if self._buffer is None:
            size = torch.cuda.get_device_properties(self._device).L2_cache_size
            self._buffer = torch.empty(max(_FLUSHES * size, 1 << 20) // 4, dtype=torch.float32, device=self._device)
            self.empty()

    def empty(self) -> None:
        """Enqueues the work that replaces the cache's contents: writes and then reads a buffer of twice its size.

        Without the read, the cache would hold modified lines, which would be written back during the timed call.
        `prepare` must have been called.
        """
        assert self._buffer is not None
        self._buffer.fill_(1.0)
        self._buffer.sum()

    def release_persisting(self) -> None:
        """Makes those lines of the cache normal again that a kernel has marked as persisting.

        Such lines stay in the cache when it is filled with other data. Waits for all work of this process. Raises
        CannotShare if the driver refuses.
        """
        driver, _ = device_memory.driver_of(self._device)
        with torch.cuda.device(self._device):
            error, *_ = driver.cuCtxResetPersistingL2Cache()
        if error != driver.CUresult.CUDA_ERROR_NOT_SUPPORTED:  # a device without persisting lines gives this error
            device_memory.value_of(driver, (error,))
