"""What the judge reads off the records of its blocking kernels, which only a GPU can run."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_harness.device import turn as turns
from kernel_harness.device.turn import Turn


def turn(**records: tuple[float, float, float]) -> Turn:
    """A turn with these records: the first and last reading of the clock, and the time of other processes, in ms."""
    made = Turn.__new__(Turn)
    made._words = np.zeros(turns._WORDS, dtype=np.int64)
    for name, record in records.items():
        start = getattr(turns, f"_{name.upper()}")
        made._words[start : start + 3] = [round(ms * 1e6) for ms in record]
    return made


USUAL = {
    "before": (10.0, 11.0, 0.0), "filled": (11.1, 11.1, 0.0), "after": (12.0, 12.0, 0.0), "copied": (12.1, 12.1, 0.0)
}  # fmt: skip


def test_the_bracket_lasts_from_the_inputs_to_the_turn_after_the_call() -> None:
    assert turn(**USUAL).bracket_ms == pytest.approx(0.9)


def test_the_judge_s_own_work_is_the_writing_of_inputs_and_the_copying_of_outputs() -> None:
    assert turn(**USUAL).around_ms == pytest.approx(0.1 + 0.1)


def test_turns_of_other_processes_before_the_inputs_count() -> None:
    records = {**USUAL, "before": (10.0, 11.0, 0.3)}
    assert turn(**records).bracket_ms == pytest.approx(1.2)
    assert turn(**records).early_ms == pytest.approx(0.3)


def test_outputs_that_were_not_read_in_the_turn_take_no_time_of_it() -> None:
    assert turn(**{**USUAL, "copied": (0.0, 0.0, 0.0)}).around_ms == pytest.approx(0.1)
