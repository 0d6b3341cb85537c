"""Several timed shapes: which they are, the mean of their speedups, and what a leaderboard makes of it."""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.product import PROBLEM as PRODUCT

from kernel_harness import UserError, reward
from kernel_harness.checking import timed_shapes
from kernel_harness.checking.cases import Reference
from kernel_harness.checking.plan import plan
from kernel_harness.cli import arguments
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.peaks import Peaks
from kernel_harness.problem import sizing
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.distributions import OWN
from kernel_harness.problem.errors import ProblemError
from kernel_harness.problem.problem import Problem, load, shape_text
from kernel_harness.results import comparison, leaderboard, ranking
from kernel_harness.results.measurement import FurtherShape
from kernel_harness.results.record import (
    Kind,
    Result,
    RunSettings,
    at_each_shape,
    from_line,
    to_line,
    without_emulated_speedup,
)
from kernel_harness.session import cohorts
from kernel_harness.session.further import FurtherPlace, FurtherTiming
from kernel_harness.session.run import RunContext, SilentObserver
from kernel_harness.session.settings import Settings
from kernel_harness.session.summary import at_further_shape
from kernel_harness.suite.device_worker import SuiteProblem, Task, Verdict
from kernel_harness.suite.store import Entry
from kernel_harness.suite.suite import recorded_settings
from kernel_harness.timing.intervals import Interval, geometric_mean, interval_of
from kernel_harness.timing.statistics import Timing

OWN_SHAPE, SECOND, THIRD = {"M": 4, "K": 8}, {"M": 16, "K": 8}, {"M": 4, "K": 32}
FURTHER = (SECOND, THIRD)
SOURCE = """
import torch

M, K = 256, 512
class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.rand(M, K), torch.rand(K, M)]
"""

# ------------------------------------------------------------------------------------ the mean and its interval


intervals = st.builds(
    lambda low, estimate, high: Interval(estimate / low, estimate, estimate * high),
    st.floats(1, 3), st.floats(0.01, 100), st.floats(1, 3),
)  # fmt: skip


@given(st.lists(intervals, min_size=1, max_size=6))
def test_the_mean_is_geometric_and_within_its_bounds(found: Sequence[Interval]) -> None:
    mean = geometric_mean(found)
    assert mean.estimate == pytest.approx(math.prod(each.estimate for each in found) ** (1 / len(found)))
    assert mean.low is not None and mean.high is not None and mean.low <= mean.estimate <= mean.high


@given(st.lists(intervals, min_size=1, max_size=6))
def test_each_side_of_the_interval_is_the_root_of_the_sum_of_the_squares_of_that_side(
    found: Sequence[Interval],
) -> None:
    mean = geometric_mean(found)
    assert mean.low and mean.high
    below = math.sqrt(sum(math.log(each.estimate / each.low) ** 2 for each in found if each.low)) / len(found)
    above = math.sqrt(sum(math.log(each.high / each.estimate) ** 2 for each in found if each.high)) / len(found)
    assert math.log(mean.estimate / mean.low) == pytest.approx(below, abs=1e-9)
    assert math.log(mean.high / mean.estimate) == pytest.approx(above, abs=1e-9)


def test_the_mean_of_one_is_itself_and_without_a_bound_there_is_none() -> None:
    one, open_end = Interval(0.9, 1.0, 1.2), Interval(None, 2.0, None)
    assert geometric_mean([one]) is one
    assert geometric_mean([one, open_end]) == Interval(None, pytest.approx(math.sqrt(2)), None)


def test_the_interval_has_the_coverage_of_its_parts_in_a_simulation() -> None:
    """The parts are exact 95% intervals, with errors that differ tenfold between the shapes."""
    rng = np.random.default_rng(1)
    truth, deviations = np.array([0.1, -0.2, 0.5]), np.array([0.002, 0.02, 0.01])
    covered, errors, half_widths = 0, [], []
    for _ in range(20_000):
        logs = truth + rng.normal(size=3) * deviations
        parts = [Interval(x - 1.96 * s, x, x + 1.96 * s).exp() for x, s in zip(logs, deviations, strict=True)]
        mean = geometric_mean(parts)
        assert mean.low and mean.high and mean.half_width
        covered += math.log(mean.low) <= truth.mean() <= math.log(mean.high)
        errors.append(math.log(mean.estimate) - truth.mean())
        half_widths.append(mean.half_width)
    assert covered / 20_000 == pytest.approx(0.95, abs=0.006)
    assert fmean(half_widths) == pytest.approx(1.96 * float(np.std(errors)), rel=0.02)


@pytest.mark.parametrize("heavy", [False, True], ids=["normal noise", "heavy tails"])
def test_the_mean_of_intervals_of_rounds_covers_the_truth(heavy: bool) -> None:
    """As timing computes them: medians of the rounds at each shape, with a different number of rounds."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(1000):
        noise = [rng.standard_t(2, n) if heavy else rng.normal(size=n) for n in (16, 64, 32)]
        mean = geometric_mean([interval_of(0.01 * (1 + i) * each).exp() for i, each in enumerate(noise)])
        assert mean.low and mean.high
        covered += mean.low <= 1 <= mean.high
    assert 0.94 <= covered / 1000 <= 1.0


# -------------------------------------------------------------------------------------------- which shapes


def problem(folder: Path, more: str = "") -> Problem:
    path = folder / "p.py"
    path.write_text(SOURCE + more)
    return load("p", path)


def names(problems: Sequence[Problem]) -> list[str]:
    return [shape_text(each.shape) for each in problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", [3]), ("0", [0]), ("M=64,K=48", [{"M": 64, "K": 48}]), ("shape=(8,64)", [{"shape": (8, 64)}]),
        ("M=64..256:x2", [{"M": 64}, {"M": 128}, {"M": 256}]),
    ],
)  # fmt: skip
def test_the_option_takes_a_number_or_shapes(text: str, expected: list[Any]) -> None:
    assert arguments.time_shapes(text) == expected


@pytest.mark.parametrize("text", ["-1", "M", "full", "", "1.5", "M=64;N=2"])
def test_the_option_refuses_other_text(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        arguments.time_shapes(text)


@pytest.mark.parametrize(
    ("given_value", "expected"), [(None, ()), (2, (2,)), ({"M": 1}, ({"M": 1},)), ([0, {"M": 1}], (0, {"M": 1}))]
)
def test_a_caller_may_give_one_value_or_a_list(given_value: Any, expected: Any) -> None:
    assert Settings.of(time_shapes=given_value).time_shapes == expected


@pytest.mark.parametrize("wrong", [-1, True, "M=64", [{"M": "64"}], [{"M": 1.5}], 1.5])
def test_a_caller_s_wrong_value_is_told(wrong: Any) -> None:
    with pytest.raises(UserError, match="time_shapes"):
        Settings.of(time_shapes=wrong)


LISTED = "TIME_SHAPES = [dict(M=64), dict(M=256), dict(K=128, M=32)]\n"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((), ["M=64,K=512", "M=32,K=128"]),  # the file's M=256 is its own size
        (({"K": 64},), ["M=64,K=512", "M=32,K=128", "M=256,K=64"]),
        ((0, {"K": 64}), ["M=256,K=64"]),
        ((0,), []),
        (({"M": 64},), ["M=64,K=512", "M=32,K=128"]),  # each shape once
    ],
)
def test_listed_shapes_are_added_to_the_file_s_and_a_zero_leaves_these_out(
    tmp_path: Path, wanted: Any, expected: list[str]
) -> None:
    assert names(timed_shapes.further(problem(tmp_path, LISTED), wanted, 1)) == expected


def test_the_file_s_shapes_belong_to_its_own_size(tmp_path: Path) -> None:
    assert timed_shapes.further(problem(tmp_path, LISTED).at({"M": 128}), (), 1) == []


def test_under_emulation_the_file_s_shapes_that_are_too_large_for_a_cpu_are_left_out(tmp_path: Path) -> None:
    more = "CPU_SHAPE = dict(M=16, K=32)\nTIME_SHAPES = [dict(M=8), dict(M=8192, K=8192)]\n"
    small = problem(tmp_path, more).on(emulated=True)
    assert names(timed_shapes.further(small, (), 1)) == ["M=8,K=32"]
    assert names(timed_shapes.further(problem(tmp_path, more), (), 1)) == ["M=8,K=512", "M=8192,K=8192"]


@pytest.mark.parametrize(
    ("more", "wanted", "said"),
    [
        ("TIME_SHAPES = dict(M=64)\n", (), "TIME_SHAPES must be a list such as"),
        ("TIME_SHAPES = [64]\n", (), "TIME_SHAPES must be a list such as"),
        ("TIME_SHAPES = [dict(L=64)]\n", (), "has no constant L"),
        ("", ({"N": 64},), "has no constant N"),
        ("", ({"M": 0},), "no elements"),
        ("TIME_SHAPE = [dict(M=64)]\n", (), "did you mean TIME_SHAPES"),
    ],
)
def test_a_shape_that_the_problem_does_not_have_is_told(tmp_path: Path, more: str, wanted: Any, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        timed_shapes.further(problem(tmp_path, more), wanted, 1)


def test_a_problem_without_sizes_has_no_drawn_shapes(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(SOURCE.replace("M, K = 256, 512", "").replace("M, K", "4, 4").replace("K, M", "4, 4"))
    with pytest.raises(UserError, match="only 0 of 2 further shapes can be drawn around its size; list shapes"):
        timed_shapes.further(load("p", path), (2,), 1)


@pytest.mark.parametrize("seed", range(5))
def test_drawn_shapes_are_near_the_own_size_and_cost_no_more_than_a_few_times_as_much(
    tmp_path: Path, seed: int
) -> None:
    own = problem(tmp_path)
    drawn = sizing.around(own, random.Random(seed), 4)
    assert len({shape_text(each) for each in drawn}) == 4 and dict(own.shape) not in drawn
    for shape in drawn:
        assert 128 <= shape["M"] <= 512 and 256 <= shape["K"] <= 1024 and shape["M"] % 16 == shape["K"] % 16 == 0
        assert shape["M"] * shape["K"] <= 256 * 512 and shape["M"] != shape["K"]


def test_drawn_shapes_follow_from_the_seed_and_from_nothing_else(tmp_path: Path) -> None:
    own = problem(tmp_path)
    assert names(timed_shapes.further(own, (2,), 7)) == names(timed_shapes.further(own, (2,), 7))
    assert names(timed_shapes.further(own, (2,), 7)) != names(timed_shapes.further(own, (2,), 8))


def test_shapes_of_the_file_that_are_too_large_for_a_cpu_are_named(tmp_path: Path) -> None:
    text = "TIME_SHAPES = [dict(M=64), dict(M=2**20, K=2**12)]\n"
    there = problem(tmp_path, text).on(emulated=True)
    assert [(shape["M"], shape["K"]) for shape in timed_shapes.too_large(there)] == [(2**20, 2**12)]
    assert [each.shape["M"] for each in timed_shapes.of_file(there)] == [64]
    assert timed_shapes.too_large(problem(tmp_path, text)) == []


def test_no_drawn_shape_is_one_that_is_listed(tmp_path: Path) -> None:
    own = problem(tmp_path)
    (drawn,) = timed_shapes.further(own, (1,), 7)
    found = names(timed_shapes.further(own, (drawn.shape, 1), 7))
    assert len(set(found)) == 2 and shape_text(drawn.shape) in found


def test_drawn_shapes_keep_equal_sizes_equal(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(SOURCE.replace("256, 512", "512, 512"))
    for shape in sizing.around(load("p", path), random.Random(1), 3):
        assert shape["M"] == shape["K"]


def test_each_timed_shape_is_a_checked_case(tmp_path: Path) -> None:
    own = problem(tmp_path, "CHECK_SHAPES = [dict(M=64), dict(M=7)]\n")
    for quick in (False, True):
        cases = plan(own, 1, quick=quick, timed_too=[{"M": 64, "K": 512}])
        there = [case for case in cases if case.shape_name == "M=64,K=512"]
        assert [case.distribution for case in there] == ["normal", OWN]
        assert not there[1].optional and not any(case.timed_shape for case in there)


# ------------------------------------------------------------------------------------ the run at a further shape


class WithPeaks(Emulated):
    """A device whose data sheet is known. It runs nothing."""

    emulated = False

    def peaks(self) -> Peaks:
        return Peaks(1e9, {"float32": 1e12}, 1e12)


def context(further: Sequence[Mapping[str, int]] = (), **chosen: Any) -> RunContext:
    settings = Settings.of(**chosen)
    return RunContext(
        PRODUCT, WithPeaks(), settings, (), {}, "", reference=Reference(PRODUCT, "cpu", None),
        observer=SilentObserver(), fork_server=None, further=tuple(further),  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_shapes_share_the_budget_equally() -> None:
    alone, several = (cohorts._stop(context(further, budget_s=6.0), 2) for further in ((), FURTHER))
    assert (alone.budget_s, several.budget_s) == (3.0, 1.0)


def test_no_time_at_a_further_shape_may_be_below_the_least_time_there() -> None:
    """The outputs have 256 times 512 numbers there, and 32 times 48 at the problem's own size."""
    large = PRODUCT.at({"M": 256, "N": 512})
    place = FurtherPlace(Reference(large, "cpu", None), WithPeaks(), None)
    there = place.context(context(), ", shape 2 of 2")
    outputs = 4 * 256 * 512
    assert there.lower_bound and 0.98 * outputs <= there.lower_bound.written <= outputs
    assert max(there.bounds_ms.values()) >= 1e3 * 0.98 * outputs / 1e9
    assert [(dict(case.shape), case.timed_shape) for case in there.cases] == [(dict(large.shape), True)]


# ---------------------------------------------------------------------------------------------- a result


def timing(speedup: float, spread: float = 0.01, **more: Any) -> Timing:
    found = Interval(speedup / (1 + spread), speedup, speedup * (1 + spread))
    return Timing((1 / speedup,), (), found.inverse, found, **more)


def record(kernel: str, *speedups: float | None, **more: Any) -> Result:
    """A result with these speedups at its own size and at the further shapes; None stands for no time."""
    own, *others = speedups or (None, None, None)
    further = [
        FurtherShape(shape, None if speedup is None else timing(speedup), "" if speedup else f"{kernel} was not timed")
        for shape, speedup in zip(FURTHER, others, strict=False)
    ]
    values: dict[str, Any] = {
        "timing": None if own is None else timing(own), "further": tuple(further), "status": Status.PASSED,
        "verdict": "", "environment": {"device": "NVIDIA H200"}, **more,
    }  # fmt: skip
    return Result(kernel, shape=OWN_SHAPE, source_sha256="ab", **values)


def test_the_speedup_is_the_geometric_mean_and_the_time_that_of_the_own_size() -> None:
    result = record("a", 1.0, 2.0, 4.0)
    assert result.speedup and result.speedup.estimate == pytest.approx(2.0)
    assert result.speedup.half_width == pytest.approx(math.log(1.01) / math.sqrt(3))
    assert result.timing and result.timing.time_ms == 1.0 and result.is_timed_everywhere
    assert result.worst == (OWN_SHAPE, result.timing.speedup)


def test_one_shape_has_no_worst_and_its_own_speedup() -> None:
    alone = record("a", 3.0)
    assert alone.timing and alone.speedup is alone.timing.speedup and alone.worst is None and alone.is_timed_everywhere


def test_a_result_is_stored_with_its_further_shapes_and_an_old_line_has_none() -> None:
    result = record("a", 1.0, None, 4.0)
    assert from_line(to_line(result)) == result
    line = json.loads(to_line(record("a", 2.0)))
    del line["further"]
    assert from_line(json.dumps(line)).further == ()


def test_a_failed_result_has_no_time_at_any_shape() -> None:
    with pytest.raises(ValueError, match="WRONG_VALUES and cannot have a time"):
        record("a", None, 2.0, status=Status.WRONG_VALUES)


def test_a_result_falls_into_one_for_each_shape() -> None:
    own, second, third = at_each_shape(record("a", 1.0, None, 4.0))
    assert [each.shape for each in (own, second, third)] == [OWN_SHAPE, SECOND, THIRD]
    assert (second.timing, second.verdict, third.timing) == (None, "a was not timed", timing(4.0))
    assert not any(each.further for each in (own, second, third))


def test_emulated_speedups_are_left_out_at_each_shape() -> None:
    bare = without_emulated_speedup(record("a", 1.0, 2.0, 4.0, emulated=True))
    assert bare.speedup is None and all(bare.timings) and bare.is_timed_everywhere


def test_what_was_measured_at_a_further_shape_is_added() -> None:
    held = record("a", 1.0, None, None, phases_s={"timing": 2.0})
    remark = Remark(RemarkKind.TIME, "the clock hardly verifies it.")
    other = Remark(RemarkKind.PROBLEM, "the checks cannot tell.")
    there = replace(record("a", 3.0, remarks=(remark, other), phases_s={"timing": 1.5}), shape=THIRD)
    added = at_further_shape(held, there)
    assert added.further[1] == FurtherShape(THIRD, there.timing) and added.further[0] == held.further[0]
    assert added.phases_s == {"timing": 2.0, f"timing at {shape_text(THIRD)}": 1.5} and added.verdict == ""
    assert [each.text for each in added.remarks] == [f"at {shape_text(THIRD)}, the clock hardly verifies it."]


def test_why_a_kernel_was_not_timed_at_a_further_shape_is_told() -> None:
    there = replace(record("a", verdict="The kernel was not timed: the machine was busy."), shape=SECOND)
    added = at_further_shape(record("a", 1.0, None, 4.0), there)
    assert added.passed and added.further[0].untimed == there.verdict
    assert added.reason == f"At {shape_text(SECOND)}: {there.verdict}"
    assert [each.verdict for each in at_each_shape(added)] == ["", there.verdict, ""]


def test_a_kernel_that_fails_at_a_further_shape_has_failed() -> None:
    there = replace(record("a", status=Status.CHEATED, verdict="too fast", log="a log"), shape=SECOND)
    failed = at_further_shape(record("a", 1.0, None, None), there)
    assert (failed.status, failed.timing, failed.log) == (Status.CHEATED, None, "a log")
    assert failed.verdict == f"At the further shape {shape_text(SECOND)}: too fast"
    assert failed.further_shapes == FURTHER and not any(failed.timings)


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [((1.0, 2.0, 4.0), 2.0 / 1.01 ** (1 / math.sqrt(3))), ((1.0, None, 4.0), 0.01), ((1.0,), 1 / 1.01)],
)
def test_the_reward_is_that_of_the_mean_and_the_least_if_a_shape_is_missing(
    speedups: Sequence[float | None], expected: float
) -> None:
    assert reward(record("a", *speedups)) == pytest.approx(expected)


@pytest.mark.parametrize("speedups", [(1.0, 2.0, 4.0), (1.0, None, 4.0), (3.0,)])
def test_a_suite_has_the_mean_of_a_candidate_that_was_timed_at_each_shape(speedups: Sequence[float | None]) -> None:
    task = Task(SuiteProblem("p", Path("p.py")), Candidate("a", Path("a.py"), ""))
    result = record("a", *speedups)
    entry = Entry.of(task, "key", result, Verdict(task.id))
    assert entry.speedup == (None if None in speedups else result.speedup) and entry.time_ms == 1 / (speedups[0] or 1)


def test_a_kernel_that_failed_at_a_further_shape_stays_failed_if_it_is_timed_again_as_the_baseline() -> None:
    held = FurtherTiming([FurtherPlace(None, WithPeaks(), None)] * 2, 0)  # type: ignore[arg-type]
    assert held.hold(record("a", 1.0, None, None)) and not held.hold(record("b"))
    held._add(replace(record("a", status=Status.CRASHED, verdict="it crashed"), shape=SECOND))
    held._add(replace(record("a", 3.0), shape=THIRD))
    (result,) = held.take()
    assert result.status is Status.CRASHED and not any(result.timings) and held.take() == []


# ----------------------------------------------------------------------------------------- the leaderboard


def table(records: Sequence[Result], further: Sequence[Mapping[str, int]] = FURTHER) -> list[leaderboard.Row]:
    return leaderboard.rank(records, OWN_SHAPE, further)


def ranks(records: Sequence[Result]) -> list[tuple[str, int | None]]:
    return [(row["kernel"], row["rank"]) for row in table(records)]


def test_the_geometric_mean_ranks_and_not_the_time_at_the_own_size() -> None:
    records = [
        record("a", 2.0, 1.0, 1.0),
        record("b", 1.0, 2.0, 2.0),
        record(BASELINE, 1.0, 1.0, 1.0, kind=Kind.BASELINE),
    ]
    assert ranks(records) == [("b", 1), ("a", 2), (BASELINE, None)]
    (best, *_) = table(records)
    assert best["time_ms"] == 1.0 and best["speedup"] == pytest.approx(2 ** (2 / 3))


def test_kernels_share_a_rank_if_the_intervals_of_their_means_overlap() -> None:
    assert ranks([record("a", 1.0, 2.0, 4.0), record("b", 2.0, 2.0, 2.01), record("c", 1.0, 1.0, 1.0)]) == [
        ("b", 1), ("a", 1), ("c", 3),
    ]  # fmt: skip


def test_a_kernel_for_some_shapes_only_ranks_after_all_others() -> None:
    accepted = (shape_text(OWN_SHAPE), shape_text(THIRD))
    records = [
        record("partly", 9.0, None, 9.0, restricted_to=accepted), record("slow", 0.1, 0.1, 0.1),
        record("not at one", 8.0, 8.0, None), record("refuses an odd size", 7.0, 7.0, 7.0, restricted_to=accepted),
        record("wrong", None, None, None, status=Status.WRONG_VALUES), record("untimed", None, None, None),
    ]  # fmt: skip
    assert ranks(records) == [
        ("slow", 1), ("refuses an odd size", 2), ("partly", 3), ("not at one", 4), ("untimed", None), ("wrong", None),
    ]  # fmt: skip
    rows = {row["kernel"]: row for row in table(records)}
    assert rows["partly"]["shapes"] == f"only at {'; '.join(accepted)}"
    text = leaderboard.render(table(records))
    assert f"only at {shape_text(OWN_SHAPE)}; {shape_text(THIRD)}" in text


def test_a_time_that_is_hardly_verified_at_one_shape_ranks_after_verified_ones() -> None:
    doubted = record("a", 4.0, 4.0, 4.0)
    doubted = replace(doubted, further=(doubted.further[0], FurtherShape(THIRD, timing(4.0, verified=False))))
    assert ranks([doubted, record("b", 2.0, 2.0, 2.0)]) == [("b", 1), ("a", 2)]


def test_speedups_over_different_baselines_do_not_rank_each_other() -> None:
    """The kernel of the lower speedup has the shorter times."""
    compiled = replace(record("a", 1.0, 1.0, 1.0), settings=RunSettings(baseline="torch.compile"))
    fast = timing(1.0)
    fast = replace(fast, time=fast.time.scaled(0.1))
    compiled = replace(compiled, timing=fast, further=tuple(replace(each, timing=fast) for each in compiled.further))
    assert [name for name, _ in ranks([record("b", 2.0, 2.0, 2.0), compiled])] == ["a", "b"]


def test_results_at_other_shapes_are_in_another_leaderboard() -> None:
    alone, both, other = record("alone", 3.0), record("both", 1.0, 2.0, 2.0), record("other", 1.0, 5.0)
    results = [alone, both, other]
    assert [row["kernel"] for row in table(results)] == ["both"]
    assert [row["kernel"] for row in table(results, ())] == ["alone"]
    assert [row["kernel"] for row in table(results, [SECOND])] == ["other"]
    assert ranking.timed_at(results) == [(OWN_SHAPE, ()), (OWN_SHAPE, FURTHER), (OWN_SHAPE, (SECOND,))]


def test_the_table_shows_the_mean_with_its_interval_and_the_worst_shape_at_several_shapes_only() -> None:
    several, one = (
        leaderboard.render(rows) for rows in (table([record("a", 1.0, 2.0, 4.0)]), table([record("a", 3.0)], ()))
    )
    assert "geometric mean" in several and "2x (1.99 - 2.01)" in several and "1.000x at M=4,K=8" in several
    assert "Timed at M=4,K=8; M=16,K=8; M=4,K=32. The times are those at the first." in several
    assert "geometric mean" not in one and "worst" not in one and "Timed at" not in one and "3x" in one


def test_a_second_csv_has_a_row_for_each_kernel_and_shape(tmp_path: Path) -> None:
    records = [record("a", 1.0, 2.0, None), record("b", None, None, None, status=Status.CRASHED, verdict="it crashed")]
    leaderboard.save(tmp_path, "leaderboard", "title", table(records))
    with (tmp_path / "leaderboard-shapes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["kernel"], row["shape"], row["speedup"], row["reason"]) for row in rows] == [
        ("a", "M=4,K=8", "1", ""), ("a", "M=16,K=8", "2", ""), ("a", "M=4,K=32", "", "a was not timed"),
        *(("b", shape, "", "it crashed") for shape in ("M=4,K=8", "M=16,K=8", "M=4,K=32")),
    ]  # fmt: skip
    assert list(rows[0]) == list(leaderboard.SHAPE_COLUMNS)
    with (tmp_path / "leaderboard.csv").open() as file:
        assert list(next(csv.DictReader(file))) == list(leaderboard.COLUMNS)


def test_one_shape_has_no_second_csv(tmp_path: Path) -> None:
    leaderboard.save(tmp_path, "leaderboard", "title", table([record("a", 1.0)], ()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["leaderboard.csv", "leaderboard.md"]


def test_the_file_of_a_leaderboard_tells_its_shapes() -> None:
    stem = leaderboard.file_stem
    assert stem(OWN_SHAPE, OWN_SHAPE) == stem(OWN_SHAPE, OWN_SHAPE, FURTHER, FURTHER) == "leaderboard"
    assert stem(OWN_SHAPE, OWN_SHAPE, (), FURTHER) == "leaderboard-M4-K8"
    several = [stem(OWN_SHAPE, OWN_SHAPE, further) for further in (FURTHER, FURTHER[::-1], FURTHER[:1])]
    assert len({*several}) == 3 and several[0].startswith("leaderboard-3-shapes-")


def test_the_title_counts_the_further_shapes() -> None:
    assert leaderboard.heading("p", [], OWN_SHAPE, FURTHER) == "p, M=4,K=8 and 2 further shapes"


# ------------------------------------------------------------------------------------------------- compare


def test_two_runs_are_compared_at_each_shape_and_in_the_mean() -> None:
    before = record("a", 1.0, 2.0, 4.0, run="1", measured_at="then")
    after = record("a", 1.0, 2.0, 2.0, run="2", measured_at="now")
    outcome = comparison.compare(comparison.side("A", [before]), comparison.side("B", [after]))
    assert {row.shape: row.change for row in outcome.rows} == {
        tuple(OWN_SHAPE.items()): "undecided", tuple(SECOND.items()): "undecided", tuple(THIRD.items()): "slower",
    }  # fmt: skip
    assert "a: the geometric mean of A / B over 3 shapes is 0.7937x (95% interval" in comparison.render(outcome)


def test_a_run_at_one_shape_is_compared_at_that_shape_alone() -> None:
    several, one = record("a", 1.0, 2.0, 4.0, run="1", measured_at="then"), record("a", 2.0, run="2")
    outcome = comparison.compare(comparison.side("A", [several]), comparison.side("B", [one]))
    assert [(row.shape, row.change) for row in outcome.rows] == [(tuple(OWN_SHAPE.items()), "faster")]
    assert "geometric mean" not in comparison.render(outcome)


def test_a_suite_records_the_shapes_that_the_user_named() -> None:
    assert "time_shapes" not in recorded_settings(Settings())
    assert recorded_settings(Settings(time_shapes=(2, {"M": 64})))["time_shapes"] == ["2", "M=64"]
