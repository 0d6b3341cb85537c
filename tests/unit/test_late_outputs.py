"""What ends a timed call on a GPU. `DeviceCall` is the real one; what it drives stands in for a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernel_harness.ipc.gate import GATE_BYTES, Gate
from kernel_harness.sandbox import gated_call
from kernel_harness.sandbox.gated_call import Bracket, DeviceCall, Timed


class Anything:
    """Has every method, which does nothing."""

    bracket_ms, around_ms, early_ms = 0.3, 0.1, 0.0

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: True


def bracket(monkeypatch: pytest.MonkeyPatch, *, fits: bool) -> Bracket:
    """The bracket of a call whose outputs the judge copies 2 s after the gate was opened.

    `fits`: the judge's memory suffices, so that it copies them in its turn.
    """
    now = [0.0]
    monkeypatch.setattr(gated_call, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def read(at_leisure: bool) -> bool:
        now[0] += 2.0 if at_leisure else 0.0
        return fits or at_leisure

    exchange = Anything()
    exchange.gate = Gate(torch.zeros(GATE_BYTES, dtype=torch.uint8))
    exchange.memory_for_copy = lambda *_: SimpleNamespace(is_cuda=True)
    call = DeviceCall(exchange, Anything(), SimpleNamespace(on_host=False), Timed(0.1), 64)  # type: ignore[arg-type]
    call(lambda condition, limit_s: True)
    return call.finish(read)[0]


def test_outputs_that_are_copied_later_end_the_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker could otherwise compute them after its call, which no clock would see."""
    found = bracket(monkeypatch, fits=False)

    assert found.bracket_ms >= 2000 and found.exposed


def test_outputs_that_are_copied_in_the_turn_leave_the_gpus_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bracket(monkeypatch, fits=True)

    assert found.bracket_ms == 0.3 and not found.exposed
