"""Holds: what keeps the device from beginning a timed call before the host has enqueued it.

Without a hold, the device would wait within the call for the host, and the time of the call would contain that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from kernel_harness.device.gate_words import GateWords
from kernel_harness.ipc.gate import Gate, Word

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
        self._words = GateWords(gate, torch_device)
        # This does not wait: it only shows whether the device can wait for a word and write one.
        self._words.wait_for(Word.OPEN, 0)
        self._words.write(Word.DONE, 0)
        torch.cuda._sleep(0)  # its first use loads the kernel, which would wait for a stream that waits at the gate

    def begin(self) -> None:
        """Makes the current stream wait until the gate is open, and then say that the call has begun.

        An empty kernel follows. Where the event that begins the measured time comes right after a word, the times of
        two processes differ by 0.2 us (one standard deviation); after a kernel, by 0.07 us (measured on an H200).
        """
        self._words.wait_for(Word.OPEN)
        self._words.write(Word.BEGUN)
        torch.cuda._sleep(0)

    def end(self) -> None:
        """Enqueues the word that the call is done, which the device writes itself, and says that the worker is ready.

        The time between call and word is then short and the same in each call, because the host has no part in it. But
        the device waits before it until the judge lets it: the judge's clock of a short call would contain the time
        that it takes to write the word, and a call that leaves it out would look shorter. Calls `enqueued` at the end.
        """
        self._words.wait_for(Word.MAY_END)
        self._words.write(Word.DONE)
        self._gate.say_ready()
        self._enqueued()
