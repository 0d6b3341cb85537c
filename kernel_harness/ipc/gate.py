"""The gate: words of the host's memory by which judge and worker begin and end a timed call without messages.

A message takes about a tenth of a millisecond. A process sees a word that the other has written after about a
microsecond.
"""

from __future__ import annotations

import os
from enum import IntEnum

import torch

GATE_BYTES = 4096


class Word(IntEnum):
    """The words of a gate, by their indices. Each is 0 or 1. They lie in different cache lines: each has one writer."""

    READY = 0  # the worker is ready: the judge may open the gate
    OPEN = 16
    BEGUN = 32  # the worker's device has passed the open gate
    MAY_END = 48  # the worker's device may say that the call is done
    DONE = 64


class Gate:
    """The gate of one worker, in `memory`: a flat uint8 tensor of GATE_BYTES bytes that the judge and the worker map.

    The judge shuts the gate before a timed call. The worker says that it is ready once it has enqueued the call behind
    the gate, or once it waits at the gate itself. The judge then writes the inputs and opens the gate. If the worker is
    not ready within a time limit, the judge does the same without waiting longer. The worker, or its device, says that
    the call is done once the outputs are in the memory for outputs. Its device also says when it has passed the open
    gate, and after the call it says that the call is done only when the judge lets it. A candidate can write every
    word, but a wrong word only makes the candidate's own outputs wrong or its own time longer.
    """

    def __init__(self, memory: torch.Tensor) -> None:
        self._words = memory[:GATE_BYTES].view(torch.int32).numpy()

    @property
    def address(self) -> int:
        """Returns the address of the memory, which is a multiple of the page size."""
        return int(self._words.ctypes.data)

    def address_of(self, word: Word) -> int:
        """Returns the address of a 32-bit word, for a device that waits for it or writes it."""
        return self.address + 4 * word

    def shut(self) -> None:
        """Shuts the gate, and clears all other words."""
        self._words[list(Word)] = 0

    def open(self) -> None:
        """Opens the gate: the call that is enqueued behind it begins, or the worker that waits at it makes the call."""
        self._words[Word.OPEN] = 1

    def is_ready(self) -> bool:
        """Returns whether the worker has said that the judge may open the gate (`say_ready`)."""
        return bool(self._words[Word.READY])

    def is_open(self) -> bool:
        """Returns whether the gate is open."""
        return bool(self._words[Word.OPEN])

    def is_done(self) -> bool:
        """Returns whether the worker, or its device, has said that the outputs are in the memory for outputs."""
        return bool(self._words[Word.DONE])

    def say_ready(self) -> None:
        """Tells the judge that it may open the gate.

        At that time the call is enqueued behind the gate, or the worker itself waits at the gate before it makes the
        call. The judge sees the same word in both cases.
        """
        self._words[Word.READY] = 1

    def say_done(self) -> None:
        """Tells the judge that the outputs are in the memory for outputs."""
        self._words[Word.DONE] = 1

    def let_end(self) -> None:
        """Lets the worker's device say that the call is done, as soon as that is so."""
        self._words[Word.MAY_END] = 1

    def end(self) -> None:
        """Ends every wait of the judge's device for this worker, and the wait for the judge after a call."""
        self._words[[Word.DONE, Word.BEGUN, Word.MAY_END]] = 1

    def pass_through(self) -> None:
        """Tells the judge that it may open the gate, and waits until the gate is open, without a time limit.

        The wait does not sleep, because the end of a sleep would be later than the opening.
        """
        self.say_ready()
        while not self.is_open():
            os.sched_yield()  # lets another process run if all cores are busy
