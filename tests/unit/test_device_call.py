"""The order of the judge's steps in a timed call on a GPU, on which judge and worker take turns."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernel_harness.ipc.input_memory import Written
from kernel_harness.workers.gated_call import Bracket, DeviceCall, Timed


class Steps:
    """Stands for the gate, the exchange, the judge's turn and the outputs. Each call of a method is noted by name."""

    def __init__(
        self, on_host: bool = False, early_work: bool = False, late_work: bool = False, lost_ms: float = 0.0
    ) -> None:
        self.done: list[str] = []
        self.gate = self.turn = self
        self.had_early_work, self.had_late_work = early_work, late_work
        self.bracket_ms, self.lost_ms = 2.0, lost_ms
        self.packed: Any = SimpleNamespace(on_host=on_host)

    def __getattr__(self, name: str) -> Callable[..., object]:
        def step(*arguments: object) -> object:
            self.done.append(name)
            return Written() if name == "written" else torch.empty(0)

        return step

    def judged(
        self, *, ready: bool = True, prepared: bool = True, waits_on_host: bool = False, expected: bool = False,
        brief: bool = False, shut_s: float = 0.0,
    ) -> Bracket:  # fmt: skip
        """The bracket of a call whose worker is `ready` in time.

        `prepared`: the judge can copy the outputs in its turn. `expected`: they lie where it expected them.
        """

        def wait(condition: Callable[[], object], limit_s: float | None) -> bool:
            condition()
            return ready

        call = DeviceCall(self, self, self.packed, Timed(1.0, waits_on_host, brief, shut_s), 0)  # type: ignore[arg-type]
        call.expected = self if expected else None  # type: ignore[assignment]
        self.done.append("the request")
        call(wait)
        self.done.append("the outputs are named")
        call.named(self if prepared else None)  # type: ignore[arg-type]
        self.done.append("the last reply")
        return call.finish(lambda: self.done.append("read"))[0]


def test_all_work_around_a_call_is_one_turn_that_begins_when_the_outputs_are_named() -> None:
    steps = Steps()
    bracket = steps.judged()

    assert steps.done == [
        "memory_for_copy", "shut", "the request", "is_ready", "the outputs are named", "let_end", "take",
        "enqueue_inputs", "overwrite", "empty_cache", "look_for_early_work", "open_gate", "await_call", "copy",
        "let_run", "the last reply", "end", "written", "wait", "settle",
    ]  # fmt: skip
    assert bracket == Bracket(2.0)


def test_a_brief_call_may_say_that_it_is_done_only_when_its_outputs_are_copied() -> None:
    steps = Steps()
    bracket = steps.judged(brief=True)

    opened = steps.done.index("open_gate")
    assert steps.done[opened : opened + 6] == [
        "open_gate", "await_idle", "copy", "let_end", "look_for_late_work", "let_run"
    ]  # fmt: skip
    assert steps.done.count("let_end") == 1 and bracket == Bracket(2.0)


def test_outputs_that_are_written_after_the_bracket_are_copied_again() -> None:
    steps = Steps(late_work=True)
    assert steps.judged(brief=True) == Bracket(2.0, exposed=True, unbracketed=True)
    assert steps.done.count("copy") == 2


@pytest.mark.parametrize("case", [{"ready": False}, {"prepared": False}, {"waits_on_host": True}])
def test_a_brief_call_whose_outputs_are_not_named_before_it_begins_may_end_by_itself(case: dict[str, bool]) -> None:
    steps = Steps()
    steps.judged(brief=True, **case)
    assert steps.done.index("let_end") < steps.done.index("open_gate") and "await_idle" not in steps.done


@pytest.mark.parametrize(("ready", "waits_on_host"), [(True, True), (False, False)])
def test_outputs_that_are_named_after_the_call_began_are_copied_then(ready: bool, waits_on_host: bool) -> None:
    steps = Steps()
    bracket = steps.judged(ready=ready, waits_on_host=waits_on_host)

    named = steps.done.index("the outputs are named")
    assert steps.done.index("open_gate") < steps.done.index("let_run") < named
    assert steps.done[named + 1 : named + 4] == ["await_call", "copy", "overwrite"]
    assert steps.done.count("open_gate") == steps.done.count("overwrite") == 1
    assert bracket.exposed is not ready


def test_outputs_where_those_of_the_last_call_were_are_copied_when_the_call_is_done() -> None:
    steps = Steps()
    steps.judged(waits_on_host=True, expected=True)

    named = steps.done.index("the outputs are named")
    assert steps.done.index("await_call") < steps.done.index("copy") < named
    assert steps.done.count("copy") == 1 and steps.done[named + 1] == "overwrite"


def test_memory_in_which_outputs_are_only_expected_is_not_overwritten() -> None:
    """It may hold something else by now that the candidate needs."""
    steps = Steps()
    steps.judged(waits_on_host=True, expected=True, prepared=False)
    assert "overwrite" not in steps.done


def test_inputs_on_the_host_are_written_before_anything_blocks_the_stream() -> None:
    steps = Steps(on_host=True)
    steps.judged(prepared=False)
    assert steps.done.index("fill") < steps.done.index("take") and "enqueue_inputs" not in steps.done


def test_outputs_that_are_copied_later_end_the_bracket_and_make_the_call_exposed() -> None:
    """A worker could otherwise compute them after its call, which no clock would see."""
    steps = Steps()
    bracket = steps.judged(prepared=False)

    assert steps.done.index("end") < steps.done.index("read") < steps.done.index("await_call")
    assert bracket.exposed


def test_a_call_whose_outputs_are_written_before_the_gate_opens_is_not_bracketed() -> None:
    assert Steps(early_work=True).judged() == Bracket(2.0, exposed=True, unbracketed=True)


def test_a_gate_that_stays_shut_gives_the_gpu_away_before_the_outputs_are_looked_at() -> None:
    steps = Steps()
    steps.judged(shut_s=0.01)
    taken = steps.done.index("take")
    assert steps.done[taken : taken + 8] == [
        "take", "enqueue_inputs", "overwrite", "give_away", "take", "empty_cache", "look_for_early_work", "open_gate"
    ]  # fmt: skip


def test_closing_ends_the_turn_whatever_has_happened() -> None:
    steps = Steps()
    DeviceCall(steps, steps, steps.packed, Timed(1.0), 0).close()  # type: ignore[arg-type]
    assert steps.done[-1] == "end"


def test_the_time_that_another_process_had_while_the_inputs_were_written_counts_and_exposes_the_call() -> None:
    assert Steps(lost_ms=0.5).judged() == Bracket(2.5, exposed=True)
