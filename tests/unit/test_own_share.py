"""The rule that a kernel's own CUDA kernels do a share of the work: ranks, rewards, and what is said."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import pytest

from kernel_harness import UserError, reward
from kernel_harness.cli import arguments
from kernel_harness.core.status import Status
from kernel_harness.results import leaderboard
from kernel_harness.results.measurement import FurtherShape, Measurement
from kernel_harness.results.record import Kind, Result, RunSettings
from kernel_harness.session.settings import Settings
from kernel_harness.session.summary import at_further_shape, by_the_rules
from kernel_harness.suite.suite import recorded_settings
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import Timing

SHAPE, SECOND = {"M": 4}, {"M": 8}
REQUIRED = RunSettings(require_own_kernels=90.0)


def record(kernel: str, share: float | None, speedup: float = 2.0, **more: Any) -> Result:
    found = Interval(speedup / 1.01, speedup, speedup * 1.01)
    given = {"timing": Timing((1.0,), (), found.inverse, found), "settings": REQUIRED, "status": Status.PASSED, **more}
    measured = Measurement(own_share=share)
    return Result(kernel, verdict="", shape=SHAPE, source_sha256="ab", measurement=measured, **given)


@pytest.mark.parametrize(("share", "excluded"), [(0.9, False), (1.0, False), (0.89, True), (0.0, True), (None, True)])
def test_a_kernel_with_a_smaller_or_an_unknown_share_is_excluded(share: float | None, excluded: bool) -> None:
    result = record("a", share)
    assert result.is_excluded is excluded
    assert reward(result) == pytest.approx(0.01 if excluded else 2.0 / 1.01)
    assert reward(replace(result, emulated=True)) == (0.01 if excluded else 1.0)
    assert not replace(result, settings=RunSettings()).is_excluded
    assert not replace(result, kind=Kind.BASELINE).is_excluded


def test_an_excluded_kernel_has_no_rank_and_comes_after_those_that_have_one() -> None:
    table = leaderboard.rank([record("library", 0.2, 9.0), record("own", 0.95, 0.5), record("half", 0.5, 1.0)], SHAPE)
    assert [(row["kernel"], row["rank"]) for row in table] == [("own", 1), ("library", None), ("half", None)]
    text = leaderboard.render(table)
    assert "own kernels" in text and "20%" in text and "95%" in text


def test_the_column_is_absent_where_no_share_is_known_and_of_an_emulation_without_the_rule() -> None:
    bare, required = record("a", 1.0, emulated=True, settings=RunSettings()), record("a", 1.0, emulated=True)
    assert "own kernels" not in leaderboard.render(leaderboard.rank([record("a", None)], SHAPE))
    assert "own kernels" not in leaderboard.render(leaderboard.rank([bare], SHAPE))
    assert "own kernels" in leaderboard.render(leaderboard.rank([required], SHAPE))


@pytest.mark.parametrize(
    ("share", "said"), [(0.25, "its own kernels do 25.0% of the work"), (None, "its own kernels do an unknown share")]
)
def test_the_verdict_says_why_there_is_no_rank(share: float | None, said: str) -> None:
    verdict = by_the_rules(record("a", share)).verdict
    assert said in verdict and "90% are required (--require-own-kernels)" in verdict
    assert by_the_rules(record("a", 0.95)).verdict == ""


@pytest.mark.parametrize(
    ("own", "there", "timed", "least"),
    [
        (1.0, 0.5, True, 0.5),
        (0.5, 1.0, True, 0.5),
        (1.0, None, True, None),
        (1.0, None, False, 1.0),
        (None, 1.0, True, None),
    ],
)
def test_the_least_share_of_all_timed_shapes_counts(
    own: float | None, there: float | None, timed: bool, least: float | None
) -> None:
    held = record("a", own, further=(FurtherShape(SECOND),))
    further = replace(record("a", there), shape=SECOND)
    further = further if timed else replace(further, timing=None, verdict="refused")
    assert at_further_shape(held, further).own_share == least


@pytest.mark.parametrize(("text", "percent"), [("90", 90.0), ("90%", 90.0), ("100", 100.0)])
def test_the_option_takes_a_percentage(text: str, percent: float) -> None:
    assert arguments.positive_percent(text) == percent


@pytest.mark.parametrize("text", ["0", "101", "-5", "nan", "much"])
def test_the_option_refuses_other_text(text: str) -> None:
    with pytest.raises((argparse.ArgumentTypeError, ValueError)):
        arguments.positive_percent(text)


@pytest.mark.parametrize("percent", [0, 101, True, "90"])
def test_a_caller_s_wrong_value_is_told(percent: Any) -> None:
    with pytest.raises(UserError, match="require_own_kernels must be a percentage"):
        Settings.of(require_own_kernels=percent)


def test_a_suite_records_the_rule() -> None:
    assert recorded_settings(Settings(require_own_kernels=90.0))["require_own_kernels"] == 90.0
    assert "require_own_kernels" not in recorded_settings(Settings())
