"""Starts the fork server for a verb."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kernel_harness.workers.fork_server_process import ForkServerProcess

if TYPE_CHECKING:
    from kernel_harness.workers.fork_server import ForkServer


@contextmanager
def started_fork_server() -> Iterator[ForkServer]:
    """Returns a context with a fork server, which is killed at the end.

    The fork server and this process import torch at the same time. Each import takes two seconds.
    """
    with ForkServerProcess() as process:
        gc.disable()  # collections would be a sixth of the time of torch's import (measured)
        try:
            from kernel_harness.workers.fork_server import ForkServer
        finally:
            gc.enable()
        with ForkServer(process=process) as fork_server:
            yield fork_server
