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

    The judge writes the inputs and opens the gate when the worker is ready, or after `hold_s` seconds. If `on_host`, or
    if the shared memory is the host's, the worker waits at the gate before it calls the model. Otherwise the worker
    calls the model at once, and the device's stream waits at the gate.
    """

    hold_s: float
    on_host: bool = False


class GatedCall:
    """One timed call that begins when the judge opens the gate, which the constructor shuts.

    The judge calls the object right after it has sent the request. The inputs are `packed`, and the judge copies the
    first `size` bytes of the memory for outputs to `copy`. `fill_ms` is the time to write the inputs and, if the memory
    for inputs is the device's, to empty the device's L2 cache. If that memory is the host's, the worker empties the
    cache. Two times begin when the inputs are written: `done_ms` ends when the worker or its device reports the
    outputs, and `bracket_ms` when the judge has copied them. `exposed` says that the judge opened the gate before the
    worker was ready.
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
        """Writes the inputs once the worker is ready or `hold_s` is over, opens the gate, and copies the outputs.

        Copies no outputs if the worker sends a message before the outputs are reported (`finish`).
        """
        self.exposed = not wait(self._gate.is_ready, self._hold_s)
        start = time.perf_counter()
        self._exchange.fill(self._packed, cold=True)
        filled = time.perf_counter()
        self._gate.open()
        self.fill_ms, self._began = (filled - start) * 1e3, filled
        if wait(self._gate.is_done, None):
            self._copy_outputs()

    def finish(self) -> None:
        """Copies the outputs if `__call__` has not copied them, and ends the bracket.

        A worker that asks for a build sends a message before its outputs are there. The caller has the last reply. The
        device may still copy the outputs then, so this method waits until they are reported, or for _LONGEST_COPY_S.
        """
        end = time.perf_counter() + _LONGEST_COPY_S
        while not self._copied:
            if self._gate.is_done() or time.perf_counter() > end:
                self._copy_outputs()

    def _copy_outputs(self) -> None:
        self.done_ms = (time.perf_counter() - self._began) * 1e3
        self._exchange.copy_outputs(self.copy)
        self.bracket_ms, self._copied = (time.perf_counter() - self._began) * 1e3, True
