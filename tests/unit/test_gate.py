"""The gate, at which timed calls begin, and the judge's part of such a call. A thread stands for the worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from kernel_harness.device.cpu import Emulated
from kernel_harness.ipc.gate import GATE_BYTES, Gate, Word
from kernel_harness.ipc.messages import Purpose
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.ipc.shared_memory import map_shared
from kernel_harness.workers.exchange import Exchange
from kernel_harness.workers.gated_call import HostCall, Timed


def packed() -> Packed:
    return pack([torch.tensor([1.0, 2.0, 3.0, 4.0])], device="cpu")


class Shared:
    """What the judge shares with a worker, and the same memory as the worker maps it."""

    def __init__(self) -> None:
        self.mapped: dict[Purpose, torch.Tensor] = {}
        self.exchange = Exchange(
            Emulated(),
            lambda share, descriptors: self.mapped.update({share.purpose: map_shared(descriptors[0], share.size)}),
        )
        self.exchange.share_gate()
        for purpose in (Purpose.INPUTS, Purpose.OUTPUTS):
            self.exchange.reserve(purpose, 1 << 12)
        self.worker_gate = Gate(self.mapped[Purpose.GATE])

    @property
    def input(self) -> torch.Tensor:
        return packed().leaves[0].view(self.mapped[Purpose.INPUTS])

    @property
    def output(self) -> torch.Tensor:
        return self.mapped[Purpose.OUTPUTS][:16].view(torch.float32)


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared()
    yield made
    made.exchange.close()


def wait(condition: Callable[[], bool], limit_s: float | None) -> bool:
    end = time.monotonic() + (10 if limit_s is None else limit_s)
    while not condition() and time.monotonic() < end:
        time.sleep(1e-4)
    return condition()


def test_the_words_of_a_gate_are_seen_through_another_mapping(shared: Shared) -> None:
    judge, worker = shared.exchange.gate, shared.worker_gate
    assert judge is not None
    judge.shut()
    assert not (judge.is_ready() or worker.is_open() or judge.is_done())
    worker.say_ready()
    judge.open()
    worker.say_done()
    assert judge.is_ready() and worker.is_open() and judge.is_done()
    judge.shut()
    assert not (judge.is_ready() or worker.is_open() or judge.is_done())


def test_a_device_finds_the_words_by_their_addresses(shared: Shared) -> None:
    gate = shared.worker_gate
    words = shared.mapped[Purpose.GATE].view(torch.int32)
    gate.shut()
    gate.open()
    assert words[(gate.address_of(Word.OPEN) - gate.address) // 4] == 1
    assert words[(gate.address_of(Word.DONE) - gate.address) // 4] == 0
    assert gate.address % GATE_BYTES == 0


def test_the_inputs_are_written_once_the_call_is_enqueued(shared: Shared) -> None:
    """The worker sees no inputs before it is ready, and its outputs are copied before it changes them again."""
    shared.input.zero_()
    call = HostCall(shared.exchange, packed(), Timed(10.0), 16)
    before = []

    def worker() -> None:
        time.sleep(0.02)
        before.append(shared.input.clone())
        shared.worker_gate.pass_through()
        shared.output.copy_(2 * shared.input)
        time.sleep(0.02)
        shared.worker_gate.say_done()

    thread = threading.Thread(target=worker)
    thread.start()
    call(wait)
    thread.join()
    shared.output.zero_()
    bracket, _ = call.finish(lambda: None)

    assert before[0].tolist() == [0.0] * 4
    assert call.copy.view(torch.float32).tolist() == [2.0, 4.0, 6.0, 8.0]
    assert not bracket.exposed
    assert bracket.bracket_ms >= 20


def test_a_call_that_is_not_enqueued_in_time_begins_all_the_same_and_is_exposed(shared: Shared) -> None:
    call = HostCall(shared.exchange, packed(), Timed(0.002), 16)

    def worker() -> None:
        while not shared.worker_gate.is_open():
            time.sleep(1e-4)
        shared.worker_gate.say_done()

    thread = threading.Thread(target=worker)
    thread.start()
    call(wait)
    thread.join()

    assert call.finish(lambda: None)[0].exposed
    assert shared.input.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_words_of_the_call_before_do_not_count(shared: Shared) -> None:
    shared.worker_gate.say_ready()
    shared.worker_gate.say_done()
    call = HostCall(shared.exchange, packed(), Timed(0.002), 16)

    assert not wait(shared.worker_gate.is_done, 0.01)
    assert call.copy.numel() == 16


def test_outputs_are_copied_when_they_are_there_if_the_worker_sends_a_message_before(shared: Shared) -> None:
    """A worker that asks for a build in a timed call ends the judge's wait before its outputs are there."""
    shared.output.zero_()
    call = HostCall(shared.exchange, packed(), Timed(10.0), 16)
    shared.worker_gate.say_ready()
    call(lambda condition, limit_s: condition())

    def worker() -> None:
        time.sleep(0.02)
        shared.output.copy_(2 * shared.input)
        shared.worker_gate.say_done()

    thread = threading.Thread(target=worker)
    thread.start()
    bracket, _ = call.finish(lambda: None)
    thread.join()

    assert call.copy.view(torch.float32).tolist() == [2.0, 4.0, 6.0, 8.0]
    assert bracket.bracket_ms >= 20


def test_outputs_that_were_copied_are_not_copied_again(shared: Shared) -> None:
    call = HostCall(shared.exchange, packed(), Timed(10.0), 16)
    shared.worker_gate.say_ready()
    shared.output.fill_(1)
    call(lambda condition, limit_s: True)
    shared.output.zero_()
    call.finish(lambda: None)

    assert call.copy.view(torch.float32).tolist() == [1.0] * 4


def test_a_write_to_an_input_is_found_when_the_call_is_done(shared: Shared) -> None:
    call = HostCall(shared.exchange, packed(), Timed(10.0), 16)
    shared.worker_gate.say_ready()
    call(lambda condition, limit_s: condition())
    shared.input[2] = 0.0
    shared.worker_gate.say_done()

    assert call.finish(lambda: None)[1].inputs == (0,)
