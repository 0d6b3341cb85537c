"""The judge's turn on a GPU: a blocking kernel, behind which the judge enqueues its work around a timed call.

A GPU runs the work of one process at a time. While the judge's stream has work, work that a candidate has enqueued on
any stream waits, for at most a time slice of about 2 ms (measured on an H200).
"""

from __future__ import annotations

import ctypes
import functools
import time
import weakref
from typing import Any

import torch

from kernel_harness.device import device_memory
from kernel_harness.device.gate_words import GateWords
from kernel_harness.device.l2_cache import L2Cache
from kernel_harness.ipc.gate import Gate, Word

# `block`: one thread reads a word of the host's memory until the word is not 0, or until `limit` ns have passed. At the
# end it writes the time (%globaltimer, in ns) to `record`.
_PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry block(.param .u64 word, .param .u64 record, .param .u64 limit)
{
    .reg .pred %p<4>;
    .reg .b32 %r<2>;
    .reg .b64 %d<10>;
    ld.param.u64 %d0, [word];
    ld.param.u64 %d1, [record];
    ld.param.u64 %d2, [limit];
    mov.u64 %d3, %globaltimer;
AGAIN:
    mov.u64 %d6, %globaltimer;
    ld.volatile.u32 %r0, [%d0];
    setp.ne.u32 %p1, %r0, 0;
    sub.u64 %d8, %d6, %d3;
    setp.gt.u64 %p2, %d8, %d2;
    or.pred %p3, %p1, %p2;
    @!%p3 bra AGAIN;
    membar.sys;
    st.volatile.u64 [%d1], %d6;
    ret;
}
// Runs from before `begin` has a value other than 0 until `end` has one, but not longer than `limit` ns. Writes to
// `record` the sum of the times between in which it did not run, each longer than SHORTEST_NS.
.visible .entry watch(.param .u64 begin, .param .u64 end, .param .u64 record, .param .u64 limit)
{
    .reg .pred %p<6>;
    .reg .b64 %d<14>;
    ld.param.u64 %d0, [begin];
    ld.param.u64 %d1, [end];
    ld.param.u64 %d2, [record];
    ld.param.u64 %d3, [limit];
    mov.u64 %d4, %globaltimer;
    mov.u64 %d5, %d4;
    mov.u64 %d6, 0;
AGAIN:
    mov.u64 %d7, %globaltimer;
    sub.u64 %d8, %d7, %d5;
    mov.u64 %d5, %d7;
    setp.gt.u64 %p1, %d8, SHORTEST_NS;
    @%p1 add.u64 %d6, %d6, %d8;
    ld.volatile.u64 %d9, [%d0];
    setp.eq.u64 %p2, %d9, 0;
    @%p2 mov.u64 %d6, 0;
    ld.volatile.u64 %d10, [%d1];
    setp.ne.u64 %p3, %d10, 0;
    sub.u64 %d11, %d7, %d4;
    setp.gt.u64 %p4, %d11, %d3;
    or.pred %p5, %p3, %p4;
    @!%p5 bra AGAIN;
    st.volatile.u64 [%d2], %d6;
    ret;
}
"""
# A GPU that goes to another process and back is away for at least 0.1 ms. One look at the clock takes 2 us.
_SHORTEST_NS = 40_000
# The indices of 64-bit words in the judge's memory: the word that ends the blocking kernel, a word that is never 0, and
# the readings of the clock. A kernel that is ended from the start only reads the clock.
_END, _ENDED = 0, 8
_BEFORE, _WRITTEN, _FILLED, _AFTER, _LOST = 16, 24, 32, 40, 48
_WORDS = 56
# The blocking kernel ends after so long if the judge does not end it, for example because the judge was killed.
_LIMIT_NS = 1_000_000_000


class Turn:
    """The judge's turns around the timed calls of one worker, whose calls begin and end at `gate`.

    A call takes these steps. All but the last enqueue work on the judge's current stream:

    1. `take`: a blocking kernel begins, so that no other process gets the device between the following steps. Another
       kernel watches whether one gets it all the same: to write gigabytes of inputs takes longer than a time slice.
    2. The judge enqueues the work that writes the inputs.
    3. `open_gate`: the clock is read, which begins the bracket, and the device opens the gate.
    4. `await_call`: the stream waits for the word by which the worker says that the call is done, and the clock is
       read, which ends the bracket. It may follow later, or again, if the judge knows only then where the outputs are.
       Or, for a call that is shorter than a time slice, `await_idle`: the stream only waits until the worker has passed
       the gate, and gets the device when all streams of the worker have no more work, or wait.
    5. The judge enqueues its copies of the outputs.
    6. After `await_idle`, `let_end`: the worker's stream goes on to the word that the call is done.
    7. `let_run`: the blocking kernel ends.

    `give_away`, between the second step and the third, ends the turn, and `take` begins another.

    `end` may be called at any time, and lets everything run that is enqueued. The constructor raises CannotShare if the
    device cannot run the kernel, wait for the gate or open it.
    """

    def __init__(self, gate: Gate, torch_device: str) -> None:
        self._gate, self._device = gate, torch_device
        self._driver, _ = device_memory.driver_of(torch_device)
        self._block, self._watch = _kernels(torch_device)
        self._beside = torch.cuda.Stream(torch_device)
        self._gate_words = GateWords(gate, torch_device)
        weakref.finalize(self, self._driver.cuMemHostUnregister, gate.address).atexit = False
        self._memory = torch.zeros(_WORDS, dtype=torch.int64, pin_memory=True)
        self._words = self._memory.numpy()
        at = self._memory.data_ptr()
        self._base = at + device_memory.seen_from_device(at, torch_device)

    def take(self) -> None:
        """Begins the judge's turn: enqueues the blocking kernel. The judge has shut the gate before.

        Also makes lines of the L2 cache normal that an earlier call has marked as persisting.
        """
        L2Cache(self._device).release_persisting()
        self._words[:] = 0
        self._words[_ENDED] = 1
        self._launch(self._watch, self._beside, self._at(_BEFORE), self._at(_WRITTEN), self._at(_LOST), 2 * _LIMIT_NS)
        self._run(_END, _BEFORE)

    def give_away(self, seconds: float) -> None:
        """Ends the turn, waits for what is enqueued, and leaves the GPU to others for so long."""
        self._words[_END] = self._words[_WRITTEN] = 1
        torch.cuda.synchronize(self._device)
        time.sleep(seconds)

    def open_gate(self) -> None:
        """Enqueues the reading of the clock that begins the bracket, and the opening of the gate."""
        self._run(_ENDED, _WRITTEN)
        self._stream.wait_stream(self._beside)
        self._run(_ENDED, _FILLED)
        self._gate_words.write(Word.OPEN)

    def await_call(self) -> None:
        """Enqueues the wait for the end of the worker's call, and the reading of the clock that ends the bracket."""
        self._gate_words.wait_for(Word.DONE)
        self._run(_ENDED, _AFTER)

    def await_idle(self) -> None:
        """Enqueues the wait until the worker's device has begun the call, and the reading of the clock.

        The GPU then works on for the worker, and comes back to the judge when the worker has nothing more for it to do.
        No word of the worker has a part in when that is.
        """
        self._gate_words.wait_for(Word.BEGUN)
        self._run(_ENDED, _AFTER)

    def let_end(self) -> None:
        """Enqueues what lets the worker's stream say that the call is done, and the wait for that."""
        self._gate_words.write(Word.MAY_END)
        self._gate_words.wait_for(Word.DONE)

    def let_run(self) -> None:
        """Ends the blocking kernel."""
        self._words[_END] = 1

    def end(self) -> None:
        """Ends the blocking kernel and the wait for the worker, whatever the worker does."""
        self._gate.end()
        self.let_run()
        if not self._words[_WRITTEN]:
            self._words[_WRITTEN] = 1

    @property
    def bracket_ms(self) -> float:
        """Returns the time from the end of the inputs' writing to the end of the call, by the GPU's clock.

        It is known when the stream has been synchronized. No other process can set either end. The time contains about
        0.29 ms in which the GPU goes from process to process, the same in each call.
        """
        return float(self._words[_AFTER] - self._words[_FILLED]) / 1e6

    @property
    def lost_ms(self) -> float:
        """Returns the time that other processes had on the GPU, in ms, while the judge wrote the inputs."""
        return float(self._words[_LOST]) / 1e6

    def _run(self, word: int, record: int) -> None:
        self._launch(self._block, self._stream, self._at(word), self._at(record), _LIMIT_NS)

    def _launch(self, kernel: Any, stream: torch.cuda.Stream, *values: int) -> None:
        types = (ctypes.c_uint64,) * len(values)
        one = (1, 1, 1)
        with torch.cuda.device(self._device):
            launched = self._driver.cuLaunchKernel(kernel, *one, *one, 0, stream.cuda_stream, (values, types), 0)
        self._checked(launched)

    def _at(self, word: int) -> int:
        return int(self._base + 8 * word)

    @property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._device)

    def _checked(self, result: tuple[Any, ...]) -> Any:
        return device_memory.value_of(self._driver, result)


@functools.cache
def _kernels(torch_device: str) -> tuple[Any, Any]:
    """Returns the two kernels, which the driver compiles for the device. Raises CannotShare if it cannot."""
    driver, _ = device_memory.driver_of(torch_device)
    with torch.cuda.device(torch_device):
        text = _PTX.replace("SHORTEST_NS", str(_SHORTEST_NS)).encode() + b"\0"
        module = device_memory.value_of(driver, driver.cuModuleLoadData(text))
        block, watch = (driver.cuModuleGetFunction(module, name) for name in (b"block", b"watch"))
        return device_memory.value_of(driver, block), device_memory.value_of(driver, watch)
