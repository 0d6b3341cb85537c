"""Owners of worker processes that a test has started, for arms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_harness.workers.faults import Fault
from kernel_harness.workers.model_process import ModelProcess


def never() -> Any:
    """In place of a start: no further process is needed."""
    raise AssertionError("a further process was started")


class Held(ModelProcess):
    """Owns `client`. A restart calls `start`, whose process has its model already."""

    def __init__(self, client: Any, start: Callable[[], Any] = never) -> None:
        self.client, self._start = client, start

    def restart(self, first: Callable[[Any], object] = lambda client: None) -> None:
        """Replaces the process."""
        self.close()
        client = self._start()
        try:
            first(client)
        except Fault:
            client.close()
            raise
        self.client = client

    def sibling(self) -> Held:
        """A further process, which has not been started."""
        return Held(None, self._start)
