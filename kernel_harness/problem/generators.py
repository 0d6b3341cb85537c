"""Seeds torch's global random generators for a block of code, and afterwards restores the generators' states."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# All threads of a process share the global generators. The lock is reentrant, because code in a `seeded` block
# may call `seeded` again.
_LOCK = threading.RLock()


@contextmanager
def seeded(seed: int, *, cuda: bool = False) -> Iterator[None]:
    """Returns a context that seeds torch's random generators of the CPU and all CUDA devices.

    The end of the context restores the generators' states. A `seeded` context of another thread begins only then. If
    `cuda` is true, CUDA is initialised first, because the code in the context may be the first to use CUDA. If `cuda`
    is false and CUDA is not initialised, only the CPU's generator is seeded: to initialise CUDA takes a second and
    device memory.

    torch.manual_seed is not used. While CUDA is not initialised, it queues the seed for later, and the caller's own
    first use of CUDA would then start from this seed.
    """
    with _LOCK:
        if cuda:
            torch.cuda.init()
        # The tuple of CUDA generators is empty while CUDA is not initialised.
        generators = [torch.default_generator, *torch.cuda.default_generators]
        states = [generator.get_state() for generator in generators]
        for generator in generators:
            generator.manual_seed(seed)
        try:
            yield
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)
