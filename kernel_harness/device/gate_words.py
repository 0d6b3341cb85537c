"""The words of a gate, for which streams of a CUDA device wait and which they write."""

from __future__ import annotations

import torch

from kernel_harness.device import device_memory
from kernel_harness.ipc.gate import GATE_BYTES, Gate, Word


class GateWords:
    """The words of `gate` as the current stream of the device `torch_device` uses them.

    Both methods enqueue, and raise CannotShare if the device cannot do so. So does the constructor.
    """

    def __init__(self, gate: Gate, torch_device: str) -> None:
        self._device = torch_device
        self._driver, _ = device_memory.driver_of(torch_device)
        offset = device_memory.register(gate.address, GATE_BYTES, torch_device)
        self._addresses = {word: gate.address_of(word) + offset for word in Word}

    def wait_for(self, word: Word, value: int = 1) -> None:
        """Makes the current stream wait until the word is at least `value`."""
        at_least = self._driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        with torch.cuda.device(self._device):  # another thread may have chosen another GPU
            stream = torch.cuda.current_stream(self._device).cuda_stream
            found = self._driver.cuStreamWaitValue32(stream, self._addresses[word], value, at_least)
        device_memory.value_of(self._driver, found)

    def write(self, word: Word, value: int = 1) -> None:
        """Makes the current stream write the word."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream(self._device).cuda_stream
            found = self._driver.cuStreamWriteValue32(stream, self._addresses[word], value, 0)
        device_memory.value_of(self._driver, found)
