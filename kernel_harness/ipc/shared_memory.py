"""Memory of the host that two processes map."""

from __future__ import annotations

import fcntl
import mmap
import os

import torch

# From linux/fcntl.h; the fcntl module of Python 3.11 lacks these names.
_F_ADD_SEALS = 1033
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1, 2, 4


class SharedBuffer:
    """Shared memory of the host, of a fixed size: a memfd (a file in memory) with seals, which nothing can remove.

    The seals stop every process that holds the descriptor from changing the size. Without the seals, a worker could
    shrink the memory, and Linux would kill the judge when it reads its mapping beyond the new end. `bytes` is the
    memory as a flat uint8 tensor. A page takes no physical memory until it is used.
    """

    on_device = False

    def __init__(self, size: int) -> None:
        self.size = max(1, size)
        self.descriptor = os.memfd_create("kernel-harness", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size)
        fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
        self.bytes = map_shared(self.descriptor, self.size)

    def close(self) -> None:
        """Closes the descriptor and unmaps the memory. Linux frees the memory once no process maps it.

        A second call is safe, for example after an interrupt in the first call. A tensor that still uses the mapping
        keeps it.
        """
        # The number may soon belong to another file, which later code must not reach through `self.descriptor`.
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        self.bytes = torch.empty(0, dtype=torch.uint8)


def map_shared(descriptor: int, size: int) -> torch.Tensor:
    """Maps the memory behind the file descriptor `descriptor`, and returns it as a flat uint8 tensor of `size` bytes.

    All processes that map the memory see what this process writes. The mapping ends when the last tensor that uses it
    is freed.
    """
    return torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)
