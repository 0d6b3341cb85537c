"""The order of the judge's steps in a timed call on a GPU, on which judge and worker take turns."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernel_harness.ipc.input_memory import Written
from kernel_harness.ipc.packed import Packed, pack
from kernel_harness.sandbox.gated_call import Bracket, DeviceCall, Timed

PACKED: Packed = pack([torch.arange(4.0)], device="cpu")


class Steps:
    """Stands for the gate, the exchange and the judge's turn. Each call of a method is noted by its name."""

    def __init__(self, early_ms: float = 0.0, on_host: bool = False) -> None:
        self.done: list[str] = []
        self.gate, self.turn, self.early_ms = self, self, early_ms
        self.bracket_ms, self.around_ms = 2.0, 0.5
        self.packed: Any = SimpleNamespace(on_host=on_host)

    def __getattr__(self, name: str) -> Callable[..., object]:
        def step(*arguments: object) -> object:
            self.done.append(name)
            return Written() if name == "written" else torch.empty(0)

        return step

    def call(self, *, ready: bool = True) -> DeviceCall:
        made = DeviceCall(self, self, self.packed, Timed(1.0), 0)  # type: ignore[arg-type]
        made.copy = SimpleNamespace(is_cuda=True)  # type: ignore[assignment]
        self.done.append("the request")
        made(lambda condition, limit_s: (condition(), ready)[1])
        return made

    def finished(self, call: DeviceCall, *, prepared: bool = True) -> Bracket:
        def read(at_leisure: bool) -> bool:
            self.done.append("read at leisure" if at_leisure else "read")
            return prepared or at_leisure

        return call.finish(read)[0]


def test_the_judge_has_the_gpu_before_the_worker_is_asked_and_until_the_outputs_are_copied() -> None:
    steps = Steps()
    bracket = steps.finished(steps.call())

    assert steps.done == [
        "memory_for_copy", "shut", "enqueue_surround", "take", "enqueue_inputs", "enqueue_rest", "the request",
        "is_ready", "let_inputs", "is_filled", "open", "is_done", "read", "outputs_enqueued", "written", "end", "wait",
    ]  # fmt: skip
    assert bracket == Bracket(2.0, 0.5)


def test_inputs_on_the_host_are_written_once_nothing_blocks_the_stream() -> None:
    steps = Steps(on_host=True)
    steps.call()
    assert steps.done.index("let_inputs") < steps.done.index("enqueue_inputs") < steps.done.index("is_filled")


def test_outputs_that_are_copied_after_the_turn_make_the_call_exposed() -> None:
    steps = Steps()
    bracket = steps.finished(steps.call(), prepared=False)
    assert steps.done.index("end") < steps.done.index("read at leisure")
    assert bracket.exposed


@pytest.mark.parametrize(("early_ms", "exposed"), [(0.03, False), (0.3, True)])
def test_work_of_the_candidate_before_the_call_makes_the_call_exposed(early_ms: float, exposed: bool) -> None:
    """A reading of the clock takes microseconds, and a turn of another process a third of a millisecond."""
    steps = Steps(early_ms)
    assert steps.finished(steps.call()).exposed is exposed


def test_a_call_that_is_not_enqueued_in_time_is_exposed() -> None:
    steps = Steps()
    assert steps.finished(steps.call(ready=False)).exposed


def test_closing_ends_the_turn_whatever_has_happened() -> None:
    steps = Steps()
    steps.call().close()
    assert steps.done[-1] == "end"
