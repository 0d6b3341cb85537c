"""What the judge reads off its readings of the GPU's clock, which only a GPU can make."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_harness.device import turn as turns
from kernel_harness.device.turn import Turn


def turn(**readings: float) -> Turn:
    """A turn with these readings of the clock, in ms."""
    made = Turn.__new__(Turn)
    made._words = np.zeros(turns._WORDS, dtype=np.int64)
    for name, ms in readings.items():
        made._words[getattr(turns, f"_{name.upper()}")] = round(ms * 1e6)
    return made


USUAL = {"before": 11.0, "filled": 11.1, "after": 12.0, "lost": 0.0}


def test_the_bracket_lasts_from_the_inputs_to_the_end_of_the_call() -> None:
    assert turn(**USUAL).bracket_ms == pytest.approx(0.9)


def test_the_time_that_other_processes_had_is_known_beside_the_bracket() -> None:
    away = turn(**{**USUAL, "lost": 0.5})
    assert away.bracket_ms == pytest.approx(0.9) and away.lost_ms == pytest.approx(0.5)
