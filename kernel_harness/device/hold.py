"""Holds: what keeps the device from beginning a timed call before the host has enqueued it.

Without a hold, the device would wait within the call for the host, and the time of the call would contain that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from kernel_harness.device import device_memory
from kernel_harness.ipc.gate import GATE_BYTES, Gate

_SLEEP_CYCLES = 1 << 20  # half a millisecond on an H200


class Hold(Protocol):
    """A way to hold the device back."""

    def begin(self) -> None:
        """Makes the current stream wait before the work that is enqueued next."""

    def end(self) -> None:
        """Is called when the call is enqueued."""


class Sleep:
    """Holds the current stream for a number of the device's clock cycles, `cycles`."""

    def __init__(self, cycles: int = _SLEEP_CYCLES) -> None:
        self._cycles = cycles

    def begin(self) -> None:
        """Enqueues a kernel that takes `cycles` clock cycles."""
        torch.cuda._sleep(self._cycles)

    def end(self) -> None:
        """Does nothing."""


class AtGate:
    """Holds the current stream until the judge opens `gate`. `enqueued` is called when the call is enqueued.

    The constructor raises CannotShare if streams of `torch_device` cannot wait for a word of the host's memory, or
    cannot write one.
    """

    def __init__(self, gate: Gate, torch_device: str, enqueued: Callable[[], None]) -> None:
        self._gate, self._enqueued = gate, enqueued
        self._driver, _ = device_memory.driver_of(torch_device)
        offset = device_memory.register(gate.address, GATE_BYTES, torch_device)
        self._open, self._begun = gate.address_of_open + offset, gate.address_of_begun + offset
        self._end, self._done = gate.address_of_end + offset, gate.address_of_done + offset
        self._beside = torch.cuda.Stream()
        self._wait_for(self._open, 0)  # does not wait: only shows whether the device can wait for a word and write one
        self._write(self._done, 0)

    def begin(self) -> None:
        """Makes the current stream wait until the gate is open. Another stream then says that the call has begun."""
        with torch.cuda.stream(self._beside):
            self._wait_for(self._open, 1)
            self._write(self._begun, 1)
        self._wait_for(self._open, 1)

    def end(self) -> None:
        """Enqueues the word that the call is done, which the device writes itself, and says that the worker is ready.

        The time between call and word is then short and the same in each call, because the host has no part in it. But
        the device waits before it until the judge lets it: the judge's clock of a short call would contain the time
        that it takes to write the word, and a call that leaves it out would look shorter. Calls `enqueued` at the end.
        """
        self._wait_for(self._end, 1)
        self._write(self._done, 1)
        self._gate.say_ready()
        self._enqueued()

    def _wait_for(self, word: int, value: int) -> None:
        at_least = self._driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        stream = torch.cuda.current_stream().cuda_stream
        self._checked(self._driver.cuStreamWaitValue32(stream, word, value, at_least))

    def _write(self, word: int, value: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self._checked(self._driver.cuStreamWriteValue32(stream, word, value, 0))

    def _checked(self, result: tuple[Any, ...]) -> Any:
        return device_memory.value_of(self._driver, result)
