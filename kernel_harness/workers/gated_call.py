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
from kernel_harness.workers.exchange import Exchange
from kernel_harness.workers.placed_outputs import PlacedOutputs
from kernel_harness.workers.process import Wait

# A GPU copies gigabytes of outputs in milliseconds, but other processes may have their turns before. Outputs that do
# not fit into the memory for outputs never come; that happens once for a size.
_LONGEST_COPY_S = 1.0


@dataclass(frozen=True)
class Timed:
    """How a timed call begins.

    The judge writes the inputs and opens the gate when the worker is ready, or after `hold_s` seconds. If `on_host`, or
    if the shared memory is the host's, the worker waits at the gate before it calls the model. Otherwise the worker
    calls the model at once, and the device's stream waits at the gate. `brief`: the call is known to be shorter than a
    time slice of the device. `shut_s`: the gate stays shut for so many seconds after the inputs are written, in which
    the GPU is the worker's; only where the outputs are named before the call. With `on_host`, times contain launch
    latency.
    """

    hold_s: float
    on_host: bool = False
    brief: bool = False
    shut_s: float = 0.0


@dataclass(frozen=True)
class Bracket:
    """The time of one call by the judge's own clock, in ms.

    `bracket_ms` begins when the inputs are written. It ends when the call is done and, if its outputs are in the host's
    memory, when the judge has copied them. It contains the time that other processes had on the GPU while the judge
    wrote the inputs. `copied` says that the memory is the host's, so that the bracket contains the copies of inputs and
    outputs. `exposed` says that the judge opened the gate before the worker was ready, that another process had the GPU
    while it wrote the inputs, or that it was not prepared to copy the outputs at the end of the call. A call that is
    `unbracketed` is exposed, too. Something wrote to its outputs before the gate opened, or after the bracket: a kernel
    that does not wait for the gate, or the host or a copy engine, which work while the judge keeps the device.
    """

    bracket_ms: float
    copied: bool = False
    exposed: bool = False
    unbracketed: bool = False


class GatedCall(Protocol):
    """One timed call that begins when the judge opens the gate.

    The judge makes the object before it sends the request Call, and calls it right after. `copy` is memory for a copy
    of the outputs, which the worker cannot reach.
    """

    copy: torch.Tensor

    def __call__(self, wait: Wait) -> None:
        """Writes the inputs once the worker is ready or the hold is over, opens the gate, and waits for the call."""

    def finish(self, read: Callable[[], None]) -> tuple[Bracket, Written]:
        """Copies the outputs, by `read` if they are not copied yet.

        Returns the call's times, and what the call wrote to its inputs or beside them. The caller has the last reply.
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

    def finish(self, read: Callable[[], None]) -> tuple[Bracket, Written]:
        """Copies the outputs if `__call__` has not copied them, and ends the bracket. `read` finds them in the copy.

        A worker that asks for a build sends a message before its outputs are there. The device may still copy the
        outputs when the reply has come, so this method waits until they are reported, or for _LONGEST_COPY_S.
        """
        end = time.perf_counter() + _LONGEST_COPY_S
        while self._bracket_ms is None:
            if self._gate.is_done() or time.perf_counter() > end:
                self._copy_outputs()
        read()
        written = self._exchange.written(self._packed)
        return Bracket(self._bracket_ms, copied=True, exposed=self._exposed), written

    def close(self) -> None:
        """Does nothing: no work waits for the judge but the worker's own."""

    def _copy_outputs(self) -> None:
        self._exchange.copy_outputs(self.copy)
        self._bracket_ms = (time.perf_counter() - self._began) * 1e3


class DeviceCall:
    """A GatedCall whose inputs and outputs stay in the GPU's memory. The judge's `turn` measures its bracket.

    The worker enqueues its call behind the gate and names its outputs. Only then does the judge enqueue, in one turn,
    the work that writes the inputs, overwrites the outputs, opens the gate, waits for the end of the call and copies
    the outputs. So neither kernels nor copy engines nor the host can fill outputs before the call or after it: some
    elements at random places are looked at right before the gate opens, and copied first (`PlacedOutputs`).

    A kernel that does not wait for the gate could begin before it opens, and do all that does not need the inputs. In
    some calls, which no candidate can know, the gate therefore stays shut until such a kernel would be done
    (`Timed.shut_s`). If the outputs are written then, the call is not bracketed.

    The bracket of a brief call ends, and its outputs are copied, when the GPU has no more work of the worker's. Only
    then may the worker's stream say that the call is done. So a call that says so earlier is no shorter. If the outputs
    are others by then, the call is not bracketed, and they are copied again.

    A worker that waits at the gate on the host, or that is not ready in time, names its outputs when the call is done.
    The judge copies them from where the outputs of the call before were. If they are elsewhere, it copies them once
    they are named, and the bracket ends then.
    """

    def __init__(self, exchange: Exchange, turn: Turn, packed: Packed, timed: Timed, size: int) -> None:
        self._exchange, self._turn, self._packed, self._timed = exchange, turn, packed, timed
        self.copy = exchange.memory_for_copy(size, packed)
        self.expected: PlacedOutputs | None = None  # the outputs, if they lie where those of the last call were
        self._outputs: PlacedOutputs | None = None
        self._exposed = self._begun = False
        self._gate = _shut(exchange)

    def __call__(self, wait: Wait) -> None:
        """Waits until the worker is ready, and lets the call begin if its outputs cannot be named before."""
        self._exposed = not wait(self._gate.is_ready, self._timed.hold_s)
        if self._exposed or self._timed.on_host:
            self._begin()
            if self.expected is not None:
                self._copy(self.expected)
            self._turn.let_run()

    def named(self, outputs: PlacedOutputs | None) -> None:
        """Takes the outputs that the worker has named, and lets the call begin if it has not begun.

        `outputs` is None if the judge is not prepared to copy them in its turn.
        """
        self._outputs = outputs
        if not self._begun:
            brief = self._timed.brief and outputs is not None
            self._begin(outputs, brief=brief)
            if outputs is not None and brief:
                self._turn.await_idle()
                outputs.copy()
                self._turn.let_end()
                outputs.look_for_late_work()
            elif outputs is not None:
                self._copy(outputs)
            self._turn.let_run()
        elif outputs is not None:
            if outputs is not self.expected:
                self._copy(outputs)
            outputs.overwrite()

    def finish(self, read: Callable[[], None]) -> tuple[Bracket, Written]:
        """Does what GatedCall says. The outputs have been named.

        Outputs for which the judge was not prepared are copied by `read` now. The worker could finish them until then,
        so the bracket ends there, too, and the call counts as exposed.
        """
        self._turn.end()
        if self._outputs is None:
            read()
            self._turn.await_call()
        written = self._exchange.written(self._packed)
        self._exchange.wait()
        lost_ms = self._turn.lost_ms
        unbracketed = False
        if self._outputs is not None:
            late = self._outputs.had_late_work
            unbracketed = late or self._outputs.had_early_work
            if late:
                self._outputs.copy()
            self._outputs.settle(written, self._packed)
        exposed = unbracketed or self._exposed or lost_ms > 0 or self._outputs is None
        return Bracket(self._turn.bracket_ms + lost_ms, exposed=exposed, unbracketed=unbracketed), written

    def close(self) -> None:
        """Ends the judge's turn."""
        self._turn.end()

    def _begin(self, outputs: PlacedOutputs | None = None, *, brief: bool = False) -> None:
        """Enqueues all that comes before the call, and the opening of the gate."""
        self._begun = True
        if not brief:
            self._gate.let_end()
        if self._packed.on_host:
            self._exchange.fill(self._packed)  # copies from the host would wait for the blocking kernel
        self._turn.take()
        if not self._packed.on_host:
            self._exchange.enqueue_inputs(self._packed)
        if outputs is not None:
            outputs.overwrite()
            if self._timed.shut_s:
                self._turn.give_away(self._timed.shut_s)
                self._turn.take()
        self._exchange.empty_cache()
        if outputs is not None:
            outputs.look_for_early_work()
        self._turn.open_gate()

    def _copy(self, outputs: PlacedOutputs) -> None:
        self._turn.await_call()
        outputs.copy()


def _shut(exchange: Exchange) -> Gate:
    assert exchange.gate is not None
    exchange.gate.shut()
    return exchange.gate
