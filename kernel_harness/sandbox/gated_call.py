"""The judge's part of a timed call that begins at a gate. It measures the judge's bracket of the call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from kernel_harness.device import Turn
from kernel_harness.ipc.gate import Gate
from kernel_harness.ipc.input_memory import Written
from kernel_harness.ipc.packed import Packed
from kernel_harness.sandbox.exchange import Exchange
from kernel_harness.sandbox.process import Wait

# A GPU copies gigabytes of outputs in milliseconds, but other processes may have their turns before. Outputs that do
# not fit into the memory for outputs never come; that happens once for a size.
_LONGEST_COPY_S = 1.0
# A turn of another process on the GPU takes at least 0.3 ms (measured on an H200).
_EARLY_MS = 0.1


Read = Callable[[bool], bool]
"""A function that copies the outputs of the last call, and returns whether it did.

With the argument False, it copies them only if it needs neither new memory nor the worker for that.
"""


@dataclass(frozen=True)
class Timed:
    """How a timed call begins.

    The judge writes the inputs and opens the gate when the worker is ready, or after `hold_s` seconds. If `on_host`, or
    if the shared memory is the host's, the worker waits at the gate before it calls the model. Otherwise the worker
    calls the model at once, and the device's stream waits at the gate.
    """

    hold_s: float
    on_host: bool = False


@dataclass(frozen=True)
class Bracket:
    """The times of one call by the judge's own clock, in ms.

    `bracket_ms` begins when the inputs are written. It ends when the call is done and, if its outputs are in the host's
    memory, when the judge has copied them. `around_ms` is the time that the judge's own work took on the GPU: to write
    the inputs and to copy the outputs. `copied` says that the memory is the host's, so that the bracket contains the
    copies of inputs and outputs, and `around_ms` is 0. `exposed` says that the judge opened the gate before the worker
    was ready, or that another process had the GPU before the inputs were there.
    """

    bracket_ms: float
    around_ms: float = 0.0
    copied: bool = False
    exposed: bool = False


class GatedCall(Protocol):
    """One timed call that begins when the judge opens the gate.

    The judge makes the object before it sends the request Call, and calls it right after. `copy` is memory for a copy
    of the outputs, which the worker cannot reach.
    """

    copy: torch.Tensor

    def __call__(self, wait: Wait) -> None:
        """Writes the inputs once the worker is ready or the hold is over, opens the gate, and waits for the call."""

    def finish(self, read: Read) -> tuple[Bracket, Written]:
        """Copies the outputs by `read`. Returns the call's times, and what the call wrote to its inputs or beside them.

        The caller has the last reply.
        """

    def close(self) -> None:
        """Ends what keeps other work waiting. Safe to call at any time, and twice."""


class HostCall:
    """A GatedCall whose inputs and outputs cross the host's memory. The bracket contains the copy of the outputs."""

    def __init__(self, exchange: Exchange, packed: Packed, timed: Timed, size: int) -> None:
        self._exchange, self._packed, self._hold_s = exchange, packed, timed.hold_s
        self.copy = exchange.memory_for_copy(size, packed)
        self._bracket_ms: float | None = None
        self._began = 0.0
        self._exposed = False
        self._gate = _shut(exchange)

    def __call__(self, wait: Wait) -> None:
        """Does what GatedCall says, and copies the outputs, unless the worker sends a message before they are there."""
        self._exposed = not wait(self._gate.is_ready, self._hold_s)
        self._exchange.fill(self._packed)
        self._began = time.perf_counter()
        self._gate.open()
        if wait(self._gate.is_done, None):
            self._copy_outputs()

    def finish(self, read: Read) -> tuple[Bracket, Written]:
        """Copies the outputs if `__call__` has not copied them, and ends the bracket. `read` finds them in the copy.

        A worker that asks for a build sends a message before its outputs are there. The device may still copy the
        outputs when the reply has come, so this method waits until they are reported, or for _LONGEST_COPY_S.
        """
        end = time.perf_counter() + _LONGEST_COPY_S
        while self._bracket_ms is None:
            if self._gate.is_done() or time.perf_counter() > end:
                self._copy_outputs()
        read(True)
        written = self._exchange.written(self._packed)
        return Bracket(self._bracket_ms, copied=True, exposed=self._exposed), written

    def close(self) -> None:
        """Does nothing: no work waits for the judge but the worker's own."""

    def _copy_outputs(self) -> None:
        self._exchange.copy_outputs(self.copy)
        self._bracket_ms = (time.perf_counter() - self._began) * 1e3


class DeviceCall:
    """A GatedCall whose inputs and outputs stay in the GPU's memory. The judge's `turn` measures its bracket.

    From the constructor until the gate is open, no other process has the GPU, unless the call takes longer to enqueue
    than a time slice and the candidate has work on the GPU that does not wait at the gate. So work cannot be done
    before the call. Once the call is done the turn is the judge's again, until it has copied the outputs from where
    they lie. So no work can be left for later.
    """

    def __init__(self, exchange: Exchange, turn: Turn, packed: Packed, timed: Timed, size: int) -> None:
        self._exchange, self._turn, self._packed, self._hold_s = exchange, turn, packed, timed.hold_s
        self.copy = exchange.memory_for_copy(size, packed)
        self._exposed, self._opened = False, time.perf_counter()
        self._gate = _shut(exchange)
        exchange.enqueue_surround(packed)
        turn.take()
        if not packed.on_host:  # copies from the host would wait for the stream
            exchange.enqueue_inputs(packed)
            turn.enqueue_rest()

    def __call__(self, wait: Wait) -> None:
        """Does what GatedCall says, in the judge's turn."""
        self._exposed = not wait(self._gate.is_ready, self._hold_s)
        self._turn.let_inputs()
        if self._packed.on_host:
            self._exchange.enqueue_inputs(self._packed)
            self._turn.enqueue_rest()
        wait(self._turn.is_filled, None)
        self._opened = time.perf_counter()
        self._gate.open()
        wait(self._turn.is_done, None)

    def finish(self, read: Read) -> tuple[Bracket, Written]:
        """Copies the outputs by `read` in the judge's turn, and ends the turn.

        Outputs for which the judge was not prepared are copied later. The worker could finish them until then, so the
        bracket ends there, too, and the call counts as exposed.
        """
        in_turn = self.copy.is_cuda and read(False)  # a copy to the host waits for the stream
        self._turn.outputs_enqueued()
        written = self._exchange.written(self._packed)
        self._turn.end()
        if not in_turn:
            read(True)
        self._exchange.wait()
        exposed = self._exposed or not in_turn or self._turn.early_ms > _EARLY_MS
        late_ms = 0.0 if in_turn else (time.perf_counter() - self._opened) * 1e3
        bracket_ms = max(self._turn.bracket_ms, late_ms)
        return Bracket(bracket_ms, self._turn.around_ms, exposed=exposed), written

    def close(self) -> None:
        """Ends the judge's turn."""
        self._turn.end()


def _shut(exchange: Exchange) -> Gate:
    assert exchange.gate is not None
    exchange.gate.shut()
    return exchange.gate
