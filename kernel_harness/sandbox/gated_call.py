"""The judge's part of a timed call that begins at a gate. It measures the judge's bracket of the call."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kernel_harness.ipc.packed import Packed
from kernel_harness.sandbox.exchange import Exchange
from kernel_harness.sandbox.process import Wait

# A GPU copies gigabytes of outputs in milliseconds, but other processes may have their turns before. Outputs that do
# not fit into the memory for outputs never come; that happens once for a size.
_LONGEST_COPY_S = 1.0


@dataclass(frozen=True)
class Timed:
    """How a timed call begins.

    `hold_s` is for how many seconds at most the device is held back until the call is enqueued. If `on_host`, the
    worker itself waits for the inputs, and not the stream of its device.
    """

    hold_s: float
    on_host: bool = False


class GatedCall:
    """One timed call that begins when the judge opens the gate. The judge calls the object after it sends the request.

    The inputs are `packed`, and the judge copies the first `size` bytes of the memory for outputs to `copy`.
    `fill_ms` is the time to write the inputs and, if they are in the device's memory, to empty its L2 cache. If they
    are in the host's memory, the worker empties the cache. Two times begin after `fill_ms`: `done_ms` ends when the
    worker or its device reports the outputs, and `bracket_ms` when the judge has copied them. `exposed` says that the
    gate was opened before the worker reported that the call was enqueued.
    """

    def __init__(self, exchange: Exchange, packed: Packed, timed: Timed, size: int) -> None:
        self._exchange, self._packed, self._hold_s = exchange, packed, timed.hold_s
        self.copy = exchange.memory_for_copy(size, packed)
        self.bracket_ms = self.done_ms = self.fill_ms = self._began = 0.0
        self._copied = False
        self.exposed = False
        assert exchange.gate is not None
        self._gate = exchange.gate
        self._gate.shut()

    def __call__(self, wait: Wait) -> None:
        """Writes the inputs once the call is enqueued, opens the gate, and copies the outputs when they are there."""
        self.exposed = not wait(self._gate.is_ready, self._hold_s)
        start = time.perf_counter()
        self._exchange.fill(self._packed, cold=True)
        filled = time.perf_counter()
        self._gate.open()
        self.fill_ms, self._began = (filled - start) * 1e3, filled
        if wait(self._gate.is_done, None):
            self._copy_outputs()

    def finish(self) -> None:
        """Copies the outputs if they were not there when the worker first sent a message, and ends the bracket.

        A worker that asks for a build sends a message before its outputs are there. The caller has the last reply. The
        device may still copy the outputs then, which takes less than _LONGEST_COPY_S.
        """
        end = time.perf_counter() + _LONGEST_COPY_S
        while not self._copied:
            if self._gate.is_done() or time.perf_counter() > end:
                self._copy_outputs()

    def _copy_outputs(self) -> None:
        self.done_ms = (time.perf_counter() - self._began) * 1e3
        self._exchange.copy_outputs(self.copy)
        self.bracket_ms, self._copied = (time.perf_counter() - self._began) * 1e3, True
