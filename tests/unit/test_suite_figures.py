"""The figures of a suite against cases worked out by hand, and against a second implementation."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.suites import entry

from kernel_harness.core.status import Status
from kernel_harness.suite import figures
from kernel_harness.suite.figures import Figure, pass_at_k
from kernel_harness.suite.store import Entry
from kernel_harness.timing.intervals import Interval

WRONG = Status.WRONG_VALUES
# Two problems. p: speedups 0.4, 1.2 and 3, and one that is wrong. q: a speedup of 0.9, and three that are wrong.
TWO = [
    entry("p", "a", 0.4), entry("p", "b", 1.2), entry("p", "c", 3.0), entry("p", "d", status=WRONG),
    entry("q", "a", 0.9), *(entry("q", name, status=WRONG) for name in "bcd"),
]  # fmt: skip


def named(entries: Sequence[Entry]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures.figures(entries)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("correct rate", (3 / 4 + 1 / 4) / 2),
        ("pass@1", (3 / 4 + 1 / 4) / 2),
        ("pass@2", (1 + (1 - 3 / 6)) / 2),  # q: 3 of the 6 pairs hold no right candidate
        ("fast_0", (3 / 4 + 1 / 4) / 2),
        ("fast_0.5", (2 / 4 + 1 / 4) / 2),
        ("fast_0.8", (2 / 4 + 1 / 4) / 2),
        ("fast_1", (2 / 4 + 0) / 2),
        ("fast_1.5", (1 / 4 + 0) / 2),
        ("fast_2", (1 / 4 + 0) / 2),
        ("fast_0 (best)", 1.0),
        ("fast_1 (best)", 1 / 2),
        ("fast_0.8 (best)", 1.0),
        ("fast_1 (certain)", (2 / 4 + 0) / 2),
        ("fast_1 (best, certain)", 1 / 2),
        ("geometric mean speedup", math.sqrt((0.4 * 1.2 * 3.0) ** (1 / 3) * 0.9)),
        ("geometric mean speedup (best)", math.sqrt(3.0 * 0.9)),
    ],
)
def test_a_small_suite_by_hand(name: str, value: float) -> None:
    assert named(TWO)[name].value == pytest.approx(value)


def test_pass_at_k_is_left_out_where_a_problem_has_fewer_candidates() -> None:
    assert "pass@2" in named(TWO) and "pass@5" not in named(TWO)


def test_fast_p_counts_speedups_above_p_only() -> None:
    assert named([entry("p", "a", 1.0)])["fast_1"].value == 0


@pytest.mark.parametrize(("speedup", "certain"), [(1.005, 0), (1.02, 1), (0.9, 0)])
def test_fast_p_is_certain_only_where_the_whole_interval_is_above_p(speedup: float, certain: int) -> None:
    found = named([entry("p", "a", 0.5), entry("p", "b", speedup)])  # the intervals reach from -1% to +1%
    assert found["fast_1"].value == (speedup > 1) / 2 and found["fast_1 (best)"].value == (speedup > 1)
    assert found["fast_1 (certain)"].value == certain / 2 and found["fast_1 (best, certain)"].value == certain


def test_fast_p_counts_launch_latency_apart() -> None:
    fewer_launches = replace(entry("p", "a", 1.0), as_called=Interval(1.9, 1.98, 2.0))
    more_launches = replace(entry("p", "b", 1.2), as_called=Interval(0.8, 0.9, 1.0))
    found = named([fewer_launches, more_launches, entry("p", "not verified", 1.1), entry("p", "slow", 0.9)])
    assert found["fast_1"].value == 0.5 and found["fast_1 (as called)"].value == 0.5
    assert found["fast_1.5 (best)"].value == 0 and found["fast_1.5 (best, as called)"].value == 1


def test_a_candidate_that_passed_without_a_time_counts_as_right_and_not_as_fast() -> None:
    found = named([entry("p", "a")])

    assert found["fast_0"].value == 1 and found["fast_0.5"].value == 0
    assert "geometric mean speedup" not in found


def test_problems_weigh_alike_whatever_their_number_of_candidates() -> None:
    many = [entry("p", str(number), 2.0) for number in range(9)]

    assert named([*many, entry("q", "a", status=WRONG)])["correct rate"].value == 0.5


def test_emulated_times_give_no_figures_of_speed() -> None:
    names = named([entry("p", "a", emulated=True), entry("q", "a", emulated=True)])

    assert list(names) == ["correct rate", "pass@1"]


def test_no_verdicts_have_no_figures() -> None:
    assert figures.figures([]) == []


def test_one_problem_has_no_interval() -> None:
    assert (named(TWO[:4])["correct rate"].low, named(TWO[:4])["correct rate"].high) == (None, None)


def test_equal_verdicts_give_equal_intervals() -> None:
    assert figures.figures(TWO) == figures.figures(list(TWO))


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_candidate(candidates: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, candidates))
    k = data.draw(st.integers(1, candidates))
    right = [index < passed for index in range(candidates)]
    subsets = list(itertools.combinations(right, k))

    assert pass_at_k(candidates, passed, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("candidates", "passed", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1)])
def test_pass_at_k_without_a_meaning_is_refused(candidates: int, passed: int, k: int) -> None:
    with pytest.raises(ValueError, match="is not defined"):
        pass_at_k(candidates, passed, k)


def test_figures_and_intervals_agree_with_a_second_implementation() -> None:
    rng = random.Random(5)
    entries = [
        entry(f"p{problem}", str(index), rng.lognormvariate(0, 0.8) if rng.random() < 0.6 else None,
              Status.PASSED if rng.random() < 0.9 else WRONG)
        for problem in range(30) for index in range(6)
    ]  # fmt: skip
    entries = [e if e.speedup is not None and e.passed else entry(*e.id, status=WRONG) for e in entries]
    problems = {name: [e for e in entries if e.problem == name] for name, _ in (e.id for e in entries)}

    fast = [sum(e.speedup is not None and e.speedup.estimate > 1.5 for e in each) / 6 for each in problems.values()]
    best = [max((e.speedup.estimate for e in each if e.speedup), default=None) for each in problems.values()]
    expected = {
        "fast_1.5": (statistics.fmean(fast), *_bootstrap(fast, statistics.fmean)),
        "geometric mean speedup (best)": (_geometric_mean(best), *_bootstrap(best, _geometric_mean)),
    }
    for name, (value, low, high) in expected.items():
        found = named(entries)[name]
        assert found.value == pytest.approx(value)
        assert found.low == pytest.approx(low, rel=0.06)
        assert found.high == pytest.approx(high, rel=0.06)


def _geometric_mean(values: Sequence[float | None]) -> float:
    return statistics.geometric_mean([value for value in values if value is not None])


def _bootstrap(values: Sequence, statistic) -> tuple[float, float]:
    rng = random.Random(3)
    drawn = sorted(statistic(rng.choices(values, k=len(values))) for _ in range(4000))
    return drawn[100], drawn[-101]


def test_the_interval_of_a_rate_covers_it_as_often_as_it_says() -> None:
    """200 suites of 60 problems, of which each is solved with a probability of 0.4."""
    rng = random.Random(2)
    covered = 0
    for _ in range(200):
        suite = [entry(f"p{i}", "a", emulated=True, status=Status.PASSED if rng.random() < 0.4 else WRONG)
                 for i in range(60)]  # fmt: skip
        rate = figures.figures(suite)[0]
        assert rate.low is not None and rate.high is not None
        covered += rate.low <= 0.4 <= rate.high

    assert 0.90 <= covered / 200 <= 0.99
