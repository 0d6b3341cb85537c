"""How long the phases of a thread's work take."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kernel_harness.core import phases
from kernel_harness.core.phases import phase

Passes = Callable[[float], None]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """A function that lets seconds pass. The clock begins at 100 s."""
    now_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])

    def later(seconds: float) -> None:
        now_s[0] += seconds

    return later


def in_a_thread(work: Callable[[], None]) -> None:
    """Calls a function in a new thread: what a thread has recorded stays with it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_phases_of_a_thread_add_up_to_its_time(passes: Passes) -> None:
    found: list[dict[str, float]] = []

    def work() -> None:
        phases.record("start", 97.0)
        passes(1)
        with phase("checks"):
            passes(2)
            with phase("calls"):
                passes(4)
            passes(8)
        found.append(phases.taken())
        passes(16)
        found.append(phases.taken())

    in_a_thread(work)
    assert found == [{"start": 3, "other": 1, "checks": 10, "checks / calls": 4}, {"other": 16}]


def test_a_phase_that_an_exception_ends_has_its_time(passes: Passes) -> None:
    found: list[dict[str, float]] = []

    @phase("calls")
    def fails() -> None:
        passes(1)
        raise ValueError

    def work() -> None:
        phases.record("start", 100.0)
        with pytest.raises(ValueError):
            fails()
        passes(2)
        found.append(phases.taken())

    in_a_thread(work)
    assert found == [{"start": 0, "calls": 1, "other": 2}]


def test_a_thread_that_records_nothing_has_no_phases(passes: Passes) -> None:
    found: list[dict[str, float]] = []

    def work() -> None:
        with phase("calls"):
            passes(1)
        found.append(phases.taken())

    in_a_thread(lambda: phases.record("start", 100.0))
    in_a_thread(work)
    assert found == [{}]
